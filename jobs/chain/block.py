"""Runs the LLM steps of all arms over one block: sends each request once, reads each answer once, and accounts for both.

A step knows one arm, or arms that ask the same. It is a generator: it yields what it asks, is sent the replies, and returns its
rows. The steps of all arms advance together, so a request that several of them make is one.
"""

from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from cluster.run.stage import charge_failure, shard_of
from jobs.chain.arms.tasks import LlmTask
from jobs.chain.completions import REUSED
from jobs.chain.counts import with_counts
from jobs.chain.engines import Engines, asked_key
from jobs.chain.journal import Key
from jobs.chain.needs import requests_before
from jobs.chain.search_texts import queries_of
from jobs.counts import QUANTITIES, arm_key
from jobs.tables import error_row, with_appended
from rewriters.engines import Completion, Request
from rewriters.guards.mask import Mask
from rewriters.query import Query
from rewriters.steps.results import StepResult, read_step

Value = TypeVar("Value")


class Ask(NamedTuple):
    """One request of a step.

    Attributes:
        row: Of the query in the block.
        request: As it is sent.
        key: By which its answer is known.
        name: In costs and errors.
        mask: Of the personal data in it.
        task: Whose answer it is read as; None: the step reads it.
        arms: That need its answer, where those are not all of the step.
    """

    row: int
    request: Request
    key: Key
    name: str
    mask: Mask
    task: LlmTask | None = None
    arms: Collection[str] | None = None

    def about(self, document: str) -> Self:
        """Returns the request with the doc_id of the document that it is about."""
        return self._replace(request=replace(self.request, document=document))


class Reply(NamedTuple):
    """The answer to a request, raw and parsed."""

    completion: Completion
    result: StepResult


Step = Generator[Sequence[Ask], list[Reply], Value]


class LlmBlock:
    """The queries of a block, and what LLMs are asked about them at one stage.

    Attributes:
        table: The block; a stage may put another one with more in its place.
        queries: Row by row.
        counts: For the manifest.
    """

    def __init__(self, table: pa.Table, engines: Engines, arms: Sequence[Collection[str]]) -> None:
        """Asks nothing yet; `engines` are those of the stage; `arms`: of each step, by its index."""
        self.table, self.queries, self.counts = table, queries_of(table), Counter[str]()
        self._engines, self._arms = engines, arms
        self._quantity = next(kind for kind, stage in QUANTITIES.items() if stage == engines.stage)
        self._answers, self._paid = engines.open(shard_of(table)), requests_before(table)
        self._charged_before = pc.list_value_length(table.column("costs")).to_pylist()
        self._replies: dict[tuple[Key, str], Reply] = {}
        self._requests: list[dict[Key, Request]] = [{} for _ in self.queries]
        self._needed: list[dict[Key, dict[str, Any]]] = [{} for _ in self.queries]  # rows of NEED, whose arms are a set
        self._errors: list[dict[tuple[Any, ...], dict[str, Any]]] = [{} for _ in self.queries]

    def ask(
        self, task: LlmTask, row: int, values: Mapping[str, str], mask: Mask | None = None, query: Query | None = None
    ) -> Ask:
        """Returns the request of a task for a query, or for another text in its place."""
        mask = Mask(task.mask) if mask is None else mask
        request = task.step.request(query or self.queries[row], values, mask, task.decoding, task.engine.key)
        return Ask(row, request, self._engines.key(request), task.name, mask, task)

    def run(self, steps: Mapping[int, Step[Value]]) -> dict[int, Value]:
        """Returns the value that each step, by its index, ends with."""
        ended: dict[int, Value] = {}
        replies: dict[int, list[Reply] | None] = dict.fromkeys(steps)
        while replies:
            asked = {}
            for step, sent in replies.items():
                try:
                    asked[step] = steps[step].send(sent)  # type: ignore[arg-type]  # a generator begins with None
                except StopIteration as end:
                    ended[step] = end.value
            self._answers.add((ask.key, ask.request) for asks in asked.values() for ask in asks)
            replies = {step: [self._reply(step, ask) for ask in asks] for step, asks in asked.items()}
        return {step: ended[step] for step in steps}

    def _reply(self, step: int, ask: Ask) -> Reply:
        completion, _, start, _ = self._answers.records[ask.key]
        if ask.key not in (requests := self._requests[ask.row]):
            requests[ask.key] = replace(ask.request, name=ask.name)
        if arms := self._arms[step] if ask.arms is None else ask.arms:
            if ask.key not in (needed := self._needed[ask.row]):
                needed[ask.key] = {
                    "key": asked_key(ask.key), "quantity": self._quantity, "component": f"{ask.name}@{completion.model}",
                    "arms": set(), "made": start != REUSED, "answered": completion.error_reason is None,
                }  # fmt: skip
            needed[ask.key]["arms"].update(arms)
        if ask.task is None:
            return Reply(completion, StepResult(completion.text))
        known = ask.key, ask.task.key  # another prompt file may name other grades in the same words
        if known not in self._replies:
            self._replies[known] = Reply(completion, read_step(ask.task.step, completion, ask.request.query))
        return self._replies[known]

    def note(
        self,
        ask: Ask,
        reply: Reply,
        what: str = "",
        reason: str | None = None,
        message: str | None = None,
        raw: str | None = None,
    ) -> None:
        """Notes why a reply is unusable.

        Args:
            ask: The request.
            reply: To it.
            what: It is about; it stands before the message.
            reason: In place of that of the result.
            message: Likewise.
            raw: In place of the text of the completion.
        """
        completion, result = reply.completion, reply.result
        text, answer = f"{what}{message or result.message}", completion.text if raw is None else raw
        self.note_row(ask.row, ask.name, reason or str(result.reason), text, answer, completion.attempts)

    def note_row(self, row: int, component: str | None, reason: str, message: str, raw: str | None, attempts: int) -> None:
        """Notes an error of a query, once for all steps that have it."""
        error = error_row(self._engines.stage, component, reason, message, raw, attempts)
        self._errors[row].setdefault(tuple(error.values()), error)

    def count(self, step: int, key: str, number: int = 1) -> None:
        """Counts something of the arms of a step; of a job with one arm, under its own key."""
        self.counts.update({arm_key(arm, key) if self._engines.several else key: number for arm in self._arms[step]})

    @contextmanager
    def open(self) -> Iterator[None]:
        """Stores the answers after the body; an error in it says what was spent before."""
        try:
            yield
        except Exception as error:
            added = zip(self._charged_before, self.table.column("costs").to_pylist(), strict=True)
            charge_failure(error, [*self._spent(), *(entries[count:] for count, entries in added)])
            raise
        finally:
            self._answers.close()

    def _spent(self) -> list[list[dict[str, Any]]]:
        """Returns the costs of all requests so far, by row."""
        return [self._answers.costs(of, self._paid[row]) for row, of in enumerate(self._requests)]

    def closed(self) -> pa.Table:
        """Returns the block with what was noted and counted, and what the requests have cost."""
        needed = [[need | {"arms": sorted(need["arms"])} for need in of.values()] for of in self._needed]
        table = with_appended(with_appended(self.table, "needed", needed), "errors", [list(of.values()) for of in self._errors])
        return with_counts(with_appended(table, "costs", self._spent()), {name: n for name, n in self.counts.items() if n})

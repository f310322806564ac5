"""The rewriting stage: asks an LLM once what the arms need, and reads the texts of each.

Completions are stored as soon as they are made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cluster.run.stage import shard_of
from jobs.chain.arms.requests import SAMPLES_APART, as_made, longest_answer, opened
from jobs.chain.arms.shared_work import Reading
from jobs.chain.completer import Answered
from jobs.chain.completions import REUSED
from jobs.chain.counts import with_counts
from jobs.chain.journal import Key
from jobs.chain.search_texts import queries_of
from jobs.chain.stages.gate import gated_rows
from jobs.chain.steps.asking import AskedFor, Asking, ShardAnswers
from jobs.chain.tables import ARM_LEFT_OUT, ARM_REWRITE, ARM_SELECTION, COUNT
from jobs.chain.users import Users
from jobs.counts import GateQueries, MadeWork, arm_key
from jobs.tables import error_row, with_appended
from rewriters.classifier import REQUEST_NAME
from rewriters.engines import Completion, Request
from rewriters.query import Query
from rewriters.results import RewriteFailure
from rewriters.rewriter import Rewriter
from rewriters.scores.gate import Gated
from rewriters.selection import Choice


class ToRead(NamedTuple):
    """A reading, with its arms.

    Attributes:
        reading: The reading.
        called: Name and hash of the prompt of its requests -> what they are called in costs.
        arms: Its arms with their strategies.
        number: Its index in `SharedWork.readings`.
    """

    reading: Reading
    called: Mapping[tuple[str, str], str]
    arms: Sequence[tuple[str, frozenset[str]]]
    number: int = 0


class _QueryRequests(NamedTuple):
    """What one reading asks and takes of one query; requests that are made once more are added."""

    query: Query
    question: Request | None
    choice: Choice
    requests: list[Request]


class _Read(NamedTuple):
    """What is read of the answers to each query of a block, row by row."""

    texts: list[list[dict[str, Any]]]
    selections: list[list[dict[str, Any]]]
    guarded: list[list[dict[str, Any]]]
    errors: list[list[dict[str, Any]]]


class Rewrite:
    """A worker of the rewriting stage: all requests to one common engine.

    It processes several shards at a time, so that the engine always has enough requests and no shard waits for the slowest
    request of another.
    """

    NEEDS: tuple[str, ...] = ("shard", "query_id", "query", "context", "values")
    ADDS = pa.schema(
        [
            ("rewrites", pa.list_(ARM_REWRITE)),
            ("selections", pa.list_(ARM_SELECTION)),
            ("guarded", pa.list_(ARM_LEFT_OUT)),
            ("counts", pa.list_(COUNT)),
        ]
    )

    def __init__(self, readings: Sequence[ToRead], job: AskedFor, counts_needs: bool = True) -> None:
        self._readings, self._counts_needs = readings, counts_needs
        self._choosers = [Rewriter(one.reading.rewriting) for one in readings]
        self._rewriters = [Rewriter(one.reading.asked) for one in readings]
        engines = [engine for one in readings for engine in opened(one.reading)]
        most = max((longest_answer(one.reading.asked) for one in readings), default=0)
        self._asking = Asking("rewrite", engines, job, most)
        self._key, self.start_up = self._asking.key, self._asking.start_up

    def close(self) -> None:
        """Closes the engines."""
        self._asking.close()

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with the texts of all readings, errors and costs."""
        queries, gates = queries_of(table), gated_rows(table)
        answers = self._asking.open(shard_of(table))
        made = answers.made
        gated = [[gates.get((one.number, row)) for row in range(len(queries))] for one in self._readings]
        questions = [
            [self._question(place, query, said) for query, said in zip(queries, of, strict=True)]
            for place, of in enumerate(gated)
        ]
        answers.add(one for of in questions for one in of if one)
        asked = [
            [self._asked(place, *one, made) for one in zip(queries, of, gated[place], strict=True)]
            for place, of in enumerate(questions)
        ]
        answers.add(one for of in asked for of_query in of for one in of_query.requests)
        while again := self._again(asked, made):
            answers.add(again)
        answers.close()
        read = self._read(len(queries), asked, answers)
        spent = [self._costs([of[row] for of in asked], answers) for row in range(len(queries))]
        table = with_appended(with_appended(table, "errors", read.errors), "costs", spent)
        nothing: list[list[dict[str, Any]]] = [[] for _ in queries]
        needed = self._gate_counts(gated) + (self._counts(asked, made) if self._counts_needs else Counter())
        for field, values in zip(Rewrite.ADDS, (read.texts, read.selections, read.guarded, nothing), strict=True):
            if field.name in table.column_names:
                table = with_appended(table, field.name, values)
            else:
                table = table.append_column(field, pa.array(values, field.type))
        return with_counts(table, needed)

    def _question(self, place: int, query: Query, gated: Gated | None) -> Request | None:
        question = None if gated is not None and gated.sure else self._choosers[place].question(query)
        return None if question is None else as_made(self._readings[place].reading, question)

    def _asked(self, place: int, query: Query, question: Request | None, gated: Gated | None, made: Answered) -> _QueryRequests:
        """Returns what a reading asks of a query, for which the LLM may have said of which type it is, and the gate no."""
        answer, chooser = made[self._key(question)].completion if question else None, self._choosers[place]
        if gated is not None and gated.sure:
            choice = chooser.nothing(query, gated.reason)
        else:
            choice = chooser.choose(query, answer)
            choice = choice if gated is None else choice._replace(reason=choice.reason or gated.reason)
        reading = self._readings[place].reading
        requests = [as_made(reading, one) for one in self._rewriters[place].requests(query, choice)]
        return _QueryRequests(query, question, choice, requests)

    def _answered(self, of: _QueryRequests, made: Answered) -> list[tuple[Request, Completion]]:
        return [(one, made[self._key(one)].completion) for one in of.requests]

    def _again(self, asked: Sequence[Sequence[_QueryRequests]], made: Answered) -> list[Request]:
        """Returns the requests that are to be made once more, and adds them to those of their readings and queries."""
        found = []
        for rewriter, of_reading in zip(self._rewriters, asked, strict=True):
            for of in of_reading:
                tries = rewriter.again(of.query, self._answered(of, made), of.choice)
                of.requests.extend(tries)
                found += tries
        return found

    def _read(self, rows: int, asked: Sequence[Sequence[_QueryRequests]], answers: ShardAnswers) -> _Read:
        """Returns what is read of the answers to each query. An error that two readings have, which share answers, is one."""
        made = answers.made
        read = _Read(*(list[list[dict[str, Any]]]([] for _ in range(rows)) for _ in _Read._fields))
        for (reading, called, *_), rewriter, of_reading in zip(self._readings, self._rewriters, asked, strict=True):
            names = {name: one for (name, _), one in called.items()}
            for row, of in enumerate(of_reading):
                written = rewriter.read(of.query, self._answered(of, made), of.choice)
                read.texts[row] += [vars(one) | {"arm": reading.name} for one in written.rewrites]
                read.guarded[row] += [one._asdict() | {"arm": reading.name} for one in written.guarded]
                if reading.rewriting.selects or reading.gate is not None:
                    selection = {"query_type": written.choice.query_type, "strategies": list(written.choice.texts)}
                    read.selections[row].append(selection | {"reason": written.choice.reason, "arm": reading.name})
                answer = made[self._key(of.question)].completion if of.question else None
                failures = [replace(one, strategy=names.get(one.strategy, one.strategy)) for one in written.failures]
                known = {_known_as(one) for one in read.errors[row]}
                errors = [_error(one) for one in [*_choice_notes(answer, of.choice), *failures]]
                read.errors[row] += [one for one in errors if _known_as(one) not in known]
        return read

    def _gate_counts(self, gated: Sequence[Sequence[Gated | None]]) -> Counter[str]:
        """Returns of how many queries the gate of each arm is sure, and of how many it is not."""
        counts: Counter[str] = Counter()
        for (_, _, arms, _), of in zip(self._readings, gated, strict=True):
            for said in filter(None, of):
                key = GateQueries("sure" if said.sure else "unsure").key
                counts.update([arm_key(arm, key) for arm, _ in arms] if self._counts_needs else [key])
        return counts

    def _counts(self, asked: Sequence[Sequence[_QueryRequests]], made: Answered) -> Counter[str]:
        """Returns how many requests each arm needs, how many only it needs, and how many were made, by request and model."""
        components: dict[tuple[str, str], dict[Key, int]] = {}  # quantity, request@model -> the requests, numbered
        needed: dict[tuple[tuple[str, str], frozenset[str]], list[int]] = {}  # component, arms -> their requests
        samples = cache(lambda place, texts: self._needs(place, dict(texts)))
        names: dict[Key, str] = {}
        for place, (_, called, with_strategies, _) in enumerate(self._readings):
            every = frozenset(arm for arm, _ in with_strategies)
            for of in asked[place]:
                of_arms = samples(place, tuple(of.choice.texts.items()))
                needed_by = [] if of.question is None else [(of.question, every)]
                needed_by += [(one, of_arms.get((one.name, one.sample % SAMPLES_APART), frozenset())) for one in of.requests]
                for request, arms in ((one, arms) for one, arms in needed_by if arms):
                    key = self._key(request)
                    name = names.setdefault(key, called[request.name, request.prompt_hash])
                    component = "requests", f"{name}@{made[key].completion.model}"
                    numbers = components.setdefault(component, {})
                    needed.setdefault((component, arms), []).append(numbers.setdefault(key, len(numbers)))
        users = {component: Users(len(numbers)) for component, numbers in components.items()}
        for (component, arms), items in needed.items():
            users[component].add(sorted(arms), np.array(items))
        counts: Counter[str] = Counter()
        for component, of_component in users.items():
            counts.update(of_component.counts(*component))
            # costs count attempts, and what a request cost is all of its attempts
            counts[MadeWork(*component).key] += sum(made[key].start != REUSED for key in components[component])
        return counts

    def _needs(self, place: int, texts: Mapping[str, int | None]) -> dict[tuple[str, int], frozenset[str]]:
        """Returns the arms of a reading that need an answer where these texts are chosen, by name and sample of the request."""
        found: dict[tuple[str, int], set[str]] = {}
        for arm, strategies in self._readings[place].arms:
            own = Choice({name: most for name, most in texts.items() if name in strategies})
            for name, samples in self._rewriters[place].samples(own).items():
                for sample in range(samples):
                    found.setdefault((name, sample), set()).add(arm)
        return {request: frozenset(arms) for request, arms in found.items()}

    def _costs(self, asked: Sequence[_QueryRequests], answers: ShardAnswers) -> list[dict[str, Any]]:
        """Returns the cost entries of a query, each request once; `asked` is by reading."""
        requests: dict[Key, Request] = {}
        for (_, called, *_), of in zip(self._readings, asked, strict=True):
            for request in filter(None, [of.question, *of.requests]):
                name = called[request.name, request.prompt_hash]
                requests.setdefault(self._key(request), request if name == request.name else replace(request, name=name))
        return answers.costs(requests)


class RewriteFurther(Rewrite):
    """The stage of a further engine: it appends to the texts of those before."""

    NEEDS = (*Rewrite.NEEDS, "rewrites", "selections", "guarded", "counts")
    ADDS = pa.schema([])


def _error(failure: RewriteFailure) -> dict[str, Any]:
    component = failure.strategy or None
    return error_row("rewrite", component, failure.reason, failure.message, failure.raw, failure.attempts)


def _choice_notes(answer: Completion | None, choice: Choice) -> list[RewriteFailure]:
    """Returns the notes on a choice: the LLM's answer names no type, or the query's cell in the log no strategy of the pool.

    Args:
        answer: of the LLM that was asked for the type; None: it was not.
        choice: what was made of it.
    """
    notes = []
    if answer is not None and (answer.text is None or not choice.answered):
        message = f"the LLM's answer names no type; the rules say {choice.query_type}"
        notes.append(RewriteFailure(REQUEST_NAME, "not_classified", message, answer.text, answer.attempts))
    if choice.note:
        notes.append(RewriteFailure("select", "wrong_cell", choice.note, None, 0))
    return notes


def _known_as(error: Mapping[str, Any]) -> tuple[Any, ...]:
    return error["component"], error["reason"], error["message"]

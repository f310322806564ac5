"""The rewriting stage: makes rewrites of queries by an LLM; completions are stored as soon as they are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from cluster.costs import Prices
from cluster.run.stage import shard_of
from cluster.storage import open_storage
from jobs.chain.completer import Answered, Completer
from jobs.chain.completions import Completions, key_of
from jobs.tables import LEFT_OUT, REWRITE, SELECTION, with_appended
from rewriters.classifier import REQUEST_NAME
from rewriters.engines import Completion, Request
from rewriters.engines.settings import EngineSettings
from rewriters.query import Query
from rewriters.results import RewriteFailure
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.selection import Choice


class Rewrite:
    """A worker of the rewriting stage.

    It processes several shards at a time, so that the engine always has enough requests and no shard waits for the slowest
    request of another.
    """

    NEEDS = ("shard", "query_id", "query", "context", "values")
    ADDS = pa.schema([("rewrites", pa.list_(REWRITE)), ("selection", SELECTION), ("guarded", pa.list_(LEFT_OUT))])
    DROPS = ("context",)

    def __init__(
        self,
        engine: EngineSettings | None,
        rewriting: Rewriting,
        run: str,
        start: int,
        gpus: float = 0.0,
        prices: Prices | None = None,
        unsaved_seconds: float = 30.0,
    ) -> None:
        """Starts the engines.

        Args:
            engine: settings for `open_worker_engine`; None without strategies.
            rewriting: the pool, with resolved engines of strategies.
            run: the run's folder.
            start: the number of this start of the run, from 1.
            gpus: the number of accelerators of the worker.
            prices: of the run, if it has a budget.
            unsaved_seconds: the config's `limits.unsaved_seconds`.
        """
        self._rewriter, self._rewriting = Rewriter(rewriting), rewriting
        engines: dict[str, EngineSettings] = {}  # by `Request.engine`
        if engine is not None and rewriting.pool:
            engines = {"": engine} | {s.name: s.engine for s in rewriting.pool if s.engine is not None}
        self._completer = Completer(
            engines, open_storage(run), start, gpus, prices, unsaved_seconds, most_tokens=longest_answer(rewriting)
        )
        self.start_up = self._completer.start_up

    def close(self) -> None:
        """Closes the engines."""
        self._completer.close()

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with `rewrites`, `selection`, `guarded`, errors and costs.

        Raises:
            BlockHalted: the run's budget does not allow all requests; those that were answered are stored.
        """
        queries = queries_of(table)
        store = self._completer.open(shard_of(table))
        asked = [self._rewriter.question(query) for query in queries]
        types = self._answers(store, [[request] if request else [] for request in asked])
        choices = [
            self._rewriter.choose(query, types[key_of(request)].completion if request else None)
            for query, request in zip(queries, asked, strict=True)
        ]
        by_query = [self._rewriter.requests(query, choice) for query, choice in zip(queries, choices, strict=True)]
        made = types | self._answers(store, by_query)
        while any(tries := [self._again(*of, made) for of in zip(queries, choices, by_query, strict=True)]):
            made |= self._answers(store, tries)
            by_query = [[*of_query, *more] for of_query, more in zip(by_query, tries, strict=True)]
        store.merge()
        rewrites, selections, guarded, errors, spent = [], [], [], [], []
        for query, choice, question, of_query in zip(queries, choices, asked, by_query, strict=True):
            answers = [(request, made[key_of(request)].completion) for request in of_query]
            written = self._rewriter.read(query, answers, choice)
            rewrites.append([vars(rewrite) for rewrite in written.rewrites])
            selections.append(selection_row(written.choice) if self._rewriting.selects else None)
            guarded.append([one._asdict() for one in written.guarded])
            notes = choice_notes(made[key_of(question)].completion if question else None, choice)
            errors.append([*notes, *map(failure_row, written.failures)])
            requests = [*filter(None, [question]), *of_query]
            costs = [self._completer.cost(request, made[key_of(request)]) for request in requests]
            lost = {key_of(request): request for request in requests if store.lost[key_of(request)]}
            spent.append(costs + [self._completer.lost(request, store.lost[key]) for key, request in lost.items()])
        table = with_appended(with_appended(table, "errors", errors), "costs", spent)
        table = table.drop_columns(list(self.DROPS))
        for field, values in zip(self.ADDS, (rewrites, selections, guarded), strict=True):
            table = table.append_column(field, pa.array(values, field.type))
        return table

    def _again(self, query: Query, choice: Choice, requests: Sequence[Request], made: Answered) -> list[Request]:
        """Returns the requests of a query that are to be made once more."""
        return self._rewriter.again(query, [(one, made[key_of(one)].completion) for one in requests], choice)

    def _answers(self, store: Completions, by_query: Sequence[Sequence[Request]]) -> Answered:
        """Returns the completions of all requests: the stored ones, and the others from the engines."""
        return self._completer.fill(store, {key_of(request): request for of_query in by_query for request in of_query})


def longest_answer(rewriting: Rewriting) -> int:
    """Returns the most tokens of an answer."""
    return max(
        int(one.get("max_tokens", 0)) for one in (rewriting.decoding, *(strategy.decoding for strategy in rewriting.pool))
    )


def queries_of(table: pa.Table) -> list[Query]:
    """Returns the queries of a block."""
    columns = (table.column(name).to_pylist() for name in ("query_id", "query", "context", "values"))
    return [
        Query(query_id, text, context, dict(values or ())) for query_id, text, context, values in zip(*columns, strict=True)
    ]


def selection_row(choice: Choice) -> dict[str, Any]:
    """Returns a choice as a SELECTION."""
    return {"query_type": choice.query_type, "strategies": list(choice.texts), "reason": choice.reason}


def failure_row(failure: RewriteFailure) -> dict[str, Any]:
    """Returns a failure as an ERROR."""
    return {
        "stage": "rewrite", "component": failure.strategy or None, "reason": failure.reason, "message": failure.message,
        "raw": failure.raw, "attempts": failure.attempts,
    }  # fmt: skip


def choice_notes(answer: Completion | None, choice: Choice) -> list[dict[str, Any]]:
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
    return [failure_row(note) for note in notes]

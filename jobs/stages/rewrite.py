"""The rewriting stage: makes rewrites of queries by an LLM; completions are stored as soon as they are made."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from cluster.costs import BusyTime, Prices, Totals, add_totals, entry
from cluster.run.stage import BlockHalted, heartbeat, reserver, shard_of
from cluster.storage import open_storage
from jobs.run.engine import open_worker_engine
from jobs.stages.allowance import Allowance
from jobs.stages.completions import CompletionRecord, Completions, key_of
from jobs.stages.fill import fill
from jobs.stages.journal import JournalKeeper, Key
from jobs.tables import LEFT_OUT, LOST, REWRITE, SELECTION, with_appended
from rewriters.classifier import REQUEST_NAME
from rewriters.engines import Completion, Engine, Request
from rewriters.engines.settings import EngineSettings
from rewriters.query import Query
from rewriters.results import RewriteFailure
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.selection import Choice

HEARTBEAT_SECONDS = 1.0  # between two progress reports of a shard


class Sends:
    """The gate of a shard's requests: a send is written to the journal, and its price granted, before it is made."""

    def __init__(self, store: Completions, allowance: Allowance | None) -> None:
        """Admits every request if `allowance` is None."""
        self._store, self._allowance = store, allowance
        self._paid: set[Key] = set()  # a retry is paid for by the first send: it is answered once

    async def admit(self, request: Request) -> bool:
        """Returns whether the request may be sent; waits as long as that is not known."""
        key = key_of(request)
        if self._allowance is not None and key not in self._paid:
            if not await self._allowance.take(len(request.prompt)):
                return False
            self._paid.add(key)
        self._store.sent(key)
        return True

    def settle(self, key: Key, usd: float) -> None:
        """Counts the price of a completion."""
        if self._allowance is not None and key in self._paid:
            self._allowance.settle(usd)


class Rewrite:
    """A worker of the rewriting stage.

    It processes several shards at a time, so that the engine always has enough requests and no shard waits for the slowest
    request of another.
    """

    NEEDS = ("shard", "query_id", "query", "context", "values")
    ADDS = pa.schema([("rewrites", pa.list_(REWRITE)), ("selection", SELECTION), ("guarded", pa.list_(LEFT_OUT))])
    DROPS = ("context", "values")  # only prompts and selections have them

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
        self._engines: dict[str, Engine] = {}  # by `Request.engine`
        if engine is not None and rewriting.pool:
            own = {s.name: s.engine for s in rewriting.pool if s.engine is not None}
            self._engines = {name: open_worker_engine(settings) for name, settings in {"": engine, **own}.items()}
        self.start_up: dict[str, float] = {}
        for one in self._engines.values():
            for step, seconds in one.start().items():
                self.start_up[step] = self.start_up.get(step, 0.0) + seconds
        self._storage, self._start, self._gpus = open_storage(run), start, gpus
        self._busy = BusyTime()
        self._prices = prices
        paid = any(one.kind != "recorded" for one in self._engines.values())
        self._keeper = JournalKeeper(self._storage, unsaved_seconds) if paid else None
        self._allowance = Allowance(reserver(), self._first_price) if paid and prices is not None else None
        if self._allowance is not None and prices is not None:
            up = sum(self.start_up.values())
            self._allowance.spend(prices.usd({"rewrite": {"": {"seconds": up, "device_seconds": up * gpus}}}))

    def close(self) -> None:
        """Closes the engines."""
        for one in self._engines.values():
            one.close()
        if self._keeper:
            self._keeper.close()

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with `rewrites`, `selection`, `guarded`, errors and costs.

        Raises:
            BlockHalted: the run's budget does not allow all requests; those that were answered are stored.
        """
        queries = _queries(table)
        store = Completions(self._storage, shard_of(table), self._start, self._gpus, self._keeper)
        asked = [self._rewriter.question(query) for query in queries]
        types = self._answers(store, [[request] if request else [] for request in asked])
        choices = [
            self._rewriter.choose(query, types[key_of(request)].completion if request else None)
            for query, request in zip(queries, asked, strict=True)
        ]
        by_query = [self._rewriter.requests(query, choice) for query, choice in zip(queries, choices, strict=True)]
        made = types | self._answers(store, by_query)
        store.merge()
        rewrites, selections, guarded, errors, spent = [], [], [], [], []
        for query, choice, question, of_query in zip(queries, choices, asked, by_query, strict=True):
            answers = [(request, made[key_of(request)].completion) for request in of_query]
            written = self._rewriter.read(query, answers, choice)
            rewrites.append([vars(rewrite) for rewrite in written.rewrites])
            selections.append(_selection(written.choice) if self._rewriting.selects else None)
            guarded.append([one._asdict() for one in written.guarded])
            notes = [_not_classified(made[key_of(question)].completion, choice)] if question else []
            notes += [_wrong_cell(choice.note)] if choice.note else []
            errors.append([*filter(None, notes), *map(_error, written.failures)])
            requests = [*filter(None, [question]), *of_query]
            costs = [self._cost(request, made[key_of(request)]) for request in requests]
            spent.append(costs + [self._lost(request, lost) for request in requests if (lost := store.lost[key_of(request)])])
        table = with_appended(with_appended(table, "errors", errors), "costs", spent)
        table = table.drop_columns(list(self.DROPS))
        for field, values in zip(self.ADDS, (rewrites, selections, guarded), strict=True):
            table = table.append_column(field, pa.array(values, field.type))
        return table

    def _answers(self, store: Completions, by_query: Sequence[Sequence[Request]]) -> dict[Key, CompletionRecord]:
        """Returns the completions of all requests: the stored ones, and the others from the engines."""
        requests = {key_of(request): request for of_query in by_query for request in of_query}
        if not requests:
            return {}
        return dict(zip(requests, fill(store, list(requests), partial(self._complete, requests, store)), strict=True))

    def _complete(
        self, requests: Mapping[Key, Request], store: Completions, missing: list[Key]
    ) -> Iterator[list[tuple[Key, CompletionRecord]]]:
        """Yields the completions of the missing requests, each as it comes; one engine after the other."""
        reported = time.perf_counter()
        done, answered = len(requests) - len(missing), 0
        spent: Totals = {}
        by_engine: dict[str, list[Request]] = {}
        for key in missing:
            by_engine.setdefault(requests[key].engine, []).append(requests[key])
        with self._busy.share() as share:
            sends = Sends(store, self._allowance)
            answers = (one for name, asked in by_engine.items() for one in self._engines[name].complete(asked, sends))
            for request, completion in answers:
                seconds = share()  # since the answer before: latencies overlap, machine time does not
                yield [(key_of(request), CompletionRecord(replace(completion, seconds=seconds), request.prompt))]
                answered += 1
                sends.settle(key_of(request), self._count(spent, completion, seconds))
                if (now := time.perf_counter()) - reported > HEARTBEAT_SECONDS:
                    heartbeat((done + answered) / len(requests), spent)
                    reported = now
        if answered < len(missing):
            raise BlockHalted

    def _count(self, spent: Totals, c: Completion, seconds: float) -> float:
        """Adds a completion's costs to `spent`; returns their price in USD, 0 without prices."""
        added = {
            "seconds": seconds, "device_seconds": seconds * self._gpus, "requests": c.attempts,
            "prompt_tokens": c.prompt_tokens, "cached_tokens": c.cached_tokens, "completion_tokens": c.completion_tokens,
        }  # fmt: skip
        one: Totals = {"rewrite": {f"@{c.model}": added}}
        add_totals(spent, one)
        return self._prices.usd(one) if self._prices is not None else 0.0

    def _first_price(self, characters: int) -> float:
        """Returns the most that a request may cost, by tokens: a token has a character at least, or two bytes of one."""
        of = self._rewriting
        most = max(one.get("max_tokens", 0) for one in (of.decoding, *(strategy.decoding for strategy in of.pool)))
        tokens = {"prompt_tokens": characters, "completion_tokens": most}
        model = self._engines[""].identity().get("model", "")
        return self._prices.usd({"rewrite": {f"@{model}": tokens}}) if self._prices is not None else 0.0

    def _cost(self, request: Request, made: CompletionRecord) -> dict[str, Any]:
        c = made.completion
        return entry(
            "rewrite", request.name, c.seconds, engine=self._engines[request.engine].kind, model=c.model, attempt=c.attempts,
            requests=c.attempts, prompt_tokens=c.prompt_tokens, cached_tokens=c.cached_tokens,
            completion_tokens=c.completion_tokens, usage=c.usage, error=c.error_reason, start=made.start,
            device_seconds=made.device_seconds,
        )  # fmt: skip

    def _lost(self, request: Request, requests: int) -> dict[str, Any]:
        """Returns the cost of requests whose answers a kill has lost; their tokens are not known."""
        engine = self._engines[request.engine].kind
        return entry("rewrite", request.name, engine=engine, attempt=requests, requests=requests, error=LOST, start=self._start)


def _queries(table: pa.Table) -> list[Query]:
    """Returns the queries of a block."""
    columns = (table.column(name).to_pylist() for name in ("query_id", "query", "context", "values"))
    return [
        Query(query_id, text, context, dict(values or ())) for query_id, text, context, values in zip(*columns, strict=True)
    ]


def _selection(choice: Choice) -> dict[str, Any]:
    """Returns a choice as a SELECTION."""
    return {"query_type": choice.query_type, "strategies": list(choice.texts), "reason": choice.reason}


def _error(failure: RewriteFailure) -> dict[str, Any]:
    """Returns a failure as an ERROR."""
    return {
        "stage": "rewrite", "component": failure.strategy or None, "reason": failure.reason, "message": failure.message,
        "raw": failure.raw, "attempts": failure.attempts,
    }  # fmt: skip


def _wrong_cell(message: str) -> dict[str, Any]:
    """Returns the note on a query whose cell in the log names no strategy of the pool."""
    return _error(RewriteFailure("select", "wrong_cell", message, None, 0))


def _not_classified(answer: Completion, choice: Choice) -> dict[str, Any] | None:
    """Returns the note on a query whose type the rules told, since the LLM's answer names none; None if it names one."""
    if answer.text is not None and choice.answered:
        return None
    message = f"the LLM's answer names no type; the rules say {choice.query_type}"
    return _error(RewriteFailure(REQUEST_NAME, "not_classified", message, answer.text, answer.attempts))

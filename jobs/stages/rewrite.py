"""The rewriting stage: makes rewrites of queries by an LLM; completions are stored as soon as they are made."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
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
from jobs.tables import LOST, REWRITE, with_appended
from rewriters.engines import Completion, Request
from rewriters.engines.settings import EngineSettings
from rewriters.rewriter import Rewriter

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
    ADDS = pa.schema([("rewrites", pa.list_(REWRITE))])
    DROPS = ("context", "values")  # only prompts have them

    def __init__(
        self,
        engine: EngineSettings | None,
        strategies: list[str],
        calls: str,
        decoding: Mapping[str, Any],
        run: str,
        start: int,
        gpus: float = 0.0,
        joint_prompt: str | None = None,
        prices: Prices | None = None,
        unsaved_seconds: float = 30.0,
    ) -> None:
        """Starts the engine.

        Args:
            engine: settings for `open_worker_engine`; None without strategies.
            strategies: the config's `rewrite.strategies`.
            calls: the config's `rewrite.calls`.
            decoding: the config's `rewrite.decoding`.
            run: the run's folder.
            start: the number of this start of the run, from 1.
            gpus: the number of accelerators of the worker.
            joint_prompt: replaces our joint prompt; None: ours.
            prices: of the run, if it has a budget.
            unsaved_seconds: the config's `limits.unsaved_seconds`.
        """
        self._rewriter = Rewriter(strategies, calls, dict(decoding), joint_prompt)
        self._engine = open_worker_engine(engine) if engine and strategies else None
        self.start_up = self._engine.start() if self._engine else {}
        self._storage, self._start, self._gpus = open_storage(run), start, gpus
        self._busy = BusyTime()
        self._decoding, self._prices = dict(decoding), prices
        paid = self._engine is not None and self._engine.kind != "recorded"
        self._keeper = JournalKeeper(self._storage, unsaved_seconds) if paid else None
        self._allowance = Allowance(reserver(), self._first_price) if paid and prices is not None else None
        if self._allowance is not None and prices is not None:
            up = sum(self.start_up.values())
            self._allowance.spend(prices.usd({"rewrite": {"": {"seconds": up, "device_seconds": up * gpus}}}))

    def close(self) -> None:
        """Closes the engine."""
        if self._engine:
            self._engine.close()
        if self._keeper:
            self._keeper.close()

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with `rewrites`, errors and costs.

        Raises:
            BlockHalted: the run's budget does not allow all requests; those that were answered are stored.
        """
        queries = zip(table.column("query_id").to_pylist(), table.column("query").to_pylist(), strict=True)
        by_query = [self._rewriter.requests(query_id, query) for query_id, query in queries]
        requests = {key_of(request): request for of_query in by_query for request in of_query}
        store = Completions(self._storage, shard_of(table), self._start, self._gpus, self._keeper)
        made = dict(zip(requests, fill(store, list(requests), partial(self._complete, requests, store)), strict=True))
        store.merge()
        rewrites, errors, spent = [], [], []
        for of_query in by_query:
            answers = [(request, made[key_of(request)]) for request in of_query]
            written, failed = self._rewriter.read([(request, answer.completion) for request, answer in answers])
            rewrites.append([vars(rewrite) for rewrite in written])
            errors.append(
                [
                    {"stage": "rewrite", "component": f.strategy, "reason": f.reason, "message": f.message,
                     "raw": f.raw, "attempts": f.attempts}
                    for f in failed
                ]
            )  # fmt: skip
            costs = [self._cost(request, answer) for request, answer in answers]
            spent.append(costs + [self._lost(request, lost) for request in of_query if (lost := store.lost[key_of(request)])])
        table = with_appended(with_appended(table, "errors", errors), "costs", spent)
        (field,) = self.ADDS
        return table.drop_columns(list(self.DROPS)).append_column(field, pa.array(rewrites, field.type))

    def _complete(
        self, requests: Mapping[Key, Request], store: Completions, missing: list[Key]
    ) -> Iterator[list[tuple[Key, CompletionRecord]]]:
        """Yields the completions of the missing requests, each as it comes."""
        assert self._engine is not None
        reported = time.perf_counter()
        done, answered = len(requests) - len(missing), 0
        spent: Totals = {}
        with self._busy.share() as share:
            sends = Sends(store, self._allowance)
            for request, completion in self._engine.complete([requests[key] for key in missing], sends):
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
        tokens = {"prompt_tokens": characters, "completion_tokens": self._decoding.get("max_tokens", 0)}
        model = self._engine.identity().get("model", "") if self._engine else ""
        return self._prices.usd({"rewrite": {f"@{model}": tokens}}) if self._prices is not None else 0.0

    def _cost(self, request: Request, made: CompletionRecord) -> dict[str, Any]:
        c = made.completion
        engine = self._engine.kind if self._engine else None
        return entry(
            "rewrite", request.name, c.seconds, engine=engine, model=c.model, attempt=c.attempts,
            requests=c.attempts, prompt_tokens=c.prompt_tokens, cached_tokens=c.cached_tokens,
            completion_tokens=c.completion_tokens, usage=c.usage, error=c.error_reason, start=made.start,
            device_seconds=made.device_seconds,
        )  # fmt: skip

    def _lost(self, request: Request, requests: int) -> dict[str, Any]:
        """Returns the cost of requests whose answers a kill has lost; their tokens are not known."""
        engine = self._engine.kind if self._engine else None
        return entry("rewrite", request.name, engine=engine, attempt=requests, requests=requests, error=LOST, start=self._start)

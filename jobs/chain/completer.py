"""Completions of requests: stored ones, and the others from engines, each stored as soon as it is made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from cluster.costs import TOKENS, BusyTime, Prices, Totals, add_totals, entry
from cluster.run.stage import BlockHalted, heartbeat, reserver, stopping
from cluster.storage import Storage
from cluster.token_prices import by_tier
from jobs.chain.allowance import Allowance, Grant
from jobs.chain.completions import CompletionRecord, Completions
from jobs.chain.fill import fill
from jobs.chain.journal import JournalKeeper, Key
from jobs.job.devices import on_devices
from jobs.job.engine import open_worker_engine
from jobs.tables import LOST
from rewriters.engines import Completion, Request, errors_of_engine
from rewriters.engines.settings import EngineSettings
from rewriters.retries import tries_so_far

KeyOf = Callable[[Request], Key]
Answered = dict[Key, CompletionRecord]

HEARTBEAT_SECONDS = 1.0  # between two progress reports of a shard


class Sends:
    """The gate of a shard's requests: the price of each is granted first, and each send of it is written to the journal."""

    def __init__(
        self, store: Completions, allowance: Allowance | None, key: KeyOf, first_price: Callable[[Request], float]
    ) -> None:
        """Admits every request if `allowance` is None; `first_price` returns the most that a request may cost, in USD."""
        self._store, self._allowance, self._key, self._first_price = store, allowance, key, first_price
        self._grants: dict[Key, Grant] = {}  # of requests that are not answered

    async def admit(self, request: Request) -> bool:
        """Returns whether the request may be sent; waits as long as that is not known."""
        if self._allowance is not None:
            # of tries apart: one after a cut may have twice the tokens of the first
            name = f"{request.name}@{request.engine}, try {tries_so_far(request)}"
            grant = await self._allowance.take(name, self._first_price(request))
            if grant is None:
                return False
            self._grants[self._key(request)] = grant
        return True

    def sending(self, request: Request) -> None:
        """Records that the request is about to be sent."""
        self._store.sent(self._key(request))

    def settle(self, key: Key, usd: float, answered: bool = True) -> None:
        """Counts the price of a completion; `answered`: it has a text."""
        if self._allowance is not None and (grant := self._grants.pop(key, None)) is not None:
            self._allowance.settle(grant, usd, answered)

    def close(self) -> None:
        """Counts requests whose answers nobody waits for any more as paid: what they have cost is not known."""
        for key in list(self._grants):
            self.settle(key, self._grants[key].usd, answered=False)


class Completer:
    """The engines of a worker, with the journals of its shards and the money that it may spend."""

    def __init__(
        self,
        stage: str,
        engines: Mapping[str, EngineSettings],
        storage: Storage,
        start: int,
        key: KeyOf,
        gpus: float = 0.0,
        prices: Prices | None = None,
        most_tokens: int = 0,
    ) -> None:
        """Starts the engines.

        Args:
            stage: the value of `costs.stage`.
            engines: settings for `open_worker_engine` by `Request.engine`.
            storage: the run's folder.
            start: the number of this start of the run, from 1.
            key: returns the key of a request's completion in the run.
            gpus: the number of accelerators of the worker.
            prices: of the run, if it has a budget.
            most_tokens: of any answer.
        """
        self._stage = stage
        placed = on_devices(engines.values(), gpus)
        self._opened = {key: open_worker_engine(settings) for key, settings in placed.items()}  # equal ones once
        self._engines = {name: self._opened[settings.model_dump_json()] for name, settings in engines.items()}
        self._providers = {name: getattr(settings, "provider", None) for name, settings in engines.items()}
        self._settings = engines
        self.start_up: dict[str, float] = {}
        for settings_of_one, one in zip(placed.values(), self._opened.values(), strict=True):
            with errors_of_engine(settings_of_one, "start"):
                steps = one.start()
            for step, seconds in steps.items():
                self.start_up[step] = self.start_up.get(step, 0.0) + seconds
        self._storage, self._start, self._gpus = storage, start, gpus
        self._busy = BusyTime()
        self._prices, self._most_tokens, self._key = prices, most_tokens, key
        paid = any(one.kind != "recorded" for one in self._engines.values())
        self._keeper = JournalKeeper(storage, stopping()) if paid else None
        self._allowance = Allowance(reserver()) if paid and prices is not None else None
        self._models: dict[str, str] = {}  # that the prices of first requests go by
        if self._allowance is not None and prices is not None:
            self._models = {name: one.identity().get("model", "") for name, one in self._engines.items()}
            up = sum(self.start_up.values())
            self._allowance.spend(prices.usd({stage: {"": {"seconds": up, "device_seconds": up * gpus}}}))

    def close(self) -> None:
        """Closes the engines."""
        for one in self._opened.values():
            one.close()
        if self._keeper:
            self._keeper.close()

    def open(self, shard: int) -> Completions:
        """Returns the store of a shard's completions."""
        return Completions(self._storage, shard, self._start, self._gpus, self._keeper)

    def fill(self, store: Completions, requests: Mapping[Key, Request], known: int = 0) -> Answered:
        """Returns the completions of requests: the stored ones, and the others from the engines.

        `known`: how many more there were, which are answered.

        Raises:
            BlockHalted: the run's budget does not allow all requests; those that were answered are stored.
        """
        if not requests:
            return {}
        return dict(zip(requests, fill(store, list(requests), partial(self._complete, requests, store, known)), strict=True))

    def cost(self, request: Request, made: CompletionRecord) -> dict[str, Any]:
        """Returns the cost entry of a completion."""
        c = made.completion
        return entry(
            self._stage, request.name, c.seconds, engine=self._engines[request.engine].kind, model=c.model, attempt=c.attempts,
            requests=c.attempts, **{name: getattr(c, name) for name in TOKENS}, usage=c.usage, error=c.error_reason,
            start=made.start, device_seconds=made.device_seconds, provider=self._providers[request.engine],
            latency=c.latency, tier=c.tier,
        )  # fmt: skip

    def lost(self, request: Request, requests: int) -> dict[str, Any]:
        """Returns the cost of requests whose answers a kill has lost; their tokens are not known."""
        engine = self._engines[request.engine].kind
        return entry(
            self._stage, request.name, engine=engine, attempt=requests, requests=requests, error=LOST, start=self._start,
            provider=self._providers[request.engine],
        )  # fmt: skip

    def _complete(
        self, requests: Mapping[Key, Request], store: Completions, known: int, missing: list[Key]
    ) -> Iterator[list[tuple[Key, CompletionRecord]]]:
        """Yields the completions of the missing requests, each as it comes; one engine after the other."""
        reported = time.perf_counter()
        whole, answered = known + len(requests), 0
        done = whole - len(missing)
        by_engine: dict[str, list[Request]] = {}
        for key in missing:
            by_engine.setdefault(requests[key].engine, []).append(requests[key])
        sends = Sends(store, self._allowance, self._key, self._first_price)
        try:
            with self._busy.share() as share:
                answers = (one for name, asked in by_engine.items() for one in self._answers(name, asked, sends))
                for request, completion in answers:
                    seconds = share()  # since the answer before: latencies overlap, machine time does not
                    key = self._key(request)
                    usd = self._count(store.spent, completion, seconds)
                    sends.settle(key, usd, answered=completion.error_reason is None)
                    yield [(key, CompletionRecord(replace(completion, seconds=seconds), request.prompt))]
                    answered += 1
                    if (now := time.perf_counter()) - reported > HEARTBEAT_SECONDS:
                        heartbeat((done + answered) / whole, store.spent)
                        reported = now
        finally:
            sends.close()
            if answered < len(missing):
                heartbeat((done + answered) / whole, store.spent)  # a block that is given up has cost this
        if answered < len(missing):
            raise BlockHalted

    def _answers(self, name: str, asked: list[Request], sends: Sends) -> Iterator[tuple[Request, Completion]]:
        with errors_of_engine(self._settings[name], "complete"):
            yield from self._engines[name].complete(asked, sends)

    def _count(self, spent: Totals, c: Completion, seconds: float) -> float:
        """Adds a completion's costs to `spent`; returns their price in USD, 0 without prices."""
        tokens: dict[str, float] = {name: getattr(c, name) for name in TOKENS}
        added = tokens | {"seconds": seconds, "device_seconds": seconds * self._gpus, "requests": c.attempts}
        billed: Totals = {self._stage: {f"@{c.model}": added | by_tier(tokens, c.tier)}}
        add_totals(spent, billed)
        return 0.0 if self._prices is None else self._prices.usd(billed)

    def _first_price(self, request: Request) -> float:
        """Returns the most that a request may cost, by tokens: a token has a character at least, or two bytes of one.

        All of the prompt may be written to a cache, at a price of its own.
        """
        if self._prices is None:
            return 0.0
        asked, prompt = request.decoding.get("max_tokens") or self._most_tokens, len(request.system) + len(request.prompt)
        longest = self._settings[request.engine].longest_answer(asked)
        tokens: dict[str, float] = {"prompt_tokens": prompt, "completion_tokens": longest}
        model = f"@{self._models.get(request.engine, '')}"
        return max(self._prices.usd({self._stage: {model: tokens | {"cache_write_tokens": n}}}) for n in (0, prompt))

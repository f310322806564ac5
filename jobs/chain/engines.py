"""The engines of a worker: answers of LLMs that the job has already, else the store's, else the engines'.

Every stage that asks an LLM does so through here: rewriting, and the steps after retrieval. An answer is stored as soon as it
is made, and put into the store when its shard is done.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from cluster.costs import TOKENS, BusyTime, Totals, add_totals, by_tier, entry
from cluster.run.stage import BlockHalted, heartbeat, reserver, stopping
from cluster.storage import open_storage
from jobs.chain.allowance import Allowance, Grant
from jobs.chain.arms.requests import made_with, request_key
from jobs.chain.arms.resources import AnsweredBy
from jobs.chain.completions import REUSED, CompletionRecord, Completions
from jobs.chain.journal import JournalKeeper, Key
from jobs.chain.store.facts import EngineRequest, put_completions, stored_completions
from jobs.chain.store.files import Space
from jobs.chain.worker import WorkerJob
from jobs.job.engine import on_devices, open_worker_engine
from jobs.tables import LOST
from rewriters.engines import Completion, Request, errors_of_engine
from rewriters.retries import tries_so_far

HEARTBEAT_SECONDS = 1.0  # between two progress reports of a shard


def open_engines(job: WorkerJob, stage: str, engines: Iterable[AnsweredBy], most_tokens: int = 0) -> Engines:
    """Returns the open engines of a worker; see `Engines`."""
    opened: Engines = (job.engines or Engines)(stage, engines, job, most_tokens)
    return opened


class Sends:
    """The gate of a shard's requests: the price of each is granted first, and each send of it is written to the journal."""

    def __init__(self, store: Completions, engines: Engines) -> None:
        """Admits every request if the engines have no allowance."""
        self._store, self._engines, self._allowance = store, engines, engines.allowance
        self._grants: dict[Key, Grant] = {}  # of requests that are not answered

    async def admit(self, request: Request) -> bool:
        """Returns True if the request may be sent; waits as long as that is not known."""
        if self._allowance is not None:
            # of tries apart: one after a cut may have twice the tokens of the first
            name = f"{request.name}@{request.engine}, try {tries_so_far(request)}"
            grant = await self._allowance.take(name, self._engines.first_price(request))
            if grant is None:
                return False
            self._grants[self._engines.key(request)] = grant
        return True

    def sending(self, request: Request) -> None:
        """Records that the request is about to be sent."""
        self._store.sent(self._engines.key(request))

    def settle(self, key: Key, usd: float, answered: bool = True) -> None:
        """Counts the price of a completion; `answered`: it has a text."""
        if self._allowance is not None and (grant := self._grants.pop(key, None)) is not None:
            self._allowance.settle(grant, usd, answered)

    def close(self) -> None:
        """Counts requests whose answers nobody waits for any more as paid: what they have cost is not known."""
        for key in list(self._grants):
            self.settle(key, self._grants[key].usd, answered=False)


class Engines:
    """The engines of a worker, with the journals of its shards and the money that it may spend."""

    def __init__(self, stage: str, engines: Iterable[AnsweredBy], job: WorkerJob, most_tokens: int = 0) -> None:
        """Starts the engines.

        Args:
            stage: The value of `costs.stage`.
            engines: `Request.engine` is the key of one.
            job: Of the worker.
            most_tokens: Of any answer.
        """
        asked = {one.key: one for one in engines}
        self.stage, self.store, self.several, self._job = stage, job.store, job.work.only is None, job
        self.spaces = {key: one.space for key, one in asked.items()}
        self._settings = {key: one.settings for key, one in asked.items()}
        self._made_with: dict[tuple[str, str, int], tuple[Any, str]] = {}
        self._storage, self.start_up = open_storage(job.run), dict[str, float]()
        self._prices, self._most_tokens = job.prices, most_tokens
        self._start()

    def _start(self) -> None:
        placed, job = on_devices(self._settings.values(), self._job.gpus), self._job
        self._opened = {key: open_worker_engine(settings) for key, settings in placed.items()}  # equal ones once
        self._engines = {name: self._opened[settings.model_dump_json()] for name, settings in self._settings.items()}
        for settings, engine in zip(placed.values(), self._opened.values(), strict=True):
            with errors_of_engine(settings, "start"):
                steps = engine.start()
            for step, seconds in steps.items():
                self.start_up[step] = self.start_up.get(step, 0.0) + seconds
        self._busy = BusyTime()
        paid = any(one.kind != "recorded" for one in self._engines.values())
        self._keeper = JournalKeeper(self._storage, stopping()) if paid else None
        self.allowance: Allowance | None = None
        self._models: dict[str, str] = {}  # that the prices of first requests go by
        if paid and job.prices is not None:
            self._models = {name: one.identity().get("model", "") for name, one in self._engines.items()}
            up = sum(self.start_up.values())
            spent = job.prices.usd({self.stage: {"": {"seconds": up, "device_seconds": up * job.gpus}}})
            self.allowance = Allowance(reserver(), spent)

    def close(self) -> None:
        """Closes the engines."""
        for engine in self._opened.values():
            engine.close()
        if self._keeper:
            self._keeper.close()

    def open(self, shard: int) -> ShardAnswers:
        """Returns the answers of a shard, none of which is looked up yet."""
        return ShardAnswers(self, Completions(self._storage, shard, self._job.start, self._job.gpus, self._keeper))

    def key(self, request: Request) -> Key:
        """Returns the key of a completion among those of all engines and decodings."""
        known = request.engine, repr([request.decoding, request.form]), id(request.schema)
        if known not in self._made_with:  # with the schema, so that its id is not another's
            self._made_with[known] = request.schema, made_with(request, self.spaces[request.engine])
        return request_key(request, self._made_with[known][1])

    def cost(self, request: Request, record: CompletionRecord) -> dict[str, Any]:
        """Returns the cost entry of a completion; one that the store had has cost nothing."""
        c = record.completion
        if record.start == REUSED:
            return entry(self.stage, request.name, model=c.model, reused=1)
        return entry(
            self.stage, request.name, c.seconds, engine=self._engines[request.engine].kind, model=c.model, attempt=c.attempts,
            requests=c.attempts, **{name: getattr(c, name) for name in TOKENS}, usage=c.usage, error=c.error_reason,
            start=record.start, device_seconds=record.device_seconds, provider=self._provider(request), latency=c.latency,
            tier=c.tier,
        )  # fmt: skip

    def lost(self, request: Request, requests: int) -> dict[str, Any]:
        """Returns the cost of requests whose answers a kill has lost; their tokens are not known."""
        engine = self._engines[request.engine].kind
        return entry(
            self.stage, request.name, engine=engine, attempt=requests, requests=requests, error=LOST, start=self._job.start,
            provider=self._provider(request),
        )  # fmt: skip

    def _provider(self, request: Request) -> str | None:
        return getattr(self._settings[request.engine], "provider", None)

    def complete(self, own: Completions, missing: Mapping[Key, Request], known: int) -> Iterator[tuple[Key, CompletionRecord]]:
        """Yields the completions of requests, each as it comes and is stored; one engine after the other.

        `known`: how many more there were, which are answered.

        Raises:
            BlockHalted: The run's budget does not allow all requests; those that were answered are stored.
        """
        reported, whole, answered = time.perf_counter(), known + len(missing), 0
        by_engine: dict[str, list[Request]] = {}
        for request in missing.values():
            by_engine.setdefault(request.engine, []).append(request)
        sends = Sends(own, self)
        try:
            with self._busy.share() as share:
                answers = (one for name, asked in by_engine.items() for one in self._answers(name, asked, sends))
                for request, completion in answers:
                    seconds = share()  # since the answer before: latencies overlap, machine time does not
                    key = self.key(request)
                    usd = self._count(own.spent, completion, seconds)
                    sends.settle(key, usd, answered=completion.error_reason is None)
                    record = CompletionRecord(replace(completion, seconds=seconds), request.prompt)
                    own.put(key, record)
                    yield key, record
                    answered += 1
                    if (now := time.perf_counter()) - reported > HEARTBEAT_SECONDS:
                        heartbeat((known + answered) / whole, own.spent)
                        reported = now
        finally:
            sends.close()
            if answered < len(missing):
                heartbeat((known + answered) / whole, own.spent)  # a block that is given up has cost this
        if answered < len(missing):
            raise BlockHalted

    def _answers(self, name: str, asked: list[Request], sends: Sends) -> Iterator[tuple[Request, Completion]]:
        with errors_of_engine(self._settings[name], "complete"):
            yield from self._engines[name].complete(asked, sends)

    def _count(self, spent: Totals, c: Completion, seconds: float) -> float:
        """Adds a completion's costs to `spent`; returns their price in USD, 0 without prices."""
        tokens: dict[str, float] = {name: getattr(c, name) for name in TOKENS}
        added = tokens | {"seconds": seconds, "device_seconds": seconds * self._job.gpus, "requests": c.attempts}
        billed: Totals = {self.stage: {f"@{c.model}": added | by_tier(tokens, c.tier)}}
        add_totals(spent, billed)
        return 0.0 if self._prices is None else self._prices.usd(billed)

    def first_price(self, request: Request) -> float:
        """Returns the most that a request may cost, by tokens: a token has a character at least, or two bytes of one.

        All of the prompt may be written to a cache, at a price of its own.
        """
        if self._prices is None:
            return 0.0
        asked, prompt = request.decoding.get("max_tokens") or self._most_tokens, len(request.system) + len(request.prompt)
        longest = self._settings[request.engine].longest_answer(asked)
        tokens: dict[str, float] = {"prompt_tokens": prompt, "completion_tokens": longest}
        model = f"@{self._models.get(request.engine, '')}"
        return max(self._prices.usd({self.stage: {model: tokens | {"cache_write_tokens": n}}}) for n in (0, prompt))


def asked_key(key: Key) -> str:
    """Returns a key as stages hand it on."""
    return "/".join(map(str, key))


class ShardAnswers:
    """The answers to the requests of one shard."""

    def __init__(self, engines: Engines, own: Completions) -> None:
        """Looks nothing up; `own` are the job's completions of the shard."""
        self._engines, self._own = engines, own
        self._shared: dict[Key, Request] = {}  # those that the store may have
        self._is_asking = False
        self.records: dict[Key, CompletionRecord] = {}
        """Answers that were looked up or asked for."""

    def add(self, requests: Iterable[tuple[Key, Request]]) -> None:
        """Answers requests, with their keys; their completions are in `records` then. Those of one key are sent once.

        Raises:
            BlockHalted: The job's budget does not allow all of them; those that were answered are stored.
        """
        self._is_asking, by_key = True, dict[Key, Request]()
        for key, request in requests:
            if key not in self.records:
                by_key.setdefault(key, request)
        store, spaces = self._engines.store, self._engines.spaces
        shared = {key: one for key, one in by_key.items() if Space("completions", spaces[one.engine]) in store.names}
        self._shared |= shared
        known = self._own.get(list(by_key))
        stored = stored_completions(store, [self._fact(*one) for one in shared.items() if one[0] not in known])
        self._own.keep(stored)
        self.records |= known | stored
        missing = {key: one for key, one in by_key.items() if key not in self.records}
        self.records |= self._engines.complete(self._own, missing, len(by_key) - len(missing))
        self._is_asking = False

    def close(self) -> None:
        """Merges the journals of the shard, and puts its answers into the store.

        Where an engine has failed, requests may be in flight: their sends stay in the journal for the next attempt.
        """
        if self._is_asking:
            return
        self._own.merge()
        put_completions(self._engines.store, {self._fact(key, one): self.records[key] for key, one in self._shared.items()})

    def costs(self, requests: Mapping[Key, Request], paid: Mapping[str, bool]) -> list[dict[str, Any]]:
        """Returns the cost entries of requests, with what earlier attempts have lost of them.

        Args:
            requests: Of one query.
            paid: What `asked_key` returns of those of earlier stages, and whether they were answered: then they are costs of
                that stage, and so is what was lost of them in any case.
        """
        entries, lost = [], []
        for key, request in requests.items():
            if paid.get(asked_key(key)):
                continue
            entries.append(self._engines.cost(request, self.records[key]))
            if (sends := self._own.lost[key]) and asked_key(key) not in paid:
                lost.append(self._engines.lost(request, sends))
        return entries + lost

    def _fact(self, key: Key, request: Request) -> EngineRequest:
        return EngineRequest(self._engines.spaces[request.engine], key, request.prompt)

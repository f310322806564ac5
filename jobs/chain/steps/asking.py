"""Answers of LLMs to the requests of a worker: those that the job has already, else the store's, else the engines'.

Every stage that asks an LLM does so through here: rewriting, and the steps after retrieval. An answer is stored as soon as it
is made, and put into the store when its shard is done.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.costs import Prices, entry
from cluster.storage import open_storage
from jobs.chain.arms.opened import AnsweredBy
from jobs.chain.arms.requests import made_with, request_key
from jobs.chain.completer import Answered, Completer
from jobs.chain.completions import REUSED, CompletionRecord, Completions
from jobs.chain.journal import Key
from jobs.chain.store.facts import EngineRequest, put_completions, stored_completions
from jobs.chain.store.files import Space, StoreFiles
from rewriters.engines import Request


@dataclass(frozen=True)
class AskedFor:
    """The job for which a worker asks LLMs.

    Attributes:
        run: The job's folder.
        store: Has completions of other jobs.
        start: The number of this start of the job, from 1.
        gpus: The number of accelerators of the worker.
        prices: Of the job, if it has a budget.
        completer: What answers that which is not stored: in a plan nobody.
    """

    run: str
    store: StoreFiles
    start: int
    gpus: float = 0.0
    prices: Prices | None = None
    completer: Callable[..., Completer] = Completer


class Asking:
    """The engines of a worker. `Request.engine` is an `AnsweredBy.key`."""

    def __init__(
        self,
        stage: str,
        engines: Iterable[AnsweredBy],
        job: AskedFor,
        most_tokens: int = 0,
    ) -> None:
        engines = list(engines)
        self.stage, self.store = stage, job.store
        self.made_by = {one.key: one.space for one in engines}
        self._made_with: dict[tuple[str, str, int], tuple[Any, str]] = {}
        opened = {one.key: one.settings for one in engines}
        self.completer = job.completer(
            stage, opened, open_storage(job.run), job.start, self.key, job.gpus, job.prices, most_tokens
        )
        self.start_up = self.completer.start_up

    def close(self) -> None:
        """Closes the engines."""
        self.completer.close()

    def open(self, shard: int) -> ShardAnswers:
        """Returns the answers of a shard, none of which is looked up yet."""
        return ShardAnswers(self, self.completer.open(shard))

    def key(self, request: Request) -> Key:
        """Returns the key of a completion among those of all engines and decodings."""
        known = request.engine, repr([request.decoding, request.form]), id(request.schema)
        if known not in self._made_with:  # with the schema, so that its id is not another's
            self._made_with[known] = request.schema, made_with(request, self.made_by[request.engine])
        return request_key(request, self._made_with[known][1])


def asked_key(key: Key) -> str:
    """Returns a key as stages hand it on."""
    return "/".join(map(str, key))


class ShardAnswers:
    """The answers to the requests of one shard."""

    def __init__(self, asking: Asking, own: Completions) -> None:
        """Looks nothing up; `own` are the job's completions of the shard."""
        self._asking, self._own = asking, own
        self._shared: dict[Key, Request] = {}  # those that the store may have
        self.made: Answered = {}
        """What was looked up and asked."""

    def add(self, requests: Iterable[Request]) -> None:
        """Answers requests, which may repeat; their completions are in `made` then. One that is there is not sent again.

        Raises:
            BlockHalted: The job's budget does not allow all of them; those that were answered are stored.
        """
        by_key: dict[Key, Request] = {}
        for request in requests:
            if (key := self._asking.key(request)) not in self.made:
                by_key.setdefault(key, request)
        if not by_key:
            return
        names, made_by = self._asking.store.names, self._asking.made_by
        shared = {key: one for key, one in by_key.items() if Space("completions", made_by[one.engine]) in names}
        self._shared |= shared
        known = self._own.get(list(by_key))
        stored = stored_completions(self._asking.store, [self._fact(*one) for one in shared.items() if one[0] not in known])
        self._own.keep(stored)
        known |= stored
        self.made |= known
        missing = {key: one for key, one in by_key.items() if key not in known}
        self.made |= self._asking.completer.fill(self._own, missing, len(known))

    def close(self) -> None:
        """Merges the journals of the shard, and puts its answers into the store."""
        self._own.merge()
        put_completions(self._asking.store, {self._fact(key, one): self.made[key] for key, one in self._shared.items()})

    def is_reused(self, key: Key) -> bool:
        """Returns whether an answer was taken from the store."""
        return self.made[key].start == REUSED

    def costs(self, requests: Mapping[Key, Request], paid: Collection[str] = ()) -> list[dict[str, Any]]:
        """Returns the cost entries of requests, with what earlier attempts have lost of them.

        Args:
            requests: Of one query.
            paid: What `asked_key` returns of requests whose answers an earlier stage has: they are costs of that one.
        """
        completer, entries, lost = self._asking.completer, [], []
        for key, request in requests.items():
            if asked_key(key) in paid:
                continue
            entries.append(self._cost(request, self.made[key]))
            if sends := self._own.lost[key]:
                lost.append(completer.lost(request, sends))
        return entries + lost

    def _cost(self, request: Request, one: CompletionRecord) -> dict[str, Any]:
        if one.start == REUSED:
            return entry(self._asking.stage, request.name, model=one.completion.model, reused=1)
        return self._asking.completer.cost(request, one)

    def _fact(self, key: Key, request: Request) -> EngineRequest:
        return EngineRequest(self._asking.made_by[request.engine], key, request.prompt)

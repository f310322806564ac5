"""Answers of LLMs to the requests of a worker: those that the job has already, else the store's, else the engines'.

Every stage that asks an LLM does so through here: rewriting, and the steps after retrieval. An answer is stored as soon as it
is made, and put into the store when its shard is done. A replay asks once more for what was answered with an answer at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.costs import Prices, entry
from cluster.storage import open_storage
from jobs.chain.arms.opened import AnsweredBy
from jobs.chain.arms.requests import decoding_of, made_with, request_key
from jobs.chain.completer import Answered, Completer
from jobs.chain.completions import REUSED, CompletionRecord, Completions, first_key
from jobs.chain.journal import Key
from jobs.chain.steps.replays import OutcomeOf, StepOutcome, best_sample
from jobs.chain.store.facts import EngineRequest, put_completions, stored_completions
from jobs.chain.store.files import Space, StoreFiles
from rewriters.engines import Completion, Request
from rewriters.outcome.replays import AT_FAULT, MOST_REPLAYS, replayed, replays_so_far
from rewriters.outcome.retries import Outcome


@dataclass(frozen=True)
class AskedFor:
    """The job for which a worker asks LLMs.

    Attributes:
        run: The job's folder.
        store: Has completions of other jobs.
        start: The number of this start of the job, from 1.
        gpus: The number of accelerators of the worker.
        prices: Of the job, if it has a budget.
        unsaved_seconds: The config's `limits.unsaved_seconds`.
        replay: Of a replay the reasons in errors/ for which it does queries again; None: it is none.
        completer: What answers that which is not stored: in a plan nobody.
    """

    run: str
    store: StoreFiles
    start: int
    gpus: float = 0.0
    prices: Prices | None = None
    unsaved_seconds: float = 30.0
    replay: frozenset[str] | None = None
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
        """Starts the engines.

        Args:
            stage: The value of `costs.stage`.
            engines: May repeat; the common one first.
            job: For which they are asked.
            most_tokens: Of any answer.
        """
        engines = list(engines)
        self.stage, self.store = stage, job.store
        self.is_replay, self.reasons = job.replay is not None, (job.replay or frozenset()) & AT_FAULT
        self.made_by = {one.key: one.space for one in engines}
        self._recorded = {one.key for one in engines if one.settings.is_recorded}
        self._made_with: dict[tuple[str, str, int], tuple[Any, str]] = {}
        opened = {one.key: one.settings for one in engines}
        self.completer = job.completer(
            stage, opened, open_storage(job.run), job.start, self.key, job.gpus, job.prices, job.unsaved_seconds, most_tokens
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
        known = request.engine, repr([decoding_of(request), request.form]), id(request.schema)
        if known not in self._made_with:  # with the schema, so that its id is not another's
            self._made_with[known] = request.schema, made_with(request, self.made_by[request.engine])
        return request_key(request, self._made_with[known][1])

    def answers_once(self, request: Request) -> bool:
        """Returns whether a request has no other answer, being answered from a recording."""
        return request.engine in self._recorded


def asked_key(key: Key) -> str:
    """Returns a key as stages hand it on."""
    return "/".join(map(str, key))


class ShardAnswers:
    """The answers to the requests of one shard."""

    def __init__(self, asking: Asking, own: Completions) -> None:
        """Looks nothing up; `own` are the job's completions of the shard."""
        self._asking, self._own = asking, own
        self._shared: dict[Key, Request] = {}  # those that the store may have
        self._read_as: dict[Key, Key] = {}  # where the answer that is read is one that a replay has asked for: its own key
        self._replayed: dict[Key, tuple[Key, CompletionRecord]] = {}  # what this job, a replay, has asked for anew
        self._last: dict[Key, int] = {}  # the replays of a request that are known, where there are any
        self.made: Answered = {}
        """What was looked up and asked."""

    def add(self, requests: Iterable[Request], outcome: OutcomeOf) -> None:
        """Answers requests, which may repeat; their completions are in `made` then. One that is there is not sent again.

        `outcome` returns what an answer is worth: of several that replays have asked for the best is read.

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
        known = self._own.samples(by_key)
        for key, of in known.items():
            paid = [own for own, one in of.items() if own != key and one.start != REUSED]
            if paid and self._asking.is_replay:
                self._replayed[key] = max(paid), of[max(paid)]
        wanted = [self._fact(*one) for one in shared.items() if self._asking.is_replay or one[0] not in known]
        stored = stored_completions(self._asking.store, wanted)
        for own, one in stored.items():
            known.setdefault(first_key(own), {}).setdefault(own, one)
        for key, of in known.items():
            self._last[key] = max(replays_so_far(own.sample) for own in of)
            self._read(key, best := best_sample(by_key[key], of, outcome), of[best])
        taken = {self._read_as.get(key, key): self.made[key] for key in known}
        self._own.keep({own: one for own, one in taken.items() if one is stored.get(own)})
        missing = {key: one for key, one in by_key.items() if key not in known}
        self.made |= self._asking.completer.fill(self._own, missing, len(known))

    def add_steps(self, asked: Iterable[tuple[Request, StepOutcome]]) -> None:
        """Answers requests of steps as `add` does, each with what its answers are worth; in a replay those at fault anew.

        Raises:
            BlockHalted: As of `add`.
        """
        reading = {id(request): (request, read) for request, read in asked}  # with the requests, so that no id is another's

        def outcome(request: Request, made: Completion) -> Outcome:
            return reading[id(request)][1](made)

        requests = [request for request, _ in reading.values()]
        self.add(requests, outcome)
        if self._asking.reasons:
            read = [(one, outcome(one, self.made[self._asking.key(one)].completion).faults) for one in requests]
            self.replay([(one, faults) for one, faults in read if faults & self._asking.reasons], outcome)

    def replay(self, at_fault: Iterable[tuple[Request, frozenset[str]]], outcome: OutcomeOf) -> None:
        """Asks once more, in a replay, for what `add` has answered with answers that are at fault, each with its faults.

        What this job has asked itself stays as it is: a replay asks once. The new answer is read unless the one before is
        better.

        Raises:
            BlockHalted: As of `add`.
        """
        first: dict[Key, tuple[Key, Request]] = {}  # key of the new request -> that of the first, which a stage has made
        again: dict[Key, Request] = {}
        for request, faults in at_fault:
            key = self._asking.key(request)
            number = self._last.get(key, 0) + 1
            paid = key in self._replayed or self.made[key].start != REUSED
            if paid or number > MOST_REPLAYS or self._asking.answers_once(request):
                continue
            new = replayed(request, number, faults)
            first[self._asking.key(new)], again[self._asking.key(new)] = (key, request), new
        for own, one in self._asking.completer.fill(self._own, again).items():
            key, request = first[own]
            self._replayed[key] = own, one
            worth, before = (outcome(request, of.completion).worth for of in (one, self.made[key]))
            has_failed = one.completion.error_reason is not None
            if (has_failed and not before) or (not has_failed and worth >= before):
                self._read(key, own, one)

    def close(self) -> None:
        """Merges the journals of the shard, and puts its answers into the store."""
        self._own.merge()
        made = {self._read_as.get(key, key): self.made[key] for key in self._shared}
        made |= {own: one for key, (own, one) in self._replayed.items() if key in self._shared}
        put_completions(self._asking.store, {self._fact(own, self._shared[first_key(own)]): one for own, one in made.items()})

    def is_reused(self, key: Key) -> bool:
        """Returns whether an answer was taken from the store."""
        return self.made[key].start == REUSED

    def is_replayed(self, key: Key) -> bool:
        """Returns whether an answer is one that a replay has asked for."""
        return key in self._read_as

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
            own, again = self._replayed.get(key, (key, self.made[key]))
            entries += [self._cost(request, one) for one in ([again] if again is self.made[key] else [self.made[key], again])]
            if sends := sum(self._own.lost[one] for one in {key, own}):
                lost.append(completer.lost(request, sends))
        return entries + lost

    def _cost(self, request: Request, one: CompletionRecord) -> dict[str, Any]:
        if one.start == REUSED:
            return entry(self._asking.stage, request.name, model=one.completion.model, reused=1)
        return self._asking.completer.cost(request, one)

    def _fact(self, key: Key, request: Request) -> EngineRequest:
        return EngineRequest(self._asking.made_by[request.engine], key, request.prompt)

    def _read(self, key: Key, own: Key, one: CompletionRecord) -> None:
        """Has a request's answer read from one of those that it has."""
        self.made[key] = one
        if own != key:
            self._read_as[key] = own
        else:
            self._read_as.pop(key, None)

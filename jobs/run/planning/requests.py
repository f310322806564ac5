"""How many requests a job makes for a query: at most, and as far as gates have told which queries are rewritten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from jobs.chain.arms.generations import LlmTask, iterate_settings
from jobs.chain.arms.judging import Judging, most_judgements
from jobs.chain.arms.requests import asked_at_most
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.journal import Key
from jobs.counts import GateQueries, arm_key
from jobs.run.spending import tries_per_request

VARYING = ("classified", "random_k", "column")
"""The kinds of `rewrite.select` with which queries differ in their number of requests."""


class Requests(NamedTuple):
    """Requests of a query.

    Attributes:
        number: On average, where it is known how many queries are rewritten.
        at_most: Whether there may be fewer.
    """

    number: float
    at_most: bool


class AskedStep(NamedTuple):
    """A stage that asks LLMs about results.

    Attributes:
        kind: What its answers are.
        stage: As in costs.
        most: Requests for a query at most.
        tasks: What is asked.
    """

    kind: str
    stage: str
    most: int
    tasks: Sequence[LlmTask | Judging]


def asked_steps(work: SharedWork) -> Iterator[AskedStep]:
    """Yields the stages of a job that ask LLMs about results, in their order."""
    rounds = [of for _, of in work.generating("iteration")]
    correcting, answering = work.correcting(), [of for _, of in work.generating("generation")]
    grading = [task for _, of in correcting for task in of.tasks.values()]
    asked = [task for of in rounds for task in of.asked]
    yield AskedStep("rounds", "iterate", sum(iterate_settings(of).rounds * of.most_requests for of in rounds), asked)
    yield AskedStep("grades", "grade", sum(of.most_requests for _, of in correcting), grading)
    yield AskedStep("answers", "answer", len(answering), answering)
    yield AskedStep("judgements", "judge", most_judgements(work), work.judging)


class JobRequests:
    """The requests of a job, with all their tries."""

    def __init__(self, work: SharedWork) -> None:
        """Counts nothing yet; `work`: of all arms."""
        self._work = work

    def of_query(self, counts: Mapping[str, int]) -> Requests:
        """Returns the requests of a query; `counts`: of the shards that are committed, with what gates have said."""
        rewritten = {place: self._rewritten(place, counts) for place in range(len(self._work.readings))}
        number = float(self._after_rewriting)
        for tries, readings in self._rewriting:
            number += tries * self._share(readings, rewritten)
        gated = [place for place, one in enumerate(self._work.readings) if one.engines and one.gate is not None]
        return Requests(number, self._varies or any(rewritten[place] is None for place in gated))

    @cached_property
    def _rewriting(self) -> list[tuple[int, list[int]]]:
        """Tries of each request of a query, and the readings that make it."""
        tries, made_by = dict[Key, int](), dict[Key, list[int]]()
        for place, reading in enumerate(self._work.readings):
            for key in asked_at_most(reading):
                tries[key] = max(tries.get(key, 0), 1 + tries_per_request(reading.asked))
                made_by.setdefault(key, []).append(place)
        return [(tries[key], made_by[key]) for key in tries]

    @cached_property
    def _after_rewriting(self) -> int:
        return sum(step.most for step in asked_steps(self._work))

    @cached_property
    def _varies(self) -> bool:
        """Whether queries may need fewer requests, whatever gates say."""
        work = self._work
        chosen = any(one.rewriting.select.kind in VARYING or tries_per_request(one.asked) for one in work.readings)
        return chosen or bool(work.generating("iteration") or work.corrections or work.judging)

    @cached_property
    def _verdicts(self) -> dict[int, tuple[str, str]]:
        """Reading -> the keys of the queries of which its gate is sure and is not, as they are counted of its first arm."""
        first: dict[int, str] = {}
        for answer in self._work.answers:
            first.setdefault(self._work.searches[answer.search].reading, answer.arm)
        sure, unsure = GateQueries("sure").key, GateQueries("unsure").key
        alone = self._work.only is not None
        return {place: (sure, unsure) if alone else (arm_key(arm, sure), arm_key(arm, unsure)) for place, arm in first.items()}

    def _rewritten(self, place: int, counts: Mapping[str, int]) -> float | None:
        """Returns the share of the queries that the gate of a reading lets be rewritten; None: it has said nothing yet."""
        if self._work.readings[place].gate is None:
            return 1.0
        sure, unsure = (counts.get(key, 0) for key in self._verdicts.get(place, ("", "")))
        return unsure / (sure + unsure) if sure + unsure else None

    def _share(self, readings: Iterable[int], rewritten: Mapping[int, float | None]) -> float:
        """Returns the most queries, of all, for which any of some readings makes a request.

        Of gates by one threshold of one retriever the highest lets all queries be rewritten that the others let.
        """
        nested: dict[object, float] = {}
        for place in readings:
            share, gate = rewritten[place], self._work.readings[place].gate
            if gate is None or share is None:
                return 1.0
            kind = gate.retriever
            nested[kind] = max(nested.get(kind, 0.0), share)
        return min(1.0, sum(nested.values()))

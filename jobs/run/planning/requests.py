"""The requests to LLMs that a job makes for a query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jobs.chain.arms.generations import LlmTask, iterate_settings
from jobs.chain.arms.judging import Judging, most_judgements
from jobs.chain.arms.requests import asked_at_most
from jobs.chain.arms.shared_work import SharedWork
from jobs.run.spending import tries_per_request

VARYING = ("classified", "random_k", "column")
"""The kinds of `rewrite.select` with which queries differ in their number of requests."""


class AskedStep(NamedTuple):
    """A stage that asks LLMs about results: its kind of answers, its name in costs, and requests for a query at most."""

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


def most_requests(work: SharedWork) -> int:
    """Returns the requests to LLMs of a query at most, retries of rewriting included."""
    tries = {key: 1 + tries_per_request(reading.asked) for reading in work.readings for key in asked_at_most(reading)}
    return sum(tries.values()) + sum(step.most for step in asked_steps(work))

"""The requests to LLMs that a job makes for a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jobs.chain.arms.requests import asked_at_most
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.arms.tasks import LlmTask
from jobs.chain.arms.tasks import most_requests as most_requests_of
from jobs.run.spending import tries_per_request
from rewriters.steps.settings import RelevanceSettings

VARYING = ("classified", "random_k", "column")
"""The kinds of `rewrite.select` with which queries differ in their number of requests."""


class AskedStep(NamedTuple):
    """A stage that asks LLMs about results: its kind of answers, its name in costs, and requests for a query at most."""

    kind: str
    stage: str
    most: int
    tasks: Sequence[LlmTask]


def asked_steps(work: SharedWork) -> list[AskedStep]:
    """Returns the stages of a job that ask LLMs about results, in their order."""
    kinds = (("rounds", "iterate"), ("grades", "grade"), ("answers", "answer"), ("judgements", "judge"))
    return [AskedStep(kind, stage, most_of_stage(work, stage), work.tasks(stage)) for kind, stage in kinds]


def most_of_stage(work: SharedWork, stage: str) -> int:
    """Returns how often LLMs are asked about a query at a stage, at most, in all arms together."""
    if stage == "judge":  # arms may have other results
        answering = len(work.doing("answer"))
        judged = (one.settings for one in work.tasks(stage))
        return sum(one.documents * len(work.answers) if isinstance(one, RelevanceSettings) else answering for one in judged)
    return sum(
        most_requests_of(arm.tasks, stage, arm.grade.documents if arm.grade else 0) for arm in work.doing(stage).values()
    )


def most_requests(work: SharedWork) -> int:
    """Returns the requests to LLMs of a query at most, retries of rewriting included."""
    tries = {key: 1 + tries_per_request(reading.asked) for reading in work.readings for key in asked_at_most(reading)}
    return sum(tries.values()) + sum(step.most for step in asked_steps(work))

"""The requests to LLMs that a job makes for a query."""

from collections.abc import Iterator
from typing import NamedTuple

from jobs.chain.arms.requests import asked_at_most
from jobs.chain.arms.shared_work import Answer, SharedWork
from jobs.chain.arms.tasks import LlmTask
from jobs.config.config import stage_of
from jobs.counts import QUANTITIES
from jobs.run.money import tries_per_request
from rewriters.steps.settings import RelevanceSettings

_KINDS = {stage: kind for kind, stage in QUANTITIES.items()}


class AskedTask(NamedTuple):
    """Requests about results: their kind of work, its stage in costs, and requests for a query at most."""

    kind: str
    stage: str
    most: int
    task: LlmTask


def asked_tasks(work: SharedWork) -> Iterator[AskedTask]:
    """Yields the LLM tasks on results, arm by arm, since the results of arms may differ."""
    for arm in work.answers:
        for section, task in arm.tasks.items():
            stage = stage_of(section)
            yield AskedTask(_KINDS[stage], stage, _most(arm, section, task), task)


def _most(arm: Answer, section: str, task: LlmTask) -> int:
    if section.startswith("iterate"):
        rounds = arm.tasks["iterate"].rounds
        return rounds.rounds * (1 if section == "iterate" else rounds.documents)
    if section in ("grade", "grade.strips") and arm.grade is not None:
        return arm.grade.documents
    if section.startswith("judge"):
        return task.settings.documents if isinstance(task.settings, RelevanceSettings) else int("answer" in arm.tasks)
    return 1


def most_requests(work: SharedWork) -> int:
    """Returns the requests to LLMs of a query at most, retries of rewriting included."""
    tries = {key: 1 + tries_per_request(reading.asked) for reading in work.readings for key in asked_at_most(reading)}
    return sum(tries.values()) + sum(asked.most for asked in asked_tasks(work))

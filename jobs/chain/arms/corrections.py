"""How the first results of an arm are corrected before they are answered from: graded, refined, joined by hits of the web."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from jobs.chain.arms.arms import Arm
from jobs.chain.arms.distinct import Distinct
from jobs.chain.arms.generations import OF_TASKS, LlmTask, TaskNames
from jobs.chain.arms.opened import OpenedBy, digest
from jobs.config.config import Config
from jobs.config.settings import WebSearchSettings
from jobs.job.steps import WEB_SEARCH, ReadySteps
from rewriters.steps.settings import RELEVANT, GradeSettings


@dataclass(frozen=True)
class Correction:
    """How the first results of an arm are corrected (corrective RAG, Yan et al. 2024, arXiv 2401.15884).

    Attributes:
        settings: Of grades.
        tasks: Key of the config -> what an LLM is asked, of those that the arm has: grade.question, grade, grade.strips, web.
        web: When the web is asked; None: never.
        search: The search engine of the web.
    """

    settings: GradeSettings
    tasks: dict[str, LlmTask]
    web: WebSearchSettings | None = None
    search: OpenedBy | None = None

    @cached_property
    def key(self) -> str:
        """Returns what tells it from others."""
        own = self.settings.model_dump(exclude={**OF_TASKS, "question": True, "strips": True})
        web = None if self.web is None else self.web.model_dump(exclude={**OF_TASKS, "search": True})
        asked = {key: one.of_requests for key, one in self.tasks.items()}
        return digest([own, asked, web, None if self.search is None else self.search.space])

    @property
    def most_requests(self) -> int:
        """Returns how often LLMs are asked about a query, at most."""
        return sum(self.settings.documents if key in ("grade", "grade.strips") else 1 for key in self.tasks)

    def asks_web(self, verdicts: list[str]) -> bool:
        """Returns whether the web is asked for a query whose documents have these verdicts."""
        if self.web is None:
            return False
        relevant = verdicts.count(RELEVANT)
        return relevant == 0 or (self.web.when == "any" and relevant < len(verdicts))


class Corrections(Distinct[Correction]):
    """How results are corrected, each way once."""

    def __init__(self, names: TaskNames) -> None:
        """Begins without any; `names` are those of all tasks of the job."""
        super().__init__()
        self._names = names

    def add(self, config: Config, steps: ReadySteps, arm: Arm) -> int | None:
        """Returns the index of how the results of an arm are corrected; None: they are not."""
        if config.grade is None:
            return None
        tasks = {
            key: LlmTask(*self._names.task(settings, steps.of_results[key], config, arm))
            for key, settings in config.steps.items()
            if key.partition(".")[0] in ("grade", "web")
        }
        search = None
        if config.web is not None:
            # its answers are no answers of a retriever that asks the same: each search is a cost of one stage
            search = OpenedBy(
                WEB_SEARCH, config.web.search, dict(steps.searched or {}) | {"asked_by": "web"}, config.web.documents
            )
        one = Correction(config.grade, tasks, config.web, search)
        return self.place(one.key, one)

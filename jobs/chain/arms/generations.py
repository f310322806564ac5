"""What LLMs are asked after retrieval, such as answers and grades: each way once, whichever arms have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

from jobs.chain.arms.arms import Arm
from jobs.chain.arms.distinct import Distinct
from jobs.chain.arms.opened import AnsweredBy, digest
from jobs.config.config import Config
from jobs.job.steps import LABEL_GRADES, ReadyStep, ReadySteps
from rewriters.steps.settings import DocumentStepSettings, IterateSettings, LabelGradeSettings, LlmStepSettings
from rewriters.steps.step import LlmStep

Settings = TypeVar("Settings", bound=LlmStepSettings)
OF_TASKS: dict[str, Any] = {"engine": True, "prompt": True, "variables": True, "decoding": True, "labels": {"grades"}}
"""Settings whose content counts, and not their names."""
Fields = tuple[str, Settings, LlmStep, AnsweredBy, Mapping[str, Any], tuple[str, ...]]


@dataclass(frozen=True)
class LlmTask:
    """What an LLM is asked in an arm.

    Attributes:
        name: In costs and errors: that of the prompt's file, with the first arm that has another one of this name.
        settings: Of the config.
        step: What it is asked.
        engine: That does it.
        decoding: Passed to the engine.
        mask: Kinds of personal data that are masked in the query.
    """

    name: str
    settings: LlmStepSettings
    step: LlmStep
    engine: AnsweredBy
    decoding: Mapping[str, Any]
    mask: tuple[str, ...] = ()

    @property
    def of_requests(self) -> list[Any]:
        """Returns what tells what is asked, and how answers are read, from that of others."""
        return [self.step.identity(), self.engine.key, dict(self.decoding), list(self.mask)]

    @cached_property
    def key(self) -> str:
        """Returns what tells it from others."""
        return digest(self.told)

    @property
    def told(self) -> list[Any]:
        """Returns all that decides what is asked and who answers, as JSON-able values."""
        return [*self.of_requests, self.settings.model_dump(exclude=OF_TASKS)]


@dataclass(frozen=True)
class Generation(LlmTask):
    """How an LLM generates a text from the first results of an arm: an answer, or a refined query.

    Attributes:
        settings: Of the documents that it is shown.
        grading: How an LLM grades these first; None: it does not.
    """

    settings: DocumentStepSettings
    grading: LlmTask | None = None

    @property
    def told(self) -> list[Any]:
        """Returns all that decides what is asked and who answers, as JSON-able values."""
        return [*super().told, *([] if self.grading is None else [self.grading.key])]

    @property
    def asked(self) -> list[LlmTask]:
        """Returns all that an LLM is asked for it."""
        return [self, *([] if self.grading is None else [self.grading])]

    @property
    def most_requests(self) -> int:
        """Returns how often an LLM is asked for one text, at most."""
        return 1 + (0 if self.grading is None else self.settings.documents)

    @property
    def document_chars(self) -> int | None:
        """Returns the most characters of a document that is graded; None: no limit."""
        settings = None if self.grading is None else self.grading.settings
        return settings.document_chars if isinstance(settings, LabelGradeSettings) else None


def iterate_settings(of: Generation) -> IterateSettings:
    """Returns how the rounds of an arm are made."""
    assert isinstance(of.settings, IterateSettings)
    return of.settings


class TaskNames:
    """The names of what LLMs are asked: a name that an earlier arm has for something else gets the arm's."""

    def __init__(self) -> None:
        self._named: dict[str, str] = {}  # name -> what it asks

    def task(self, settings: Settings, ready: ReadyStep, config: Config, arm: Arm) -> Fields[Settings]:
        """Returns the fields of a task of an arm."""
        made_by = AnsweredBy(ready.engine, ready.engine_identity)
        name, asked = ready.step.name, digest([ready.identity(), made_by.key])
        if self._named.setdefault(name, asked) != asked:
            name = f"{name} of {arm.name.replace('@', ' ')}"
        return name, settings, ready.step, made_by, ready.decoding, tuple(config.rewrite.guards.mask)


class Generations(Distinct[Generation]):
    """How texts are generated, each way once."""

    def __init__(self, names: TaskNames) -> None:
        """Begins without any; `names` are those of all tasks of the job."""
        super().__init__()
        self._names = names

    def add(self, step: Literal["answer", "iterate"], steps: ReadySteps, config: Config, arm: Arm) -> int | None:
        """Returns the index of how a step of an arm generates its texts; None: the arm has no such step."""
        settings = config.answer if step == "answer" else config.iterate
        if settings is None:
            return None
        own, graded_by = self._names.task(settings, steps.of_results[step], config, arm), config.steps.get(LABEL_GRADES)
        grading = None
        if step == "iterate" and graded_by is not None:
            grading = LlmTask(*self._names.task(graded_by, steps.of_results[LABEL_GRADES], config, arm))
        one = Generation(*own, grading=grading)
        return self.place(one.key, one)

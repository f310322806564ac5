"""What LLMs are asked after retrieval, such as answers and grades: each way once, whichever arms have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from jobs.chain.arms.arms import Arm
from jobs.chain.arms.distinct import Distinct
from jobs.chain.arms.opened import AnsweredBy, digest
from jobs.config.config import Config
from jobs.job.steps import ReadyStep
from rewriters.steps.settings import DocumentStepSettings, IterateSettings, LlmStepSettings
from rewriters.steps.step import LlmStep

Settings = TypeVar("Settings", bound=LlmStepSettings)
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

    @cached_property
    def key(self) -> str:
        """Returns what tells it from others."""
        shown = self.settings.model_dump(exclude={"engine", "prompt", "variables", "decoding"})
        return digest([self.step.identity(), self.engine.key, dict(self.decoding), list(self.mask), shown])


@dataclass(frozen=True)
class Generation(LlmTask):
    """How an LLM generates a text from the first results of an arm: an answer, or a refined query.

    Attributes:
        settings: Of the documents that it is shown.
    """

    settings: DocumentStepSettings


def iterate_settings(of: Generation) -> IterateSettings:
    """Returns how the rounds of an arm are made."""
    assert isinstance(of.settings, IterateSettings)
    return of.settings


class TaskNames:
    """The names of what LLMs are asked: a name that an earlier arm has for something else gets the arm's."""

    def __init__(self) -> None:
        """Begins without any."""
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

    def add(self, settings: DocumentStepSettings | None, ready: ReadyStep | None, config: Config, arm: Arm) -> int | None:
        """Returns the index of how a step of an arm generates its texts; None: the arm has no such step."""
        if ready is None or settings is None:
            return None
        one = Generation(*self._names.task(settings, ready, config, arm))
        return self.place(one.key, one)

"""What LLMs generate from the first results of arms, such as answers: each way once, whichever arms have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jobs.chain.arms.arms import Arm
from jobs.chain.arms.distinct import Distinct
from jobs.chain.arms.shared_work import AnsweredBy, digest
from jobs.config.config import Config
from jobs.job.steps import ReadyStep
from rewriters.steps.settings import DocumentStepSettings, IterateSettings
from rewriters.steps.step import LlmStep


@dataclass(frozen=True)
class Generation:
    """How an LLM generates a text from the first results of an arm: an answer, or a refined query.

    Attributes:
        name: In costs and errors: that of the prompt's file, with the first arm that has another one of this name.
        settings: Of the documents that it is shown.
        step: What it is asked.
        engine: That does it.
        decoding: Passed to the engine.
        mask: Kinds of personal data that are masked in the query.
    """

    name: str
    settings: DocumentStepSettings
    step: LlmStep
    engine: AnsweredBy
    decoding: Mapping[str, Any]
    mask: tuple[str, ...] = ()

    @cached_property
    def key(self) -> str:
        """Returns what tells it from others."""
        shown = self.settings.model_dump(exclude={"engine", "prompt", "variables", "decoding"})
        return digest([self.step.identity(), self.engine.key, dict(self.decoding), list(self.mask), shown])


def iterate_settings(of: Generation) -> IterateSettings:
    """Returns how the rounds of an arm are made."""
    assert isinstance(of.settings, IterateSettings)
    return of.settings


class Generations(Distinct[Generation]):
    """How texts are generated, each way once."""

    def __init__(self) -> None:
        """Begins without any."""
        super().__init__()
        self._named: dict[str, str] = {}  # name -> what it asks

    def add(self, settings: DocumentStepSettings | None, ready: ReadyStep | None, config: Config, arm: Arm) -> int | None:
        """Returns the index of how a step of an arm generates its texts; None: the arm has no such step."""
        if ready is None or settings is None:
            return None
        made_by = AnsweredBy(ready.engine, ready.engine_identity)
        name, asked = ready.step.name, digest([ready.identity(), made_by.key])
        if self._named.setdefault(name, asked) != asked:
            name = f"{name} of {arm.name.replace('@', ' ')}"
        mask = tuple(config.rewrite.guards.mask)
        one = Generation(name, settings, ready.step, made_by, ready.decoding, mask)
        return self.place(one.key, one)

"""Tasks of LLMs about the results of arms: further rounds, grades, answers, judgements."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jobs.chain.arms.resources import AnsweredBy, digest
from jobs.config.config import Config
from jobs.job.steps import ReadyStep, ReadySteps
from rewriters.engines.openai.token_count import TokenCounter
from rewriters.steps.settings import DocumentStepSettings, IterateSettings, PromptSettings
from rewriters.steps.step import LlmStep

RELEVANCE, ACCURACY, CRITERIA = "relevance", "accuracy", "criteria"
_OF_REQUESTS: dict[str, Any] = {"engine": True, "prompt": True, "variables": True, "decoding": True, "labels": {"grades"}}
"""Settings whose content counts, and not their names."""
Names = dict[str, dict[str, str]]
"""Name of a prompt's file -> digest of what is asked -> the name of the tasks that ask it."""


@dataclass(frozen=True)
class LlmTask:
    """A task of an LLM in an arm.

    Attributes:
        section: Key of the config, such as `grade.strips` or `judge.relevance`.
        name: In costs and errors: that of the prompt's file, with the first arm (or kind) that has another one of this name.
        settings: Of the config.
        step: What it is asked.
        engine: That does it.
        decoding: Passed to the engine.
        mask: Kinds of personal data that are masked in the query.
    """

    section: str
    name: str
    settings: PromptSettings
    step: LlmStep
    engine: AnsweredBy
    decoding: Mapping[str, Any]
    mask: tuple[str, ...] = ()

    @cached_property
    def key(self) -> str:
        """Returns the key that tells it from others: what decides the request, the engine, and how answers are read."""
        asked = [self.step.identity(), self.engine.key, dict(self.decoding), list(self.mask)]
        return digest([asked, self.settings.model_dump(exclude=_OF_REQUESTS)])

    @property
    def kind(self) -> str:
        """Returns the kind of a judge's grades."""
        return self.section.partition(".")[2]

    @property
    def context(self) -> DocumentStepSettings:
        """Returns the settings of the documents that it shows."""
        assert isinstance(self.settings, DocumentStepSettings)
        return self.settings

    @cached_property
    def count_tokens(self) -> Callable[[str], int]:
        """Returns the tokens of a context, by the tokenizer of the model that is asked, where it is known."""
        return TokenCounter(self.engine.settings.counted_by).count if self.context.context_tokens is not None else len

    @property
    def rounds(self) -> IterateSettings:
        """Returns the settings of further rounds."""
        assert isinstance(self.settings, IterateSettings)
        return self.settings


def arm_tasks(config: Config, steps: ReadySteps, arm: str, names: Names) -> dict[str, LlmTask]:
    """Returns key of the config -> task of an arm, but those of the judge; `names`: of earlier ones."""
    return {
        section: _task(section, settings, steps.of_results[section], config, arm, names)
        for section, settings in config.steps.items()
    }


def judge_tasks(config: Config, steps: ReadySteps) -> dict[str, LlmTask]:
    """Returns key of the config -> task of the judge, which is the same for all arms, since it measures them."""
    kinds, names = {} if config.judge is None else config.judge.kinds, Names()
    return {
        f"judge.{kind}": _task(f"judge.{kind}", settings, steps.judge[kind], config, kind, names)
        for kind, settings in kinds.items()
    }


def _task(section: str, settings: PromptSettings, ready: ReadyStep, config: Config, asked_for: str, names: Names) -> LlmTask:
    """Returns a task; where its name stands for something else already, it has that of the arm or judgement that asks first."""
    engine = AnsweredBy(ready.engine, ready.engine_identity)
    known = names.setdefault(ready.step.name, {})
    own = f"{ready.step.name} of {asked_for.replace('@', ' ')}" if known else ready.step.name
    name = known.setdefault(digest([ready.identity(), engine.key]), own)
    return LlmTask(section, name, settings, ready.step, engine, ready.decoding, tuple(config.rewrite.guards.mask))

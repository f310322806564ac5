"""The steps of a job that an LLM does after retrieval: their prompts, read from files, and the engines that answer them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.errors import ConfigError, RewriterError
from jobs.config.config import Config
from jobs.job import engine
from jobs.job.rewriting import read_text
from rewriters.engines.settings import EngineSettings
from rewriters.settings import DecodingSettings
from rewriters.steps.reading import READING_VERSION
from rewriters.steps.settings import LlmStepSettings
from rewriters.steps.step import LlmStep, load_step

Resolve = Callable[[EngineSettings], tuple[EngineSettings, dict[str, Any]]]
OF_ANSWERS = frozenset({"query", "context", "documents"})
"""The variables of a prompt for answers."""


@dataclass(frozen=True)
class ReadyStep:
    """A step with the engine that does it; a value that workers are given.

    Attributes:
        step: What is asked.
        engine: Resolved settings.
        engine_identity: By which its completions are known.
        decoding: Passed to the engine.
    """

    step: LlmStep
    engine: EngineSettings
    engine_identity: Mapping[str, Any]
    decoding: Mapping[str, Any]

    def identity(self) -> dict[str, Any]:
        """Returns what decides its results, as JSON values."""
        return {
            "step": self.step.identity(), "engine": dict(self.engine_identity), "decoding": dict(self.decoding),
            "reading": READING_VERSION,
        }  # fmt: skip


def engine_of(config: Config, settings: LlmStepSettings) -> EngineSettings:
    """Returns the engine that does a step: its own, else the common one."""
    found = settings.engine or config.rewrite.engine
    assert found is not None, "checked by the config"
    return found


def ready_step(
    config: Config, settings: LlmStepSettings, where: str, known: frozenset[str], language: str | None, resolve: Resolve
) -> ReadyStep:
    """Returns a step of a config.

    Args:
        config: Of the job.
        settings: Of the step.
        where: Its key in the config.
        known: The variables that its stage fills in.
        language: That it answers in; None: the query's.
        resolve: Returns an engine's settings and identity, as `jobs.job.engine.resolve`.

    Raises:
        ConfigError, RewriterError, RetrieverError: The prompt is wrong, or the engine cannot be had.
    """
    step = _step(settings, where, known, language)
    found, identified_by = resolve(engine_of(config, settings))
    decoding = DecodingSettings.model_validate({**step.decoding, **settings.decoding}).model_dump()
    return ReadyStep(step, found, identified_by, decoding)


def _step(settings: LlmStepSettings, where: str, known: frozenset[str], language: str | None) -> LlmStep:
    try:
        return load_step(settings.prompt, known, f"{where}.prompt", settings.variables, language, read_text)
    except RewriterError as error:
        raise ConfigError(error.code, str(error)) from error


def asked_steps(config: Config) -> dict[str, dict[str, Any]]:
    """Returns key of the config -> what is asked at its step, apart from its engine; raises ConfigError."""
    if config.answer is None:
        return {}
    return {"answer": _step(config.answer, "answer", OF_ANSWERS, config.answer.language).identity()}


def ready_answers(config: Config, resolve: Resolve = engine.resolve) -> ReadyStep | None:
    """Returns how the answers of a config are made; None: it has none. Raises as `ready_step`."""
    if config.answer is None:
        return None
    return ready_step(config, config.answer, "answer", OF_ANSWERS, config.answer.language, resolve)

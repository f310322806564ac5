"""The steps of a job that an LLM does after retrieval: their prompts, read from files, and the engines that answer them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError, RewriterError
from jobs.config.config import Config
from jobs.job import engine
from jobs.job.rewriting import read_text
from jobs.log.judgements import read_answers
from retrievers.kinds import RetrieverSettings
from rewriters.engines.settings import EngineSettings
from rewriters.settings import DecodingSettings
from rewriters.steps.reading import READING_VERSION
from rewriters.steps.settings import HIGHEST_GRADES, LABEL_VARIABLES, DocumentStepSettings, LlmStepSettings
from rewriters.steps.step import LlmStep, load_step

if TYPE_CHECKING:
    from retrievers.web.retriever import Web

LABEL_GRADES = "iterate.labels.grades"
"""Key of the config: the grades by which refined queries are written."""
WEB_SEARCH = "web.search"
"""Key of the config; the name of its searches in costs/, errors/ and web/."""
Resolve = Callable[[EngineSettings], tuple[EngineSettings, dict[str, Any]]]
"""Returns an engine's settings for workers, and its identity."""
VARIABLES = {
    "answer": frozenset({"query", "context", "documents"}),
    "iterate": frozenset({"query", "context", "documents", "tried"}) | LABEL_VARIABLES,
    LABEL_GRADES: frozenset({"query", "context", "document"}),
    "grade.question": frozenset({"query", "context", "rewrites"}),
    "grade": frozenset({"query", "context", "document"}),
    "grade.strips": frozenset({"query", "context", "document"}),
    "web": frozenset({"query", "context"}),
}
"""Key of the config -> the variables of its prompts."""
ANSWER_KEYS = {"grade.question": "question", "grade.strips": "sentences", "web": "query", "iterate": "query"}
"""Key of the config -> the key of the object that its prompt asks for."""
OF_JUDGEMENTS = {
    "relevance": frozenset({"query", "context", "document"}),
    "accuracy": frozenset({"query", "context", "answer", "gold"}),
    "criteria": frozenset({"query", "context", "answer", "documents"}),
}
"""What is judged -> the variables of its prompt."""
GRADE_KEYS = {"relevance": "overall", "accuracy": "accuracy"}
"""What is judged -> the key of an object of grades that is the grade; by criteria each key has one."""


def stage_of(section: str) -> str:
    """Returns the stage, as in costs, that does a step by its key of the config: what grades writes the query to the web."""
    return "grade" if section == "web" else section.partition(".")[0]


@dataclass(frozen=True)
class ReadyStep:
    """A step with the engine that does it; a value that workers are given."""

    step: LlmStep
    engine: EngineSettings  # resolved
    engine_identity: Mapping[str, Any]
    decoding: Mapping[str, Any]

    def identity(self) -> dict[str, Any]:
        """Returns what decides its results, as JSON values."""
        return {
            "step": self.step.identity(), "engine": dict(self.engine_identity), "decoding": dict(self.decoding),
            "reading": READING_VERSION,
        }  # fmt: skip


@dataclass(frozen=True)
class ReadySteps:
    """All steps of a job that an LLM does after retrieval."""

    of_results: Mapping[str, ReadyStep] = field(default_factory=dict)
    """Key of the config -> what is asked there, of all but the judge."""
    judge: Mapping[str, ReadyStep] = field(default_factory=dict)
    """Kind of judgement -> what the judge is asked."""
    gold: str | None = None
    """Digest of the gold answers that answers are judged against; None: there are none."""
    searched: Mapping[str, Any] | None = None
    """The identity of the search engine of `web`; None: there is none."""

    def identity(self) -> dict[str, Any]:
        """Returns what decides their results, by key of the config, as JSON values."""
        values: dict[str, Any] = {key: step.identity() for key, step in self.of_results.items()}
        values |= {"judge": {kind: step.identity() for kind, step in self.judge.items()}} if self.judge else {}
        values |= {} if self.searched is None else {"web_search": dict(self.searched)}
        return values | ({} if self.gold is None else {"gold_answers": self.gold})


def ready_steps(config: Config, resolve: Resolve = engine.resolve) -> ReadySteps:
    """Returns the steps of a config that LLMs do after retrieval.

    Raises:
        ConfigError, RewriterError, RetrieverError: a prompt is wrong, or an engine cannot be had.
    """

    def ready(settings: LlmStepSettings, step: LlmStep) -> ReadyStep:
        common = settings.engine or config.rewrite.engine
        assert common is not None, "checked by the config"
        decoding = DecodingSettings.model_validate({**step.decoding, **settings.decoding}).model_dump()
        return ReadyStep(step, *resolve(common), decoding)

    steps = {key: ready(settings, _asked(settings, key)) for key, settings in config.steps.items()}
    kinds = () if config.judge is None else config.judge.kinds
    judge = {kind: ready(config.judge.step(kind), _judging(config, kind)) for kind in kinds} if config.judge else {}
    gold = config.evaluate.answers if "accuracy" in judge else None
    searched = None if config.web is None else open_search_engine(config.web.search).identity()
    return ReadySteps(steps, judge, None if gold is None else _digest(read_answers(gold, config.evaluate.key)), searched)


def asked_steps(config: Config) -> dict[str, dict[str, Any]]:
    """Returns key of the config -> what is asked at its step, apart from its engine."""
    asked = {key: _asked(settings, key).identity() for key, settings in config.steps.items()}
    for kind in config.judge.kinds if config.judge is not None else ():
        asked[f"judge.{kind}"] = _judging(config, kind).identity()
    return asked


def _asked(settings: LlmStepSettings, key: str) -> LlmStep:
    """Returns what an LLM is asked at a step."""
    step = _loaded(settings, key, VARIABLES[key], getattr(settings, "language", None))
    fault, wanted = "", ANSWER_KEYS.get(key)
    if key in ("grade", LABEL_GRADES):
        fault = _grade_fault(step, "relevance", f"output: {step.output} is no grade; make it grade or grades")
    elif isinstance(settings, DocumentStepSettings) and settings.labels is None and step.variables & LABEL_VARIABLES:
        fault = f"shows documents by label, and {key}.labels is not set; set it, as {{by: llm}}"
    elif wanted is not None and not (key == "iterate" and step.output == "text"):
        if step.output != "object" or wanted not in step.keys:
            fault = f"its answer has no key {wanted}; make it an object with this key"
        elif wanted in step.optional:
            fault = f"its key {wanted} is optional, and is what the step is for; take it out of optional"
    return _checked(step, settings, key, fault)


def _judging(config: Config, kind: str) -> LlmStep:
    """Returns what the judge is asked for one kind."""
    assert config.judge is not None
    where, settings = f"judge.{kind}", config.judge.step(kind)
    step = _loaded(settings, where, OF_JUDGEMENTS[kind], None)
    forms = ("grades",) if kind == "criteria" else ("grade", "grades")
    fault = _grade_fault(step, kind, f"output: {step.output} is not what it needs; make it {' or '.join(forms)}", forms)
    if not fault and step.grades and (wrong := sorted(set(step.grades.values()) - set(range(HIGHEST_GRADES[kind] + 1)))):
        fault = f"grades are from 0 to {HIGHEST_GRADES[kind]}, found {wrong[0]}; correct it"
    return _checked(step, settings, where, fault)


def _loaded(settings: LlmStepSettings, where: str, known: frozenset[str], language: str | None) -> LlmStep:
    try:
        return load_step(settings.prompt, known, f"{where}.prompt", settings.variables, language, read_text)
    except RewriterError as error:
        raise ConfigError(error.code, str(error)) from error


def _grade_fault(step: LlmStep, kind: str, otherwise: str, forms: tuple[str, ...] = ("grade", "grades")) -> str:
    """Returns what is wrong with the answers of a step that grades; empty if nothing is."""
    if step.output not in forms:
        return otherwise
    key = GRADE_KEYS.get(kind)
    return (
        f"its keys lack {key}, which is the grade; add it" if step.output == "grades" and key not in (None, *step.keys) else ""
    )


def _checked(step: LlmStep, settings: LlmStepSettings, where: str, fault: str) -> LlmStep:
    if fault:
        raise ConfigError("prompt", f"{where}.prompt: {settings.prompt}: {fault}")
    return step


def open_search_engine(settings: RetrieverSettings) -> Web:
    """Returns the search engine of `web.search`; raises RetrieverError if its address or key is not there."""
    from retrievers.web.retriever import Web  # here, since most jobs have none
    from retrievers.web.settings import WebSettings

    assert isinstance(settings, WebSettings), "checked by the config"
    return Web(WEB_SEARCH, settings)


def _digest(answers: Mapping[str, list[str]]) -> str:
    return hashlib.sha256(json.dumps(answers, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]

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
"""Of the config: the grades by which refined queries are written."""
WEB_SEARCH = "web.search"
"""Of the config; the name of its searches in costs/, errors/ and web/."""
Resolve = Callable[[EngineSettings], tuple[EngineSettings, dict[str, Any]]]
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


@dataclass(frozen=True)
class ReadySteps:
    """All steps of a job that an LLM does after retrieval.

    Attributes:
        of_results: Key of the config -> what is asked there, of all but the judge.
        judge: What the judge is asked, by the key of its prompt -> how.
        gold: What tells the gold answers that answers are judged against; None: there are none.
        searched: The identity of the search engine of `web`; None: there is none.
    """

    of_results: Mapping[str, ReadyStep] = field(default_factory=dict)
    judge: Mapping[str, ReadyStep] = field(default_factory=dict)
    gold: str | None = None
    searched: Mapping[str, Any] | None = None

    def identity(self) -> dict[str, Any]:
        """Returns what decides their results, by key of the config, as JSON values."""
        found: dict[str, Any] = {key: one.identity() for key, one in self.of_results.items()}
        found |= {"judge": {kind: one.identity() for kind, one in self.judge.items()}} if self.judge else {}
        found |= {} if self.searched is None else {"web_search": dict(self.searched)}
        return found | ({} if self.gold is None else {"gold_answers": self.gold})


def _ready(config: Config, settings: LlmStepSettings, step: LlmStep, resolve: Resolve) -> ReadyStep:
    found, identified_by = resolve(engine_of(config, settings))
    decoding = DecodingSettings.model_validate({**step.decoding, **settings.decoding}).model_dump()
    return ReadyStep(step, found, identified_by, decoding)


def asked_steps(config: Config) -> dict[str, dict[str, Any]]:
    """Returns key of the config -> what is asked at its step, apart from its engine; raises ConfigError."""
    found = {key: _asked(settings, key).identity() for key, settings in config.steps.items()}
    for kind in config.judge.kinds if config.judge is not None else ():
        found[f"judge.{kind}"] = _judging(config, kind).identity()
    return found


def _step(settings: LlmStepSettings, where: str, known: frozenset[str], language: str | None) -> LlmStep:
    try:
        return load_step(settings.prompt, known, f"{where}.prompt", settings.variables, language, read_text)
    except RewriterError as error:
        raise ConfigError(error.code, str(error)) from error


def _asked(settings: LlmStepSettings, key: str) -> LlmStep:
    """Returns what an LLM is asked at a step; raises ConfigError."""
    step = _step(settings, key, VARIABLES[key], getattr(settings, "language", None))
    words = ""
    if key in ("grade", LABEL_GRADES):
        if step.output not in ("grade", "grades"):
            words = f"output: {step.output} is no grade; make it grade or grades"
        elif step.output == "grades" and GRADE_KEYS["relevance"] not in step.keys:
            words = f"its keys lack {GRADE_KEYS['relevance']}, which is the grade; add it"
    elif isinstance(settings, DocumentStepSettings) and settings.labels is None and step.variables & LABEL_VARIABLES:
        words = f"shows documents by label, and {key}.labels is not set; set it, as {{by: llm}}"
    elif key in ANSWER_KEYS and not (key == "iterate" and step.output == "text"):
        wanted = ANSWER_KEYS[key]
        if step.output != "object" or wanted not in step.keys:
            words = f"its answer has no key {wanted}; make it an object with this key"
        elif wanted in step.optional:
            words = f"its key {wanted} is optional, and is what the step is for; take it out of optional"
    if words:
        raise ConfigError("prompt", f"{key}.prompt: {settings.prompt}: {words}")
    return step


def _judging(config: Config, kind: str) -> LlmStep:
    """Returns what the judge is asked for one kind; raises ConfigError."""
    assert config.judge is not None
    where, settings = f"judge.{kind}", config.judge.step(kind)
    step = _step(settings, where, OF_JUDGEMENTS[kind], None)
    forms = ("grades",) if kind == "criteria" else ("grade", "grades")
    words = ""
    if step.output not in forms:
        words = f"output: {step.output} is not what it needs; make it {' or '.join(forms)}"
    elif step.output == "grades" and GRADE_KEYS.get(kind) not in (None, *step.keys):
        words = f"its keys lack {GRADE_KEYS[kind]}, which is the grade; add it"
    elif step.grades and (wrong := sorted(set(step.grades.values()) - set(range(HIGHEST_GRADES[kind] + 1)))):
        words = f"grades are from 0 to {HIGHEST_GRADES[kind]}, found {wrong[0]}; correct it"
    if words:
        raise ConfigError("prompt", f"{where}.prompt: {settings.prompt}: {words}")
    return step


def ready_steps(config: Config, resolve: Resolve = engine.resolve) -> ReadySteps:
    """Returns the steps of a config that LLMs do after retrieval.

    `resolve` returns an engine's settings and identity, as `jobs.job.engine.resolve`.

    Raises:
        ConfigError, RewriterError, RetrieverError: A prompt is wrong, or an engine cannot be had.
    """
    found = {key: _ready(config, one, _asked(one, key), resolve) for key, one in config.steps.items()}
    judge = {}
    for kind in config.judge.kinds if config.judge is not None else ():
        assert config.judge is not None
        judge[kind] = _ready(config, config.judge.step(kind), _judging(config, kind), resolve)
    gold = config.evaluate.answers if "accuracy" in judge else None
    searched = None if config.web is None else open_search_engine(config.web.search).identity()
    return ReadySteps(found, judge, None if gold is None else _digest(read_answers(gold, config.evaluate.key)), searched)


def open_search_engine(settings: RetrieverSettings) -> Web:
    """Returns the search engine of `web.search`; raises RetrieverError if its address or key is not there."""
    from retrievers.web.retriever import Web  # here, since most jobs have none
    from retrievers.web.settings import WebSettings

    assert isinstance(settings, WebSettings), "checked by the config"
    return Web(WEB_SEARCH, settings)


def _digest(answers: Mapping[str, list[str]]) -> str:
    return hashlib.sha256(json.dumps(answers, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]

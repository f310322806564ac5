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
from jobs.job.rewrite import read_text
from jobs.log.judgements import read_answers
from retrievers.kinds import RetrieverSettings
from rewriters.engines.settings import EngineSettings
from rewriters.settings import DecodingSettings
from rewriters.steps.results import READING_VERSION
from rewriters.steps.settings import HIGHEST_GRADES, LABEL_VARIABLES, DocumentStepSettings, LlmStepSettings
from rewriters.steps.step import LlmStep, load_step

if TYPE_CHECKING:
    from retrievers.web.retriever import Web

LABEL_GRADES = "iterate.labels.grades"  # key of the config: the grades by which refined queries are written
_JUDGE = "judge."  # begins the keys of what a judge is asked
WEB_SEARCH = "web.search"  # key of the config; the name of its searches in costs/, errors/ and web/
Resolve = Callable[[EngineSettings], tuple[EngineSettings, dict[str, Any]]]  # -> settings for workers, and their identity
VARIABLES = {
    "answer": frozenset({"query", "context", "documents"}),
    "iterate": frozenset({"query", "context", "documents", "tried"}) | LABEL_VARIABLES,
    LABEL_GRADES: frozenset({"query", "context", "document"}),
    "grade.question": frozenset({"query", "context", "rewrites"}),
    "grade": frozenset({"query", "context", "document"}),
    "grade.strips": frozenset({"query", "context", "document"}),
    "web": frozenset({"query", "context"}),
    "judge.relevance": frozenset({"query", "context", "document"}),
    "judge.accuracy": frozenset({"query", "context", "answer", "gold"}),
    "judge.criteria": frozenset({"query", "context", "answer", "documents"}),
}
"""Key of the config -> the variables of its prompts."""
ANSWER_KEYS = {"grade.question": "question", "grade.strips": "sentences", "web": "query", "iterate": "query"}
"""Key of the config -> the key of the object that its prompt asks for."""
GRADE_KEYS = {"relevance": "overall", "accuracy": "accuracy"}
"""Kind of judgement -> the key of an object of grades that is the grade; by criteria each key has one."""


@dataclass(frozen=True)
class ReadyStep:
    """A step with the engine that does it; a value that workers are given."""

    step: LlmStep
    engine: EngineSettings  # resolved
    engine_identity: Mapping[str, Any]
    decoding: Mapping[str, Any]

    def identity(self) -> dict[str, Any]:
        return {
            "step": self.step.identity(), "engine": dict(self.engine_identity), "decoding": dict(self.decoding),
            "reading": READING_VERSION,
        }  # fmt: skip


@dataclass(frozen=True)
class ReadySteps:
    """All steps of a job that an LLM does after retrieval."""

    of_results: Mapping[str, ReadyStep] = field(default_factory=dict)  # by key of the config, all but the judge
    judge: Mapping[str, ReadyStep] = field(default_factory=dict)  # by kind of judgement
    gold: str | None = None  # digest of the gold answers that answers are judged against
    searched: Mapping[str, Any] | None = None  # the identity of the search engine of `web`

    def identity(self) -> dict[str, Any]:
        values: dict[str, Any] = {key: step.identity() for key, step in self.of_results.items()}
        values |= {"judge": {kind: step.identity() for kind, step in self.judge.items()}} if self.judge else {}
        values |= {} if self.searched is None else {"web_search": dict(self.searched)}
        return values | ({} if self.gold is None else {"gold_answers": self.gold})


def ready_steps(config: Config, resolve: Resolve = engine.resolve) -> ReadySteps:
    """Returns the steps of a config that LLMs do after retrieval.

    Raises:
        ConfigError, RewriterError, RetrieverError: a prompt is wrong, or an engine cannot be had.
    """
    steps: dict[str, ReadyStep] = {}
    for key, (step, settings) in read_steps(config).items():
        common = settings.engine or config.rewrite.engine
        assert common is not None, "checked by the config"
        decoding = DecodingSettings.model_validate({**step.decoding, **settings.decoding}).model_dump()
        steps[key] = ReadyStep(step, *resolve(common), decoding)
    judge = {key.removeprefix(_JUDGE): steps.pop(key) for key in list(steps) if key.startswith(_JUDGE)}
    gold = config.evaluate.answers if "accuracy" in judge else None
    searched = None if config.web is None else open_search_engine(config.web.search).identity()
    if gold is not None:
        answers = json.dumps(read_answers(gold, config.evaluate.key), sort_keys=True, ensure_ascii=False)
        gold = hashlib.sha256(answers.encode()).hexdigest()[:16]
    return ReadySteps(steps, judge, gold, searched)


def read_steps(config: Config) -> dict[str, tuple[LlmStep, LlmStepSettings]]:
    """Returns key of the config -> what is asked at its step, and its settings; raises ConfigError for a wrong prompt."""
    judge = config.judge
    settings = config.steps | ({f"{_JUDGE}{kind}": judge.step(kind) for kind in judge.kinds} if judge is not None else {})
    return {key: (_asked(one, key), one) for key, one in settings.items()}


def _asked(settings: LlmStepSettings, key: str) -> LlmStep:
    language = getattr(settings, "language", None)
    try:
        step = load_step(settings.prompt, VARIABLES[key], f"{key}.prompt", settings.variables, language, read_text)
    except RewriterError as error:
        raise ConfigError(error.code, str(error)) from error
    if fault := _fault(step, settings, key):
        raise ConfigError("prompt", f"{key}.prompt: {settings.prompt}: {fault}")
    return step


def _fault(step: LlmStep, settings: LlmStepSettings, key: str) -> str | None:
    """Returns the reason why a prompt does not serve its step, with the remedy; None: it does."""
    wanted = ANSWER_KEYS.get(key)
    if key in ("grade", LABEL_GRADES):
        return _grade_fault(step, "relevance")
    if key.startswith(_JUDGE):
        highest = HIGHEST_GRADES[kind := key.removeprefix(_JUDGE)]
        wrong = sorted(set(step.grades.values()) - set(range(highest + 1)))
        return _grade_fault(step, kind) or (f"grades are from 0 to {highest}, found {wrong[0]}; correct it" if wrong else None)
    if isinstance(settings, DocumentStepSettings) and settings.labels is None and step.variables & LABEL_VARIABLES:
        return f"shows documents by label, and {key}.labels is not set; set it, as {{by: llm}}"
    if wanted is not None and not (key == "iterate" and step.output == "text"):
        if step.output != "object" or wanted not in step.keys:
            return f"its answer has no key {wanted}; make it an object with this key"
        if wanted in step.optional:
            return f"its key {wanted} is optional, and is what the step is for; take it out of optional"
    return None


def _grade_fault(step: LlmStep, kind: str) -> str | None:
    forms, grade = ("grades",) if kind == "criteria" else ("grade", "grades"), GRADE_KEYS.get(kind)
    if step.output not in forms:
        return f"output: {step.output} is not a grade; make it {' or '.join(forms)}"
    lacks = step.output == "grades" and grade not in (None, *step.keys)
    return f"its keys lack {grade}, which is the grade; add it" if lacks else None


def open_search_engine(settings: RetrieverSettings) -> Web:
    """Returns the search engine of `web.search`; raises RetrieverError if its address or key is missing."""
    from retrievers.web.retriever import Web  # here, since most jobs have none
    from retrievers.web.settings import WebSettings

    assert isinstance(settings, WebSettings), "checked by the config"
    return Web(WEB_SEARCH, settings)

"""What a judge, an LLM, grades: the same for all arms, since it measures them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.chain.arms.opened import AnsweredBy
from jobs.chain.arms.shared_work import SharedWork
from jobs.config.config import Config
from jobs.job.steps import ReadySteps
from rewriters.steps.settings import NuggetSettings
from rewriters.steps.step import LlmStep

RELEVANCE, ACCURACY, CRITERIA, NUGGETS = "relevance", "accuracy", "criteria", "nuggets"


@dataclass(frozen=True)
class Judging:
    """One kind of judgement.

    Attributes:
        kind: What is judged.
        name: In costs and errors: that of the prompt's file, with the kind where another kind has a file of this name.
        step: What the judge is asked.
        engine: The judge.
        decoding: Passed to the engine.
        mask: Kinds of personal data that are masked in the query.
        documents: How many of the first results of an arm are judged; 0: results are not.
        document_chars: The most characters of a document; None: no limit.
        samples: How often the same is asked.
    """

    kind: str
    name: str
    step: LlmStep
    engine: AnsweredBy
    decoding: Mapping[str, Any]
    mask: tuple[str, ...] = ()
    documents: int = 0
    document_chars: int | None = None
    samples: int = 1


@dataclass(frozen=True)
class NuggetJudging:
    """How nuggets are made and found in answers.

    Attributes:
        create: Makes them from documents that are judged relevant; asked once.
        importance: Tells the vital ones; asked once.
        support: Finds them in an answer; its samples are those of the judge.
        settings: How many, and how many at once.
    """

    create: Judging
    importance: Judging
    support: Judging
    settings: NuggetSettings

    def most_requests(self, documents: int, answers: int) -> int:
        """Returns the most requests for a query with so many judged documents, in so many answers."""
        parts = math.ceil(self.settings.most / self.settings.nuggets_at_once)
        made = math.ceil(documents / self.settings.documents_at_once) + parts
        return made + answers * parts * self.support.samples


def judging_of(config: Config, steps: ReadySteps) -> tuple[Judging, ...]:
    """Returns what the judge of a config grades, nuggets apart."""
    return tuple(_judging(config, steps, kind) for kind in steps.judge if not kind.startswith(NUGGETS))


def nuggets_of(config: Config, steps: ReadySteps) -> NuggetJudging | None:
    """Returns how the judge of a config makes and finds nuggets; None: it does not."""
    settings = None if config.judge is None else config.judge.nuggets
    if settings is None:
        return None
    create, importance, support = (
        _judging(config, steps, name) for name in (NUGGETS, f"{NUGGETS}.importance", f"{NUGGETS}.support")
    )
    return NuggetJudging(create, importance, support, settings)


def _judging(config: Config, steps: ReadySteps, kind: str) -> Judging:
    assert config.judge is not None, "it judges"
    one, relevance = steps.judge[kind], config.judge.relevance if kind == RELEVANCE else None
    shown = (0, None) if relevance is None else (relevance.documents, relevance.document_chars)
    engine, named = AnsweredBy(one.engine, one.engine_identity), [other.step.name for other in steps.judge.values()]
    name = one.step.name if named.count(one.step.name) == 1 else f"{one.step.name} of {kind}"
    return Judging(kind, name, one.step, engine, one.decoding, tuple(config.rewrite.guards.mask), *shown, config.judge.samples)


def most_judgements(work: SharedWork) -> int:
    """Returns how often the judge is asked about a query, at most: arms may have other results."""
    answering = sum(one.generation is not None for one in work.answers)
    documents = sum(one.documents for one in work.judging) * len(work.answers)
    asked = sum((one.documents * len(work.answers) or answering) * one.samples for one in work.judging)
    return asked + (0 if work.nuggets is None else work.nuggets.most_requests(documents, answering))

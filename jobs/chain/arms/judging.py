"""What a judge, an LLM, grades: the same for all arms, since it measures them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.chain.arms.opened import AnsweredBy
from jobs.config.config import Config
from jobs.job.steps import ReadySteps
from rewriters.steps.step import LlmStep

RELEVANCE, ACCURACY, CRITERIA = "relevance", "accuracy", "criteria"


@dataclass(frozen=True)
class Judging:
    """One kind of judgement.

    Attributes:
        kind: What is judged.
        step: What the judge is asked.
        engine: The judge.
        decoding: Passed to the engine.
        mask: Kinds of personal data that are masked in the query.
        documents: How many of the first results of an arm are judged; 0: results are not.
        document_chars: The most characters of a document; None: no limit.
        samples: How often the same is asked.
    """

    kind: str
    step: LlmStep
    engine: AnsweredBy
    decoding: Mapping[str, Any]
    mask: tuple[str, ...] = ()
    documents: int = 0
    document_chars: int | None = None
    samples: int = 1


def judging_of(config: Config, steps: ReadySteps) -> tuple[Judging, ...]:
    """Returns what the judge of a config grades."""
    found = []
    for kind, one in steps.judge.items():
        settings = config.judge.relevance if config.judge is not None and kind == RELEVANCE else None
        shown = (0, None) if settings is None else (settings.documents, settings.document_chars)
        engine, samples = AnsweredBy(one.engine, one.engine_identity), 1 if config.judge is None else config.judge.samples
        found.append(Judging(kind, one.step, engine, one.decoding, tuple(config.rewrite.guards.mask), *shown, samples))
    return tuple(found)

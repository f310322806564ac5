"""The judgements of a judge, an LLM: the same for all arms, since it measures them."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.chain.arms.generations import LlmTask
from jobs.chain.arms.opened import AnsweredBy
from jobs.chain.arms.shared_work import SharedWork
from jobs.config.config import Config
from jobs.job.steps import ReadySteps

RELEVANCE, ACCURACY, CRITERIA = "relevance", "accuracy", "criteria"


@dataclass(frozen=True)
class Judging(LlmTask):
    """One kind of judgement.

    Attributes:
        name: In costs and errors: that of the prompt's file, with the kind where another kind has a file of this name.
        kind: What is judged.
        documents: How many of the first results of an arm are judged; 0: results are not.
        document_chars: The most characters of a document; None: no limit.
    """

    kind: str = RELEVANCE
    documents: int = 0
    document_chars: int | None = None


def judging_of(config: Config, steps: ReadySteps, kind: str) -> Judging:
    """Returns what the judge of a config grades of one kind."""
    assert config.judge is not None, "it judges"
    one, relevance = steps.judge[kind], config.judge.relevance if kind == RELEVANCE else None
    shown = (0, None) if relevance is None else (relevance.documents, relevance.document_chars)
    engine, named = AnsweredBy(one.engine, one.engine_identity), [other.step.name for other in steps.judge.values()]
    name = one.step.name if named.count(one.step.name) == 1 else f"{one.step.name} of {kind}"
    mask = tuple(config.rewrite.guards.mask)
    return Judging(name, config.judge.step(kind), one.step, engine, one.decoding, mask, kind, *shown)


def most_judgements(work: SharedWork) -> int:
    """Returns how often the judge is asked about a query, at most: arms may have other results."""
    answering = sum(one.generation is not None for one in work.answers)
    return sum(one.documents * len(work.answers) or answering for one in work.judging)

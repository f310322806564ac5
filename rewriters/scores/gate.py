"""The gate: which queries are rewritten at all, by what a retriever finds for the original alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from pydantic import Field, model_validator

from cluster.settings import Settings
from rewriters.scores.thresholds import Threshold

GATE_VERSION = 1
"""Raised when the same scores would be decided upon otherwise; part of a run's fingerprint."""
PREFIX = "gate: "  # of the reason for a choice


class GateSettings(Settings):
    """No rewrites of queries of which a retriever is sure: what it needs for that is all that is set here."""

    by: Annotated[str, Field(min_length=1)]
    """The retriever whose list of the original tells."""
    below: Threshold | None = None
    """It is sure of a query whose best score is at least this; null: whatever the best score is."""
    lead: Threshold | None = None
    """It is sure of a query whose best score leads the second by at least this share of the best, (best - second) / best; a
    single hit leads by 1. null: whatever the lead is."""

    @model_validator(mode="after")
    def _decides(self) -> GateSettings:
        if self.below is None and self.lead is None:
            raise ValueError("neither below nor lead is set, so that it would let no query be rewritten; set one of them")
        if isinstance(self.lead, float) and not 0 < self.lead <= 1:
            raise ValueError(f"lead: {self.lead:g} is no share of the best score; set one above 0, up to 1")
        return self


class Gated(NamedTuple):
    """What the gate says of a query.

    Attributes:
        sure: Whether the retriever is sure of it, so that it is not rewritten.
        reason: Why, in words.
    """

    sure: bool
    reason: str


def best_of(scores: Sequence[float]) -> float:
    """Returns the best score of a list, best first; minus infinity without any."""
    return scores[0] if len(scores) else float("-inf")


def lead_of(scores: Sequence[float]) -> float:
    """Returns by which share of the best score it leads the second one of a list, best first; minus infinity without any."""
    if len(scores) < 2:
        return 1.0 if len(scores) else float("-inf")
    return (scores[0] - scores[1]) / abs(scores[0]) if scores[0] else 0.0


def decide(by: str, scores: Sequence[float], below: float | None, lead: float | None) -> Gated:
    """Returns what the gate says of a query.

    Args:
        by: Name of the retriever.
        scores: Of its list of the original, best first.
        below: The least best score of which it is sure; None: any.
        lead: The least lead of which it is sure; None: any.
    """
    if not len(scores):
        return Gated(False, f"{PREFIX}{by} finds nothing")
    wanted = (("best score", best_of(scores), below), ("lead", lead_of(scores), lead))
    judged = [(name, value, least, value >= least) for name, value, least in wanted if least is not None]
    sure = all(reached for *_, reached in judged)
    words = [
        f"{name} {value:.4g} ({'at least' if reached else 'below'} {least:.4g})"
        for name, value, least, reached in judged
        if sure or not reached
    ]
    return Gated(sure, f"{PREFIX}{by} is {'sure' if sure else 'not sure'}: {', '.join(words)}")

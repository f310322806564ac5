"""The gate: which queries are rewritten at all, by what a retriever finds for the original alone."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from pydantic import Field

from cluster.settings import Settings

GATE_VERSION = 1  # raised when the same scores would be decided upon otherwise; part of a run's fingerprint
PREFIX = "gate: "  # of the reason for a choice


class GateSettings(Settings):
    """Skips rewriting of queries that a retriever is sure of."""

    by: Annotated[str, Field(min_length=1)]
    """Retriever whose list of the original decides."""
    below: float
    """Queries with a best score of at least this are not rewritten."""


class Gated(NamedTuple):
    """Verdict of the gate on a query."""

    sure: bool  # whether the retriever is sure of it, so that it is not rewritten
    reason: str  # why, in words


def decide(by: str, scores: Sequence[float], below: float) -> Gated:
    """Returns the gate's verdict on a query by the scores, best first, of a retriever's list of the original."""
    if not len(scores):
        return Gated(False, f"{PREFIX}{by} finds nothing")
    sure = scores[0] >= below
    reason = f"best score {scores[0]:.4g} ({'at least' if sure else 'below'} {below:.4g})"
    return Gated(sure, f"{PREFIX}{by} is {'sure' if sure else 'not sure'}: {reason}")

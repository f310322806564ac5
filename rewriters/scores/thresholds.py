"""Thresholds of scores: numbers, or quantiles of the scores that a sample of the job's queries has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from cluster.settings import FORM, Settings


class Quantile(Settings):
    """A threshold that a share of the queries is below. It is taken once, when the job is planned, and kept with the plan."""

    quantile: Annotated[float, Field(gt=0, lt=1)]
    """The share of the sample's queries that are below the threshold."""
    sample: Annotated[int, Field(ge=10)] = 500
    """Distinct queries of the log that are searched to take it; all where there are fewer."""
    seed: int = 0
    """Of the draw of the sample."""


def _form(value: Any) -> str:
    return f"{FORM}{'quantile' if isinstance(value, dict | Quantile) else 'number'}"


# with a discriminator pydantic reports the errors of one form only
Threshold = Annotated[
    Annotated[float, Tag(f"{FORM}number")] | Annotated[Quantile, Tag(f"{FORM}quantile")], Discriminator(_form)
]


def at_quantile(values: Sequence[float], share: float) -> float:
    """Returns the value that a share of the values is below, the ones that equal it apart.

    Where that would be minus infinity, the value of a query without hits, it is the lowest other one, or 0 without any: queries
    without hits are below any threshold.
    """
    ordered = sorted(values)
    found = ordered[min(len(ordered) - 1, math.floor(share * len(ordered) + 1e-9))] if ordered else 0.0
    return found if math.isfinite(found) else next(filter(math.isfinite, ordered), 0.0)


def words_of(threshold: float | Quantile) -> str:
    """Returns a threshold as the config has it, in words."""
    if isinstance(threshold, Quantile):
        return f"the {threshold.quantile:g} quantile of {threshold.sample:,} queries"
    return f"{threshold:g}"

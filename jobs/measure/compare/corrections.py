"""Corrections of tests that are made together: those of arms with a question of their own, and those of arms that explore."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from jobs.measure.arrays import Floats
from jobs.measure.power import detectable
from jobs.measure.significance import better_or_worse, false_discovery_rates, holm

QUESTIONS = ("always", "arms", "subsets")  # families that are adjusted together, by Holm
GRID, SAMPLES = "grid", "samples"


class MeanTest(Protocol):
    """A test of several means against zero: of differences on one set, or over several."""

    @property
    def mean(self) -> Floats:
        """Returns (series,)."""

    @property
    def error(self) -> Floats:
        """Returns (series,): standard errors."""

    @property
    def low(self) -> Floats:
        """Returns (series,): lower ends of the intervals."""

    @property
    def high(self) -> Floats:
        """Returns (series,): upper ends."""

    @property
    def p(self) -> Floats:
        """Returns (series,): two-sided."""

    @property
    def freedom(self) -> Floats:
        """Returns (series,): degrees of freedom."""


class Corrected:
    """A comparison whose p is corrected with others: in one way of the two, or in none."""

    difference: float
    p_holm: float | None
    q: float | None
    within_noise: bool
    """Whether the two are nearer to each other than the judge's noise: then it does not order them."""

    @property
    def corrected(self) -> float | None:
        """Returns the p that decides: by Holm, or the q-value by Benjamini-Hochberg in a grid; None where neither is known."""
        found = self.q if self.p_holm is None else self.p_holm
        return None if found is None or math.isnan(found) else found

    @property
    def deciding(self) -> float | None:
        """Returns `corrected`; None where the judge does not order the two."""
        return None if self.within_noise else self.corrected

    @property
    def verdict(self) -> str | None:
        """Returns better, worse or None, by the corrected test."""
        return better_or_worse(self.difference, self.deciding)


def adjusted(p: Floats, questions: Sequence[int], grid: Sequence[int]) -> tuple[dict[int, float], dict[int, float]]:
    """Returns place -> p by Holm, and place -> q; without those where all keys differ by the same, which are no tests.

    Args:
        p: of all comparisons by one measure; NaN is no test.
        questions: places of those with a question of their own.
        grid: places of those that explore.
    """
    return _adjusted(p, questions, holm), _adjusted(p, grid, false_discovery_rates)


def seen_from(tests: Sequence[MeanTest], *corrected: Mapping[int, float]) -> dict[int, float]:
    """Returns place -> the smallest difference that its test finds, of those that are corrected (`jobs/measure/power.py`).

    Args:
        tests: of all comparisons by one measure, one after the other.
        corrected: of `adjusted`: the places that are corrected together.
    """
    if not tests:
        return {}
    error, freedom = (np.concatenate([getattr(one, name) for one in tests]) for name in ("error", "freedom"))
    found: dict[int, float] = {}
    for places in map(list, corrected):
        sizes = detectable(error[places], freedom[places], len(places))
        found |= {place: size for place, size in zip(places, sizes, strict=True) if size is not None}
    return found


def _adjusted(p: Floats, chosen: Sequence[int], method: Callable[[Floats], Floats]) -> dict[int, float]:
    corrected = zip(chosen, method(p[list(chosen)]).tolist(), strict=True)
    return {place: one for place, one in corrected if not np.isnan(one)}

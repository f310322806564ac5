"""Population stability index (PSI): how far the shares of bins have moved from one night to another.

PSI is the sum over the bins of (p - q) ln(p / q), where q and p are the shares of before and after. Credit scoring reads it by
two limits (Siddiqi, Credit Risk Scorecards, 2006): below .1 nothing to speak of, from .25 on a shift. By itself that marks
nights of few texts, whose shares move by chance: without any drift, PSI / (1 / n + 1 / m) is about chi-square with a degree of
freedom less than there are bins (Yurdakul, Statistical Properties of Population Stability Index, 2018). So a shift is marked
only where chance alone exceeds its PSI once in a thousand comparisons, at most.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

MODERATE, SHIFT = 0.1, 0.25
CHANCE = 0.001
"""Of how many comparisons without any drift chance alone exceeds `Stability.by_chance`."""
ADDED = 0.5  # to the count of each bin, so that one that is empty on one side has a logarithm


@dataclass(frozen=True)
class Stability:
    """The PSI of two distributions."""

    psi: float
    by_chance: float
    """What chance alone exceeds in `CHANCE` of the comparisons."""

    @property
    def level(self) -> str:
        """Returns 'shift', 'moderate', or '' where nothing has moved but by chance."""
        if self.psi <= self.by_chance or self.psi < MODERATE:
            return ""
        return "shift" if self.psi >= SHIFT else "moderate"


def stability(before: Mapping[str, int], after: Mapping[str, int]) -> Stability | None:
    """Returns the PSI of the counts of bins, over those that either has; None where one has no counts.

    To each count `ADDED` is added first.
    """
    from scipy.stats import chi2

    bins = [name for name in {**before, **after} if before.get(name) or after.get(name)]
    n, m = (sum(of.values()) for of in (before, after))
    if not n or not m:
        return None
    psi = 0.0
    for name in bins:
        q, p = ((of.get(name, 0) + ADDED) / (total + ADDED * len(bins)) for of, total in ((before, n), (after, m)))
        psi += (p - q) * math.log(p / q)
    chance = float(chi2.ppf(1 - CHANCE, len(bins) - 1)) * (1 / n + 1 / m) if len(bins) > 1 else 0.0
    return Stability(psi, chance)

"""What a comparison of an ablation's arms holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from jobs.compare.frame import Frame
from jobs.compare.slices import Slice
from jobs.evaluate.looked import Looked

QUESTIONS = ("always", "arms", "subsets")  # families that are adjusted together, by Holm
GRID, SAMPLES = "grid", "samples"


@dataclass(frozen=True)
class Difference:
    """One arm to the baseline by one measure, over the counted keys; the baseline to itself, too.

    NaN where it is unknown: intervals and p-values with fewer than two clusters.
    """

    arm: str
    measure: str
    mean: float
    weighted_mean: float
    """Weighted by traffic (`Frame.weights`)."""
    condensed_mean: float
    """Of condensed lists."""
    difference: float
    """Mean difference to the baseline."""
    low: float
    """Lower end of its 95 % interval: Student's t over clusters."""
    high: float
    weighted_difference: float
    """Difference of the traffic-weighted means."""
    condensed_difference: float
    """Difference of the condensed means."""
    effect: float
    """Cohen's d_z: the mean difference over the standard deviation of the differences."""
    p: float
    """Two-sided paired t-test over clusters, the primary test."""
    p_randomised: float
    """Two-sided randomisation test over clusters, its check."""
    p_holm: float | None
    """`p` adjusted within the family of `QUESTIONS`; None for the baseline and arms outside."""
    q: float | None
    """False discovery rate within the grid; None for other arms."""
    p_equivalent: float
    """The greater p of the two one-sided tests that the difference is within `min_effect`."""
    wins: int
    """Keys of which the arm's value is higher."""
    ties: int
    losses: int
    looked: Looked | None
    """How deep the measure looked, where the arm's lists were cut above its depth; None: all lists are whole down to it."""
    uneven: bool
    """Whether lists of the arm and of the baseline end at different depths above that of the measure, one of them cut: then the
    difference and its tests are of the cuts, too."""
    needed: int | None
    """Keys, clustered as these, with which the t-test finds this difference with a power of 80 % at .05; None: no number."""

    @property
    def adjusted(self) -> float:
        """Returns the p that decides: adjusted within the arm's family, else NaN."""
        return next((p for p in (self.p_holm, self.q) if p is not None), math.nan)


@dataclass(frozen=True)
class Comparison:
    """All arms against one of them; without differences where nothing is measured."""

    frame: Frame
    baseline: str
    min_effect: float
    families: dict[str, str]
    """Arm -> always, arms, grid, subsets or samples."""
    oracles: frozenset[str]
    """Arms that are bounds: they choose by the judgements."""
    differences: tuple[Difference, ...]
    """By arm, then measure, in the frame's order."""
    slices: tuple[Slice, ...]
    notes: tuple[str, ...]
    """What the figures include, leave out and assume; a sentence each."""

    @cached_property
    def by_arm(self) -> dict[tuple[str, str], Difference]:
        """Returns (arm, measure) -> difference."""
        return {(one.arm, one.measure): one for one in self.differences}

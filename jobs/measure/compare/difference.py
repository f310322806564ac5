"""What a comparison of an ablation's arms holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from jobs.measure.compare.slices import Slice
from jobs.measure.frame import Frame
from jobs.measure.measured_depth import Looked

QUESTIONS = ("always", "arms", "subsets")  # families that are adjusted together, by Holm
GRID, SAMPLES = "grid", "samples"
PART = "§"  # after the name of an arm that reads a part of a joint answer


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
    weighted_low: float
    """Lower end of its 95 % interval, over clusters."""
    weighted_high: float
    weighted_p: float
    """Two-sided test of it over clusters; in no family."""
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
    within_noise: bool = False
    """Whether the arm is nearer to the baseline than the judge's noise (`Frame.noise`): then the judge does not order them."""

    @property
    def corrected(self) -> float | None:
        """Returns the p that decides: by Holm, or the q-value by Benjamini-Hochberg in a grid; None where neither is known."""
        found = self.q if self.p_holm is None else self.p_holm
        return None if found is None or math.isnan(found) else found


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
    parts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Arms that read a part of the answer to a joint request -> its strategies."""
    same_as: Mapping[str, str] = field(default_factory=dict)
    """Arms that are an earlier arm under another name -> that arm."""
    also: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Arm -> further names of it in the grid or the subsets, which have no rows."""

    def named(self, arm: str) -> str:
        """Returns the name of an arm with its mark, if it has one."""
        return f"{arm} {PART}" if arm in self.parts else arm

    @property
    def untested(self) -> frozenset[str]:
        """Returns the arms that are the baseline, or an arm that is tested already, under another name."""
        first = self.same_as.get(self.baseline, self.baseline)
        of_baseline = {first, *(arm for arm, other in self.same_as.items() if other == first)}
        return frozenset((of_baseline | set(self.same_as)) - {self.baseline})

    @property
    def warning(self) -> str | None:
        """Returns why nothing was measured, in one line; None if something was."""
        return self.frame.warning

    @cached_property
    def by_arm(self) -> dict[tuple[str, str], Difference]:
        """Returns (arm, measure) -> difference."""
        return {(one.arm, one.measure): one for one in self.differences}

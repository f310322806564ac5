"""What a comparison of an ablation's arms holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from jobs.measure.compare.corrections import Corrected
from jobs.measure.compare.pairs import ArmPair
from jobs.measure.compare.slices import Slice
from jobs.measure.frame import Frame

PART = "§"  # after the name of an arm that reads a part of a joint answer


@dataclass(frozen=True)
class Difference(Corrected):
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
    needed: int | None
    """Keys, clustered as these, with which the t-test finds this difference with a power of 80 % at .05; None: no number."""
    detectable: float | None = None
    """Smallest true difference that the test finds with a power of 80 %, by its own variance, at .05 over the number of tests
    that are corrected together; None: it is not tested, or there is no variance."""
    baseline: str = ""
    """The arm that it is compared with; itself: with none."""
    within_noise: bool = False
    """Whether the arm is nearer to the baseline than the judge's noise (`Frame.noise`): then the judge does not order them."""


def by_baseline(base_of: Mapping[str, str]) -> dict[str, list[str]]:
    """Returns baseline -> the arms that are compared with it, of arm -> its baseline; itself is not among them."""
    found: dict[str, list[str]] = {arm: [] for arm, base in base_of.items() if base == arm}
    for arm, base in base_of.items():
        if base != arm:
            found.setdefault(base, []).append(arm)
    return found


@dataclass(frozen=True)
class Comparison:
    """All arms against one of them; without differences where nothing is measured."""

    frame: Frame
    baseline: str
    """The arm that is compared with none; of several that with which most are compared."""
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
    baselines: Mapping[str, str] = field(default_factory=dict)
    """Arm -> the arm that it is compared with, where that is not `baseline`; of one that is compared with none itself."""
    pairs: tuple[ArmPair, ...] = ()
    """Every two arms, where that was asked for; by measure."""

    def base_of(self, arm: str) -> str:
        """Returns the arm that an arm is compared with; itself, where it is compared with none."""
        return self.baselines.get(arm, self.baseline)

    def is_baseline(self, arm: str) -> bool:
        """Returns whether an arm is compared with none."""
        return self.base_of(arm) == arm

    @property
    def of_baselines(self) -> dict[str, list[str]]:
        """Returns baseline -> the arms that are compared with it, each in the frame's order; itself is not among them."""
        return by_baseline({arm: self.base_of(arm) for arm in self.frame.arms})

    @property
    def against(self) -> str:
        """Returns what arms are compared with, in words: the baseline, or of several "its baseline"."""
        return self.baseline if len(self.of_baselines) < 2 else "its baseline"

    def named(self, arm: str) -> str:
        """Returns the name of an arm with its mark, if it has one."""
        return f"{arm} {PART}" if arm in self.parts else arm

    @property
    def untested(self) -> frozenset[str]:
        """Returns the arms that are their baseline, or an arm that is tested already, under another name."""
        found, tested = set(), set()
        for arm in self.frame.arms:
            pair = tuple(self.same_as.get(one, one) for one in (arm, self.base_of(arm)))
            if not self.is_baseline(arm) and (pair[0] == pair[1] or pair in tested):
                found.add(arm)
            tested |= set() if self.is_baseline(arm) else {pair}
        return frozenset(found)

    @property
    def warning(self) -> str | None:
        """Returns why nothing was measured, in one line; None if something was."""
        return self.frame.warning

    @cached_property
    def by_arm(self) -> dict[tuple[str, str], Difference]:
        """Returns (arm, measure) -> difference."""
        return {(one.arm, one.measure): one for one in self.differences}

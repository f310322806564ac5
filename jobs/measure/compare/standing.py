"""How the arms of a comparison stand to each other and to the baseline: places, corrected p-values, verdicts, marks.

The report's page and the exports read them here, so that all say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.measure.arrays import Floats
from jobs.measure.significance import ALPHA, UNCLEAR

if TYPE_CHECKING:
    from jobs.measure.compare.comparison import Comparison, Difference
    from jobs.measure.compare.pairs import ArmPair

MARKS = ((0.01, "‡"), (ALPHA, "†"))
"""Corrected p below -> mark, the stricter first."""
PLACES = 4  # of a printed measure
NOT_ORDERED = "within the judge's noise"  # a verdict
REPEATED = "samples"  # the family whose arms repeat the config itself: they take part in no contest
FAMILIES = {
    "always": "the config itself, the original, each strategy alone",
    "arms": "arms of ablate.arms",
    "subsets": "subsets of the strategies",
    "grid": "combinations of ablate.grid",
    REPEATED: "the config itself again, with answers of its own",
}
"""Family -> what its arms are."""


@dataclass(frozen=True)
class Standing:
    """The means of each arm, and who is best.

    `bounds` are arms that choose by judgements (oracle_k): upper bounds, no systems, so they are never best.
    """

    comparison: Comparison
    means: dict[str, dict[str, float]]
    """Arm -> measure -> mean over the counted keys."""
    condensed: dict[str, dict[str, float]]
    """The same of lists without the documents that nobody judged (Sakai, SIGIR 2007)."""
    best: dict[str, frozenset[str]]
    """Measure -> the arms with the greatest mean, as printed."""
    second: dict[str, frozenset[str]]
    bounds: frozenset[str]
    differences: dict[tuple[str, str], Difference]
    """Arm and measure -> its difference; without those of baselines to themselves."""
    weighted: dict[str, float]
    """Arm -> mean of the first measure, weighted by traffic."""

    @property
    def first(self) -> str:
        """Returns the measure by which arms are ordered."""
        return self.comparison.frame.measures[0]

    def contends(self, arm: str) -> bool:
        """Returns whether an arm may be called best."""
        return arm not in self.bounds and self.comparison.families.get(arm) != REPEATED

    def ordered(self) -> list[str]:
        """Returns the arms by the mean of the first measure, the best first; equal ones as they were given."""
        return sorted(self.comparison.frame.arms, key=lambda arm: -self.means[arm][self.first])

    @property
    def leader(self) -> str | None:
        """Returns the best arm that is compared with another; None where there is none."""
        left_out = self.comparison.untested
        compared = [arm for arm in self.ordered() if not self.comparison.is_baseline(arm)]
        return next((arm for arm in compared if self.contends(arm) and arm not in left_out), None)


def standing(comparison: Comparison) -> Standing:
    """Returns how the arms of a comparison with at least one counted key stand."""
    frame, families = comparison.frame, comparison.families
    means = _by_name(frame.arms, frame.measures, frame.values.mean(axis=2))
    able = [arm for arm in frame.arms if arm not in comparison.oracles and families.get(arm) != REPEATED]
    noise = frame.noise or (0.0,) * len(frame.measures)
    by_measure = {
        measure: places({arm: means[arm][measure] for arm in able}, least)
        for measure, least in zip(frame.measures, noise, strict=True)
    }
    return Standing(
        comparison,
        means,
        _by_name(frame.arms, frame.measures, frame.condensed.mean(axis=2)),
        {measure: first for measure, (first, _) in by_measure.items()},
        {measure: second for measure, (_, second) in by_measure.items()},
        comparison.oracles,
        {(one.arm, one.measure): one for one in comparison.differences if not comparison.is_baseline(one.arm)},
        {one.arm: one.weighted_mean for one in comparison.differences if one.measure == frame.measures[0]},
    )


def _by_name(arms: Iterable[str], measures: Iterable[str], values: Floats) -> dict[str, dict[str, float]]:
    names = list(measures)
    return {arm: dict(zip(names, row, strict=True)) for arm, row in zip(arms, values.tolist(), strict=True)}


def places(means: Mapping[str, float], noise: float = 0.0) -> tuple[frozenset[str], frozenset[str]]:
    """Returns the arms with the greatest and with the second greatest printed mean; no second where all are equal.

    Arms nearer to these than the judge's noise share their place: it does not order them.

    Args:
        means: arm -> mean, of those that may be called best.
        noise: of the judge.
    """
    printed = {arm: round(value, PLACES) for arm, value in means.items()}
    found: list[frozenset[str]] = []
    for _ in range(2):
        greatest = max(printed.values(), default=0.0)
        found.append(frozenset(arm for arm, value in printed.items() if value == greatest or greatest - value < noise))
        printed = {arm: value for arm, value in printed.items() if arm not in found[-1]}
    return found[0], found[1]


def mark(difference: Difference | None) -> str:
    """Returns the mark of a significant difference to the baseline in either direction, or nothing; none within its noise."""
    return "" if difference is None else pair_mark(difference)


def pair_mark(compared: Difference | ArmPair) -> str:
    """Returns the mark of a significant difference of two arms, or nothing."""
    p = compared.deciding
    return "" if p is None else next((sign for level, sign in MARKS if p < level), "")


def verdict(difference: Difference, min_effect: float) -> str:
    """Returns what is known of a difference: better, worse, equivalent within `min_effect`, nothing clear, or not tested.

    A difference can be both: significant, and surely smaller than what matters. One within the judge's noise is neither.
    """
    if difference.corrected is None:
        return "not tested"
    if difference.within_noise:
        return NOT_ORDERED
    within = difference.p_equivalent < ALPHA
    if word := difference.verdict:
        return f"{word}, by less than {min_effect:g}" if within else word
    return "equivalent" if within else UNCLEAR

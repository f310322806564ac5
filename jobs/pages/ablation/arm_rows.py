"""The rows of the main table: a row per arm with its means, marks and difference to the baseline."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, isnan
from typing import TYPE_CHECKING

from jobs.measure.compare.standing import Standing, corrected, cut_mark, mark, verdict
from jobs.pages.charts import Axis, around_zero

if TYPE_CHECKING:
    from jobs.measure.compare.comparison import Difference

MOST = 50  # arms with a row of their own


@dataclass(frozen=True)
class Mean:
    """A cell of the table: the mean of a measure, with its marks.

    `place` is a class of the style sheet: best, second or nothing.
    """

    value: float
    place: str
    mark: str


@dataclass(frozen=True)
class ArmRow:
    """An arm. `difference` is that of the first measure; None of the baseline."""

    arm: str
    family: str
    baseline: bool
    bound: bool
    means: list[Mean]
    weighted: float | None
    """Mean of the first measure by traffic."""
    condensed: float
    """Mean of the first measure over lists without the documents that nobody judged."""
    unjudged: float | None
    """Share of its results; None where it has none."""
    failed: int
    difference: Difference | None
    p: float | None
    """By Holm, or q in a grid; None where neither was computed."""
    verdict: str

    @property
    def interval(self) -> tuple[float, float] | None:
        """Returns the ends of the difference's interval, where it is known."""
        one = self.difference
        return None if one is None or isnan(one.low) else (one.low, one.high)


@dataclass(frozen=True)
class ArmRows:
    """The rows: `top` of the best arms and of those that are always there, `rest` of all others, each by the first mean."""

    top: list[ArmRow]
    rest: list[ArmRow]
    axis: Axis
    """Of the drawn intervals."""
    spread: dict[str, tuple[float, float]]
    """Measure -> least and greatest mean, for the shades of `rest`."""


def arm_rows(found: Standing, most: int = MOST) -> ArmRows:
    """Returns the rows of all arms.

    Args:
        found: how the arms stand.
        most: arms with a row of their own; the baseline and those of the family `always` have one in any case.
    """
    families, baseline = found.comparison.families, found.comparison.baseline
    number = {arm: place for place, arm in enumerate(found.comparison.frame.arms)}
    ordered = found.ordered()
    kept = {arm for arm in ordered if arm == baseline or families.get(arm) == "always"}
    for arm in ordered:
        if len(kept) >= most:
            break
        kept.add(arm)
    rows = [_row(found, arm, number[arm]) for arm in ordered]
    top = [row for row in rows if row.arm in kept]
    spread = {
        measure: (min(means), max(means))
        for measure in found.comparison.frame.measures
        if (means := [found.means[arm][measure] for arm in ordered])
    }
    drawn = [row.difference for row in top if row.difference is not None]
    ends = [end for one in drawn for end in (one.low, one.high, one.difference) if isfinite(end)]
    return ArmRows(top, [row for row in rows if row.arm not in kept], around_zero(ends), spread)


def _row(found: Standing, arm: str, number: int) -> ArmRow:
    comparison = found.comparison
    means = [
        Mean(
            found.means[arm][measure],
            "best" if arm in found.best[measure] else "second" if arm in found.second[measure] else "",
            mark(found.differences.get((arm, measure))) + cut_mark(comparison.by_arm[arm, measure]),
        )
        for measure in comparison.frame.measures
    ]
    difference = found.differences.get((arm, found.first))
    unjudged = float(comparison.frame.unjudged[number])
    return ArmRow(
        arm,
        comparison.families.get(arm, ""),
        arm == comparison.baseline,
        arm in found.bounds,
        means,
        found.weighted.get(arm),
        found.condensed[arm][found.first],
        None if isnan(unjudged) else unjudged,
        int(comparison.frame.failed[number]),
        difference,
        None if difference is None else corrected(difference),
        "" if difference is None else verdict(difference, comparison.min_effect),
    )

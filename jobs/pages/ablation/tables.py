"""The tables of the arms: the main one, leave-one-out, the noise floor, and the slices.

Of DMQR-RAG's Table 4 leave-one-out has the rows. The last column differs: there it is the mean of the losses of P@5 over the
paper's three data sets; an ablation is of one data set, and here it is the mean of the losses over the measures.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite, isnan
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from jobs.measure.significance import SAMPLES, TIE, holm
from jobs.measure.standing import ArmMean, Standing, verdict_words
from jobs.pages.charts import Axis, around_zero

if TYPE_CHECKING:
    from jobs.measure.comparison import Difference
    from jobs.measure.slices import Slice

MOST = 50  # arms with a row of their own
WHOLE = "full"
WITHOUT = "without "
MOST_ARMS = 8  # of a table of slices, beside the baseline


@dataclass(frozen=True)
class ArmRow:
    """An arm. `difference` is that of the first measure; None of the baseline."""

    arm: str
    family: str
    baseline: bool
    bound: bool
    means: list[ArmMean | None]
    """`place` is a class of the style sheet, too."""
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
    """Returns the rows of all arms, `most` and those of baselines and the family `always` as rows of their own."""
    families = found.comparison.families
    number = {arm: place for place, arm in enumerate(found.comparison.frame.arms)}
    ordered = found.ordered()
    kept = {arm for arm in ordered if arm == found.comparison.baseline or families.get(arm) == "always"}
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
    means = [found.mean(arm, measure) for measure in comparison.frame.measures]
    difference = found.differences.get((arm, found.first))
    unjudged = float(comparison.frame.unjudged[number])
    return ArmRow(
        arm,
        comparison.families.get(arm, ""),
        arm == comparison.baseline,
        arm in comparison.oracles,
        means,
        found.weighted.get(arm),
        found.condensed[arm][found.first],
        None if isnan(unjudged) else unjudged,
        int(comparison.frame.failed[number]),
        difference,
        None if difference is None else difference.corrected,
        "" if difference is None else verdict_words(difference, comparison.margin),
    )


@dataclass(frozen=True)
class LeftOutRow:
    """An arm without one strategy: mean and loss (whole - without) of each measure.

    `worse`, `same` and `better` count the keys on which it is so, by the first measure.
    """

    strategy: str
    means: list[float]
    losses: list[float]
    worse: int
    same: int
    better: int
    p: float
    """Of the paired t-test against the whole by the first measure, adjusted by Holm's method over the rows; NaN: no test."""

    @property
    def average(self) -> float:
        """Returns the mean loss over the measures."""
        return fmean(self.losses)


@dataclass(frozen=True)
class LeftOut:
    """The rows, the greatest average loss first."""

    whole: list[float]
    rows: list[LeftOutRow]
    greatest: float
    """Loss, for the shades."""


def left_out(found: Standing) -> LeftOut | None:
    """Returns the losses of the arms `without X` to the arm `full`; None where there are none."""
    frame = found.comparison.frame
    number = {arm: place for place, arm in enumerate(frame.arms)}
    families, also = found.comparison.families, found.comparison.also
    arms = {arm: arm for arm in frame.arms if arm.startswith(WITHOUT) and families.get(arm) == "subsets"}
    arms |= {name: arm for arm in frame.arms for name in also.get(arm, ()) if name.startswith(WITHOUT)}  # one system, one row
    if WHOLE not in number or not arms:
        return None
    whole = [found.means[WHOLE][measure] for measure in frame.measures]
    rows = []
    p = frame.difference_test([(number[arm], number[WHOLE]) for arm in arms.values()], 0).p
    p[np.isfinite(p)] = holm(p[np.isfinite(p)])
    for place, (name, arm) in enumerate(arms.items()):
        means = [found.means[arm][measure] for measure in frame.measures]
        moved = frame.values[number[arm], 0] - frame.values[number[WHOLE], 0]
        losses = [all_of_them - mean for all_of_them, mean in zip(whole, means, strict=True)]
        worse, better = int((moved < -TIE).sum()), int((moved > TIE).sum())
        rows.append(
            LeftOutRow(name.removeprefix(WITHOUT), means, losses, worse, len(moved) - worse - better, better, float(p[place]))
        )
    rows.sort(key=lambda row: -row.average)
    return LeftOut(whole, rows, max((abs(loss) for row in rows for loss in row.losses), default=0.0) or 1.0)


@dataclass(frozen=True)
class NoiseRow:
    """A measure over the samples."""

    measure: str
    means: list[float]
    deviation: float
    """Standard deviation of the means over the samples."""
    greatest: float
    """Greatest difference of two means."""
    moved: float
    """Share of the keys whose value is not the same in all samples."""


@dataclass(frozen=True)
class Noise:
    """The samples, and the arms whose first mean lies within the greatest difference of two samples to the config itself."""

    arms: list[str]
    rows: list[NoiseRow]
    within: list[str]


def noise(found: Standing) -> Noise | None:
    """Returns the noise floor; None where the config itself was not run several times."""
    frame, families = found.comparison.frame, found.comparison.families
    arms = [arm for arm in frame.arms if arm == WHOLE or families.get(arm) == SAMPLES]
    if len(arms) < 2 or WHOLE not in arms:
        return None
    places = [frame.arms.index(arm) for arm in arms]
    rows = []
    for column, measure in enumerate(frame.measures):
        values = frame.values[places, column]
        means = values.mean(axis=1)
        moved = float((np.ptp(values, axis=0) > TIE).mean())
        rows.append(NoiseRow(measure, means.tolist(), float(np.std(means, ddof=1)), float(np.ptp(means)), moved))
    whole = found.means[WHOLE][found.first]
    within = [
        arm for arm in found.ordered() if arm not in arms and abs(found.means[arm][found.first] - whole) <= rows[0].greatest
    ]
    return Noise(arms, rows, within)


@dataclass(frozen=True)
class SliceTable:
    """The parts of one slice, and the arms that are shown."""

    name: str
    arms: list[str]
    parts: list[Slice]
    greatest: float
    """Absolute difference, for the shades."""

    @property
    def measures(self) -> list[str]:
        """Returns all measures."""
        return list(next((of for part in self.parts for of in part.measures.values()), ()))

    def share(self, difference: float) -> float:
        """Returns the absolute difference in percent of the greatest."""
        return 100 * abs(difference) / self.greatest


def slice_tables(slices: Sequence[Slice], arms: Sequence[str], baselines: Collection[str]) -> list[SliceTable]:
    """Returns a table per slice, whose parts stand in a row, with the baselines and the first of the arms."""
    tables = []
    for name, of in groupby(slices, key=lambda one: one.name):
        parts = list(of)
        known = [arm for arm in dict.fromkeys([*baselines, *arms]) if any(arm in part.means for part in parts)]
        known = known[: MOST_ARMS + len(baselines)]
        moved = [abs(part.means[arm][1]) for part in parts for arm in known if arm in part.means and arm not in baselines]
        tables.append(SliceTable(name, known, parts, max(moved, default=0.0) or 1.0))
    return tables

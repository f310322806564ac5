"""Leave-one-out: what each strategy is worth to the whole, as the loss without it.

Of DMQR-RAG's Table 4 it has the rows. The last column differs: there it is the mean of the losses of P@5 over the paper's three
data sets; an ablation is of one data set, and here it is the mean of the losses over the measures.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

import numpy as np

from jobs.measure.compare.standing import Standing
from jobs.measure.significance import TIE, holm, paired_test

WHOLE = "full"
WITHOUT = "without "


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
    p = paired_test(frame.values[[number[arm] for arm in arms.values()], 0] - frame.values[number[WHOLE], 0], frame.clusters).p
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

"""The noise floor: how far arms differ that are the same config with answers of their own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jobs.measure.compare.standing import REPEATED, Standing
from jobs.measure.significance import TIE
from jobs.pages.ablation.left_out import WHOLE


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
    arms = [arm for arm in frame.arms if arm == WHOLE or families.get(arm) == REPEATED]
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

"""The differences of an arm to the baseline, sorted: how many queries carry its mean, and how many pay for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from jobs.pages.ablation.axes import Axis, linear
from jobs.runs.reading import spread

WIDTH, HEIGHT = 420.0, 420.0
LEFT, RIGHT, TOP, BOTTOM = 56.0, 10.0, 12.0, 44.0
MOST_STEPS = 400  # of a path


@dataclass(frozen=True)
class GainChart:
    """The areas of gains and of losses, as paths: the queries from left to right, the greatest gain first."""

    up: Axis
    gain: str
    loss: str
    queries: int
    left: float = LEFT
    right: float = WIDTH - RIGHT
    width: float = WIDTH
    height: float = HEIGHT


def gain_chart(differences: Sequence[npt.NDArray[np.float64]]) -> GainChart:
    """Returns the chart of the first arm, on the axis of all.

    Args:
        differences: of each arm to the baseline, one per query.
    """
    ends = [0.0, *(float(end) for one in differences for end in (one.min(), one.max()))]
    up = linear(ends, HEIGHT - BOTTOM, TOP)
    moved = spread(sorted(differences[0].tolist(), reverse=True), MOST_STEPS)
    gain, loss = (_area(moved, sign, up) for sign in (1, -1))
    return GainChart(up, gain, loss, len(differences[0]))


def _area(moved: Sequence[float], sign: int, up: Axis) -> str:
    """Returns the area between zero and the values of one sign; the page's script draws those of other arms alike."""
    step = (WIDTH - RIGHT - LEFT) / len(moved)
    shown = [(place, value) for place, value in enumerate(moved) if value * sign > 0]
    if not shown:
        return ""
    steps = "".join(f"V{up.place(value):.1f}H{LEFT + (place + 1) * step:.1f}" for place, value in shown)
    return f"M{LEFT + shown[0][0] * step:.1f} {up.place(0):.1f}{steps}V{up.place(0):.1f}Z"

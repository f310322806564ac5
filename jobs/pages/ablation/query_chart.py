"""Query by query: the first measure of an arm against that of the baseline, a circle per pair of values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from jobs.measure.compare.standing import Standing
from jobs.measure.significance import TIE
from jobs.pages.ablation.axes import Axis, linear
from jobs.pages.ablation.gain_chart import MOST_STEPS, GainChart, gain_chart
from jobs.pages.ablation.left_out import WHOLE
from jobs.pages.wording import shown
from jobs.runs.reading import spread

SIZE = 420.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 6.0, 6.0, 44.0  # around the area of a chart
INSET = 12.0  # from its edge to the ends of an axis, so that circles cover no words
MOST_KEYS = 2000  # drawn of an arm
MOST_ARMS = 16  # to choose from
SCALE = 10_000  # values in the page are whole numbers of this part
LABEL = 60  # characters of a query in the page
RADIUS, WIDEST = 2.6, 14.0  # of one key, of any number of keys


@dataclass(frozen=True)
class Circle:
    """The keys with the same two values."""

    x: float
    y: float
    radius: float
    kind: str
    title: str


@dataclass(frozen=True)
class QueryChart:
    """The chart of the first of the arms, and the values of the others, which the page can draw."""

    arms: list[str]
    measure: str
    axis: Axis
    up: Axis
    circles: list[Circle]
    moved: tuple[int, int, int]
    """Keys that gained, lost, did neither, of all keys."""
    gains: GainChart
    drawn: int
    keys: int
    data: dict[str, Any]
    """What the page's script draws by: the axes, and the arms' values."""
    size: float = SIZE
    inset: float = INSET

    @property
    def arm(self) -> str:
        """Returns the arm that is drawn at first."""
        return self.arms[0]


def main_arms(found: Standing, most: int = MOST_ARMS) -> list[str]:
    """Returns the arms that the page shows in detail: the best, the config itself, those always there, the next best."""
    families, baseline = found.comparison.families, found.comparison.baseline
    ordered = [arm for arm in found.ordered() if arm != baseline]
    leader = [found.leader] if found.leader is not None else []
    always = [arm for arm in found.comparison.frame.arms if families.get(arm) == "always" and arm != baseline]
    whole = [arm for arm in always if arm == WHOLE]
    return list(dict.fromkeys([*leader, *whole, *always, *filter(found.contends, ordered)]))[:most]


def query_chart(found: Standing, labels: Sequence[str]) -> QueryChart | None:
    """Returns the chart of the best arm; None without keys or without another arm than the baseline.

    Args:
        found: how the arms stand.
        labels: what is shown for each key.
    """
    frame, arms = found.comparison.frame, main_arms(found)
    if not arms or not len(frame.keys):
        return None
    number = {arm: place for place, arm in enumerate(frame.arms)}
    drawn = spread(range(len(frame.keys)), MOST_KEYS)
    base = frame.values[number[found.comparison.baseline], 0]
    shown_values = frame.values[[number[arm] for arm in (found.comparison.baseline, *arms)], 0]
    ends = [0.0, float(shown_values.min()), float(shown_values.max())]
    axis = linear(ends, LEFT + INSET, SIZE - RIGHT - INSET)
    up = linear(ends, SIZE - BOTTOM - INSET, TOP + INSET)
    gains = gain_chart([shown_values[place] - shown_values[0] for place in range(1, len(shown_values))])
    moved = {arm: _moved(frame.values[number[arm], 0] - base) for arm in arms}
    data: dict[str, Any] = {
        "scale": SCALE,
        "axis": [axis.low, axis.high, axis.start, axis.end],
        "up": [up.low, up.high, up.start, up.end],
        "radius": [RADIUS, WIDEST],
        "gains": [gains.up.low, gains.up.high, gains.up.start, gains.up.end],
        "ranks": [gains.left, gains.right, MOST_STEPS],
        "labels": [shown(labels[key], LABEL) for key in drawn],
        "base": _whole(base[drawn]),
        "arms": [{"moved": moved[arm], "values": _whole(frame.values[number[arm], 0][drawn])} for arm in arms],
    }
    first = _whole(frame.values[number[arms[0]], 0][drawn])
    circles = _circles(_whole(base[drawn]), first, [shown(labels[key], LABEL) for key in drawn], axis, up)
    return QueryChart(arms, found.first, axis, up, circles, moved[arms[0]], gains, len(drawn), len(frame.keys), data)


def _moved(differences: npt.NDArray[np.float64]) -> tuple[int, int, int]:
    gained, lost = int((differences > TIE).sum()), int((differences < -TIE).sum())
    return gained, lost, len(differences) - gained - lost


def _whole(values: npt.NDArray[np.float64]) -> list[int]:
    return [int(value) for value in np.rint(values * SCALE)]


def _circles(base: list[int], values: list[int], labels: list[str], axis: Axis, up: Axis) -> list[Circle]:
    """Returns the circles, the widest first; their areas are numbers of keys. The page's script draws others alike."""
    counts = Counter(zip(base, values, strict=True))
    named = dict(zip(zip(base, values, strict=True), labels, strict=True))
    found = []
    for (before, after), count in counts.most_common():
        of = named[before, after] if count == 1 else f"{count} queries"
        title = f"{of}: {before / SCALE:.4f} → {after / SCALE:.4f}"
        kind = "gain" if after > before else "loss" if after < before else "even"
        radius = min(WIDEST, RADIUS * count**0.5)
        found.append(Circle(axis.place(before / SCALE), up.place(after / SCALE), radius, kind, title))
    return found

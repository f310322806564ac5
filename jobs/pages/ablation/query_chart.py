"""Query by query: the first measure of an arm against that of the baseline, a circle per pair of values.

Beside it the differences, sorted: how many queries carry the arm's mean, and how many pay for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from jobs.measure.significance import TIE
from jobs.measure.standing import Standing
from jobs.pages.ablation.tables import WHOLE
from jobs.pages.charts import Axis, drawing, element, linear
from jobs.runs.reading import spread
from jobs.terminal.formats import shown

SIZE = 420.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 6.0, 6.0, 44.0  # around the area of a chart
RANKS, TOP_OF_GAINS = (56.0, SIZE - 10.0), 12.0  # of the sorted differences
MOST_STEPS = 400  # of their paths
SIGNS = (("gain", 1), ("loss", -1))
INSET = 12.0  # from its edge to the ends of an axis, so that circles cover no words
MOST_KEYS = 2000  # drawn of an arm
MOST_ARMS = 16  # to choose from
SCALE = 10_000  # values in the page are whole numbers of this part
LABEL = 60  # characters of a query in the page
RADIUS, WIDEST = 2.6, 14.0  # of one key, of any number of keys


@dataclass(frozen=True)
class QueryChart:
    """The drawings of the first of the arms, and the values of the others, which the page can draw."""

    arms: list[str]
    baseline: str
    measure: str
    moved: tuple[int, int, int]
    """Keys that gained, lost, did neither, of all keys."""
    drawn: int
    keys: int
    data: dict[str, Any]
    """What the page's script draws by: the axes, and the arms' values."""
    svg: Markup
    gains: Markup
    """The areas of gains and of losses: the queries from left to right, the greatest gain first."""

    @property
    def arm(self) -> str:
        """Returns the arm that is drawn at first."""
        return self.arms[0]


def main_arms(found: Standing, most: int = MOST_ARMS) -> list[str]:
    """Returns the arms that the page shows in detail: the best, the config itself, those always there, the next best."""
    families, compared = found.comparison.families, found.comparison
    ordered = [arm for arm in found.ordered() if arm != compared.baseline]
    leader = [found.leader] if found.leader is not None else []
    always = [arm for arm in found.comparison.frame.arms if families.get(arm) == "always" and arm != compared.baseline]
    whole = [arm for arm in always if arm == WHOLE]
    return list(dict.fromkeys([*leader, *whole, *always, *filter(found.contends, ordered)]))[:most]


def query_chart(found: Standing, labels: Sequence[str]) -> QueryChart | None:
    """Returns the chart of the best arm, keys shown by labels; None without keys or without another arm than the baseline."""
    frame, arms = found.comparison.frame, main_arms(found)
    if not arms or not len(frame.keys):
        return None
    baseline = found.comparison.baseline
    number = {arm: place for place, arm in enumerate(frame.arms)}
    drawn = spread(range(len(frame.keys)), MOST_KEYS)
    base = frame.values[number[baseline], 0]
    shown_values = frame.values[[number[arm] for arm in (baseline, *arms)], 0]
    ends = [0.0, float(shown_values.min()), float(shown_values.max())]
    axis = linear(ends, LEFT + INSET, SIZE - RIGHT - INSET)
    up = linear(ends, SIZE - BOTTOM - INSET, TOP + INSET)
    gains = [shown_values[place] - shown_values[0] for place in range(1, len(shown_values))]
    ends = [0.0, *(float(end) for one in gains for end in (one.min(), one.max()))]
    gained = linear(ends, SIZE - BOTTOM, TOP_OF_GAINS)
    moved = {arm: _moved(frame.values[number[arm], 0] - base) for arm in arms}
    data: dict[str, Any] = {
        "scale": SCALE,
        "axis": [axis.low, axis.high, axis.start, axis.end],
        "up": [up.low, up.high, up.start, up.end],
        "radius": [RADIUS, WIDEST],
        "gains": [gained.low, gained.high, gained.start, gained.end],
        "ranks": [*RANKS, MOST_STEPS],
        "labels": [shown(labels[key], LABEL) for key in drawn],
        "base": _whole(base[drawn]),
        "arms": [{"moved": moved[arm], "values": _whole(frame.values[number[arm], 0][drawn])} for arm in arms],
    }
    names = {"aria_labelledby": "scatter-name scatter-moved"}
    left, right, top, bottom = axis.start - INSET, axis.end + INSET, up.end - INSET, up.start + INSET
    scatter = drawing(
        SIZE,
        SIZE,
        axis.across(top, bottom),
        up.up(left, right),
        element("line", class_="diagonal", x1=axis.start, y1=up.start, x2=axis.end, y2=up.end),
        element("text", shown(baseline, 60), class_="axis", x=(axis.start + axis.end) / 2, y=SIZE - 6),
        element(
            "text",
            shown(arms[0], 60),
            class_="axis",
            transform=f"translate(13 {(up.start + up.end) / 2:.1f}) rotate(-90)",
            id="scatter-up",
        ),
        element("g", *_circles(data, axis, up), id="scatter-circles"),
        **names,
    )
    sorted_gains = spread(sorted(gains[0].tolist(), reverse=True), MOST_STEPS)
    ranked = drawing(
        SIZE,
        SIZE,
        gained.up(*RANKS),
        *(element("path", class_=kind, id=f"ranked-{kind}", d=_area(sorted_gains, sign, gained)) for kind, sign in SIGNS),
        element("line", class_="zero", x1=RANKS[0], x2=RANKS[1], y1=gained.place(0), y2=gained.place(0)),
        element("text", f"{len(gains[0]):,} queries", class_="axis", x=sum(RANKS) / 2, y=SIZE - 16),
        **names,
    )
    return QueryChart(arms, baseline, found.first, moved[arms[0]], len(drawn), len(frame.keys), data, scatter, ranked)


def _area(moved: Sequence[float], sign: int, up: Axis) -> str:
    """Returns the area between zero and the values of one sign; the page's script draws those of other arms alike."""
    left, right = RANKS
    step = (right - left) / len(moved)
    drawn = [(place, value) for place, value in enumerate(moved) if value * sign > 0]
    if not drawn:
        return ""
    steps = "".join(f"V{up.place(value):.1f}H{left + (place + 1) * step:.1f}" for place, value in drawn)
    return f"M{left + drawn[0][0] * step:.1f} {up.place(0):.1f}{steps}V{up.place(0):.1f}Z"


def _moved(differences: npt.NDArray[np.float64]) -> tuple[int, int, int]:
    gained, lost = int((differences > TIE).sum()), int((differences < -TIE).sum())
    return gained, lost, len(differences) - gained - lost


def _whole(values: npt.NDArray[np.float64]) -> list[int]:
    return [int(value) for value in np.rint(values * SCALE)]


def _circles(data: dict[str, Any], axis: Axis, up: Axis) -> Iterator[Markup]:
    """Yields the circles, the widest first; their areas are numbers of keys. The page's script draws others alike."""
    pairs = list(zip(data["base"], data["arms"][0]["values"], strict=True))
    named = dict(zip(pairs, data["labels"], strict=True))
    for (before, after), count in Counter(pairs).most_common():
        of = named[before, after] if count == 1 else f"{count} queries"
        title = element("title", f"{of}: {before / SCALE:.4f} → {after / SCALE:.4f}")
        kind = "gain" if after > before else "loss" if after < before else "even"
        x, y = axis.place(before / SCALE), up.place(after / SCALE)
        yield element("circle", title, class_=kind, cx=x, cy=y, r=min(WIDEST, RADIUS * count**0.5))

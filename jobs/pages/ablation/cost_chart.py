"""Quality against cost: a point per arm, and the Pareto front, the arms that none is both cheaper and better than."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.measure.compare.standing import Standing
from jobs.pages.ablation.axes import Axis, linear, spanning
from jobs.pages.wording import duration, shown
from jobs.terminal.formats import money

if TYPE_CHECKING:
    from jobs.measure.compare.arm_costs import ArmCost

WIDTH, HEIGHT = 640.0, 380.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 34.0, 14.0, 46.0
_CHARACTER, _LINE = 6.9, 15.0  # of a label
_MOST_LABELS = 14


@dataclass(frozen=True)
class ArmPoint:
    """An arm in the chart. `kind` is a class of the style sheet: its family."""

    arm: str
    x: float
    y: float
    kind: str
    front: bool
    title: str


@dataclass(frozen=True)
class PointLabel:
    """An arm's name beside its point."""

    text: str
    x: float
    y: float
    anchor: str


@dataclass(frozen=True)
class CostChart:
    """The chart: what its axes are, its points, and the front as a path."""

    across: str
    up: str
    x: Axis
    y: Axis
    points: list[ArmPoint]
    labels: list[PointLabel]
    front: list[str]
    """The arms of the Pareto front, the cheapest first."""
    path: str
    width: float = WIDTH
    height: float = HEIGHT


def cost_chart(found: Standing, costs: Sequence[ArmCost]) -> CostChart | None:
    """Returns the chart of what each arm costs alone; None with fewer than two arms that have a cost.

    Costs are in USD, or in seconds of workers where prices are not known. Left out are arms of unknown cost, those that choose
    by judgements, which cannot be run, and those that repeat the config itself, which are the same system.
    """
    shown_arms = [one for one in costs if one.arm in found.means and found.contends(one.arm)]
    usd = {one.arm: one.standalone_usd for one in shown_arms if one.standalone_usd is not None}
    in_usd = len(usd) >= 2
    spent = usd if in_usd else {one.arm: one.seconds for one in shown_arms if one.seconds is not None}
    if len(spent) < 2 or max(spent.values()) <= 0:
        return None
    words = money if in_usd else duration
    ticks = _dollars if in_usd else "{:,g} s".format
    quality = {arm: found.means[arm][found.first] for arm in spent}
    across = spanning(list(spent.values()), LEFT, WIDTH - RIGHT, ticks)
    up = linear(list(quality.values()), HEIGHT - BOTTOM, TOP)
    front = pareto_front(spent, quality)
    families, baseline = found.comparison.families, found.comparison.baseline
    points = [
        ArmPoint(
            arm,
            across.place(spent[arm]),
            up.place(quality[arm]),
            "baseline" if arm == baseline else families.get(arm, "arms"),
            arm in front,
            f"{shown(arm, 100)}: {words(spent[arm])}, {found.first} {quality[arm]:.4f}",
        )
        for arm in sorted(spent, key=lambda arm: arm in front)  # those of the front lie on top
    ]
    named = [baseline, *front, *(arm for arm in spent if families.get(arm) == "always")]
    return CostChart(
        "cost of the arm alone, USD" if in_usd else "work of the arm alone, seconds of workers",
        found.first,
        across,
        up,
        points,
        _labels(points, [arm for arm in dict.fromkeys(named) if arm in spent][:_MOST_LABELS]),
        front,
        _stairs([(across.place(spent[arm]), up.place(quality[arm])) for arm in front]),
    )


def pareto_front(spent: dict[str, float], quality: dict[str, float]) -> list[str]:
    """Returns the arms than which none is cheaper and at least as good, or as cheap and better; the cheapest first."""
    front: list[str] = []
    for arm in sorted(spent, key=lambda arm: (spent[arm], -quality[arm])):
        if not front or quality[arm] > quality[front[-1]]:
            front.append(arm)
    return front


def _stairs(places: Sequence[tuple[float, float]]) -> str:
    """Returns the line of what quality a cost can buy: level until the next arm of the front is paid."""
    if not places:
        return ""
    (x, y), *others = places
    return f"M{x:.1f} {y:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in others) + f"H{WIDTH - RIGHT:.1f}"


def _labels(points: Sequence[ArmPoint], named: Sequence[str]) -> list[PointLabel]:
    """Returns labels that cover neither points nor each other; an arm without room has none, its point has its title."""
    of = {point.arm: point for point in points}
    taken = [(point.x - 5, point.y - 5, point.x + 5, point.y + 5) for point in points]
    found = []
    for arm in named:
        point, text = of[arm], shown(arm, 32)
        long = len(text) * _CHARACTER
        around = [
            ("end", point.x - 9, point.y + 4.5),
            ("end", point.x - 7, point.y - 9),
            ("middle", point.x, point.y - 10),
            ("start", point.x + 7, point.y - 9),
            ("start", point.x + 9, point.y + 4.5),
            ("start", point.x + 7, point.y + 17),
            ("middle", point.x, point.y + 19),
            ("end", point.x - 7, point.y + 17),
        ]  # the line of the front comes from below and goes on to the right
        for anchor, x, y in around if point.front else around[4:] + around[:4]:
            left = x - {"start": 0.0, "middle": long / 2, "end": long}[anchor]
            box = (left, y - _LINE + 4, left + long, y + 3)
            inside = left > LEFT and left + long < WIDTH and box[1] > 0 and y < HEIGHT - BOTTOM
            if inside and not any(_meet(box, other) for other in taken):
                taken.append(box)
                found.append(PointLabel(text, x, y, anchor))
                break
    return found


def _meet(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _dollars(usd: float) -> str:
    """Returns a tick like $0.00005: round numbers without an exponent."""
    return f"${usd:,.9f}".rstrip("0").rstrip(".")

"""Quality against cost: a point per arm, and the Pareto front, the arms that none is both cheaper and better than."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from jobs.measure.standing import Standing
from jobs.pages.charts import drawing, element, linear, spanning
from jobs.terminal.formats import duration, money, shown

if TYPE_CHECKING:
    from jobs.measure.costs import ArmCost

WIDTH, HEIGHT = 640.0, 380.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 34.0, 14.0, 46.0
_CHARACTER, _LINE = 6.9, 15.0  # of a label
_MOST_LABELS = 14
Place = tuple[float, float]


@dataclass(frozen=True)
class CostChart:
    """The chart, and what its axes are."""

    across: str
    up: str
    is_log: bool
    points: dict[str, Place]
    """Arm -> where it is drawn."""
    front: list[str]
    """The arms of the Pareto front, the cheapest first."""
    svg: Markup


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
    families, baselines = found.comparison.families, [found.comparison.baseline]
    points = {arm: (across.place(spent[arm]), up.place(quality[arm])) for arm in spent}
    circles = []
    for arm in sorted(spent, key=lambda arm: arm in front):  # those of the front lie on top
        kind, (x, y) = "baseline" if arm in baselines else families.get(arm, "arms"), points[arm]
        tip = element("title", f"{shown(arm, 100)}: {words(spent[arm])}, {found.first} {quality[arm]:.4f}")
        radius = 5.5 if arm in front or kind == "baseline" else 3.5
        circles.append(element("circle", tip, class_=kind + " front" * (arm in front), cx=x, cy=y, r=radius))
    named = [*baselines, *front, *(arm for arm in spent if families.get(arm) == "always")]
    title = "cost of the arm alone, USD" if in_usd else "work of the arm alone, seconds of workers"
    label = f"{found.first} of {len(spent)} arms by {title}; on the Pareto front: {shown(', '.join(front))}"
    svg = drawing(
        WIDTH,
        HEIGHT,
        across.across(up.end, up.start),
        up.up(across.start, across.end),
        element("text", title, class_="axis", x=(across.start + across.end) / 2, y=HEIGHT - 8),
        element("path", class_="front", d=_stairs([points[arm] for arm in front])),
        *circles,
        *_labels(points, [arm for arm in dict.fromkeys(named) if arm in spent][:_MOST_LABELS], front),
        label=label,
    )
    return CostChart(title, found.first, across.log, points, front, svg)


def pareto_front(spent: dict[str, float], quality: dict[str, float]) -> list[str]:
    """Returns the arms than which none is cheaper and at least as good, or as cheap and better; the cheapest first."""
    front: list[str] = []
    for arm in sorted(spent, key=lambda arm: (spent[arm], -quality[arm])):
        if not front or quality[arm] > quality[front[-1]]:
            front.append(arm)
    return front


def _stairs(places: Sequence[Place]) -> str:
    """Returns the line of what quality a cost can buy: level until the next arm of the front is paid."""
    if not places:
        return ""
    (x, y), *others = places
    return f"M{x:.1f} {y:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in others) + f"H{WIDTH - RIGHT:.1f}"


def _labels(points: Mapping[str, Place], named: Sequence[str], front: Collection[str]) -> Iterator[Markup]:
    """Yields labels that cover neither points nor each other; an arm without room has none, its point has its title."""
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in points.values()]
    for arm in named:
        at, text = points[arm], shown(arm, 32)
        long = len(text) * _CHARACTER
        around = [
            ("end", at[0] - 9, at[1] + 4.5),
            ("end", at[0] - 7, at[1] - 9),
            ("middle", at[0], at[1] - 10),
            ("start", at[0] + 7, at[1] - 9),
            ("start", at[0] + 9, at[1] + 4.5),
            ("start", at[0] + 7, at[1] + 17),
            ("middle", at[0], at[1] + 19),
            ("end", at[0] - 7, at[1] + 17),
        ]  # the line of the front comes from below and goes on to the right
        for anchor, x, y in around if arm in front else around[4:] + around[:4]:
            left = x - {"start": 0.0, "middle": long / 2, "end": long}[anchor]
            box = (left, y - _LINE + 4, left + long, y + 3)
            inside = left > LEFT and left + long < WIDTH and box[1] > 0 and y < HEIGHT - BOTTOM
            if inside and not any(_meet(box, other) for other in taken):
                taken.append(box)
                yield element("text", text, class_="label", x=x, y=y, text_anchor=anchor)
                break


def _meet(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _dollars(usd: float) -> str:
    """Returns a tick like $0.00005: round numbers without an exponent."""
    return f"${usd:,.9f}".rstrip("0").rstrip(".")

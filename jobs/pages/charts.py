"""Charts as static SVG: widths are percentages and texts are pixels, so that a chart is readable on a phone and a screen.

Tried beside it: Altair with vl-convert takes 90 MB, 2.5 s for the first chart, and draws at one fixed width.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

from jobs.terminal.formats import shown

HEIGHT, TOP, BOTTOM = 300.0, 12.0, 250.0  # pixels: of a drawing, and the ends of its upright axis
LEFT, RIGHT = 12.0, 96.0  # percent of the width: the ends of its level axis
LOGARITHMIC, MOST_RATIO = 20.0, 1e9  # ratios of greatest to least value between which an axis is logarithmic
MOST_LABELS = 8


class Point(NamedTuple):
    """A point with what it is (`about`); `kind` is a class of the style sheet, and `label` is written beside it."""

    x: float
    y: float
    about: str
    kind: str = ""
    label: str = ""


class Axis(NamedTuple):
    """An axis from `low`, which is drawn at `start`, to `high`, drawn at `end`."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def position(self, value: float) -> float:
        """Returns the coordinate of a value; beyond an end: that of the end."""
        scale = math.log if self.is_log else float
        low, high = scale(self.low), scale(self.high)
        share = (scale(max(value, self.low)) - low) / (high - low)
        return self.start + (self.end - self.start) * min(1.0, share)

    def ticks(self) -> Iterator[float]:
        """Yields some round numbers between the ends."""
        if self.is_log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            yield from (10.0**power for power in powers if self.low <= 10.0**power <= self.high)
            return
        rough = (self.high - self.low) / 5
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(unit * each for each in (1, 2, 5, 10) if unit * each >= rough * 0.999)
        yield from (n * step for n in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1))


def axis(values: Iterable[float], start: float, end: float, *, zero: bool = False) -> Axis:
    """Returns the axis of values, with a margin; logarithmic where they are far apart.

    With `zero` 0 is on it, at its end if all values are on one side of it.
    """
    known = sorted([*values, *([0.0] if zero else [])])
    low, high = known[0], known[-1]
    if not zero and low > 0 and LOGARITHMIC < high / low < MOST_RATIO:
        return Axis(low / 1.3, high * 1.3, start, end, True)
    margin = 0.06 * (high - low) or 0.1 * abs(low) or 0.5
    return Axis(low - margin * (not zero or low < 0), high + margin * (not zero or high > 0 or low == high), start, end)


def scatter(points: Sequence[Point], across: str, up: str, label: Callable[[float], str], line: Sequence[Point] = ()) -> Markup:
    """Returns points by two values, with a line of stairs through some of them.

    Where labels would cover each other the first is written.
    """
    x, y = axis([one.x for one in points], LEFT, RIGHT), axis([one.y for one in points], BOTTOM, TOP + 12)
    parts = [*_grid(x, y, label, across, up)]
    for a, b in zip(line, [*line[1:], None], strict=True):
        end = RIGHT if b is None else x.position(b.x)
        parts.append(_line("front", x.position(a.x), end, y.position(a.y), y.position(a.y)))
        parts += [] if b is None else [_line("front", end, end, y.position(a.y), y.position(b.y))]
    circle = '<circle class="{}" cx="{:.2f}%" cy="{:.1f}" r="5"><title>{}</title></circle>'
    for point in reversed(points):
        parts.append(Markup(circle).format(point.kind, x.position(point.x), y.position(point.y), shown(point.about)))
    taken: list[tuple[float, float]] = []
    for point in points:
        at = x.position(point.x), y.position(point.y) - 9
        free = all(abs(at[0] - other[0]) > 34 or abs(at[1] - other[1]) > 13 for other in taken)
        if point.label and free and len(taken) < MOST_LABELS:
            taken.append(at)
            parts.append(
                _text("label", at[0], at[1], point.label, "start" if at[0] < 40 else "end" if at[0] > 70 else "middle")
            )
    box = '<svg width="100%" height="{:.0f}" role="img" aria-label="{}">{}</svg>'
    return Markup(box).format(HEIGHT, shown(f"{up} by {across} of {len(points)} arms"), Markup("").join(parts))


def _grid(x: Axis, y: Axis, label: Callable[[float], str], across: str, up: str) -> Iterator[Markup]:
    for tick in y.ticks():
        yield _line("grid", LEFT, RIGHT, y.position(tick), y.position(tick))
        yield _text("tick", LEFT - 1.5, y.position(tick) + 4, f"{tick:.3g}".replace("-", "−"), "end")
    for tick in x.ticks():
        yield _line("grid", x.position(tick), x.position(tick), TOP + 12, BOTTOM)
        yield _text("tick", x.position(tick), BOTTOM + 17, label(tick), "middle")
    yield _text("axis", LEFT, TOP + 2, up, "start")
    yield _text("axis", RIGHT, BOTTOM + 38, across, "end")


def _line(kind: str, x1: float, x2: float, y1: float, y2: float) -> Markup:
    line = '<line class="{}" x1="{:.2f}%" x2="{:.2f}%" y1="{:.1f}" y2="{:.1f}"/>'
    return Markup(line).format(kind, x1, x2, y1, y2)


def _text(kind: str, x: float, y: float, text: str, anchor: str) -> Markup:
    element = Markup('<text class="{}" x="{:.2f}%" y="{:.1f}" text-anchor="{}">{}</text>')
    return element.format(kind, x, y, anchor, shown(text, 60))

"""What all charts are made of: elements of SVG, and axes from values to places in a drawing, with ticks at round numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

SPAN = 20.0  # greatest over least value from which a logarithmic axis is drawn
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Axis:
    """An axis between two places of a drawing; `start` is the place of `low`."""

    low: float
    high: float
    start: float
    end: float
    log: bool
    ticks: tuple[float, ...]
    words: Callable[[float], str]

    def place(self, value: float) -> float:
        """Returns where a value is drawn; values beyond an end, and those below zero of a logarithmic axis, at that end."""
        if self.log:
            share = (math.log(max(value, self.low)) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + (self.end - self.start) * min(1.0, max(0.0, share))

    def across(self, top: float, bottom: float) -> Markup:
        """Returns the lines of the ticks of an axis from left to right, with their words below `bottom`."""
        return _joined(
            element("line", class_="grid", x1=x, x2=x, y1=top, y2=bottom)
            + element("text", self.words(tick), class_="tick", x=x, y=bottom + 17)
            for tick in self.ticks
            for x in (self.place(tick),)
        )

    def up(self, left: float, right: float) -> Markup:
        """Returns the lines of the ticks of an axis from below, with their words at the left of `left`."""
        return _joined(
            element("line", class_="grid", x1=left, x2=right, y1=y, y2=y)
            + element("text", self.words(tick).replace("-", "−"), class_="tick left", x=left - 7, y=y + 4)
            for tick in self.ticks
            for y in (self.place(tick),)
        )


def element(name: str, *inside: object, **attributes: object) -> Markup:
    """Returns an element; what is inside is escaped where it is no markup.

    Args:
        name: of the element.
        inside: texts and elements.
        attributes: numbers get one decimal, None is left out; `_` stands for `-`, and is dropped at the end of a name.
    """
    said = [
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), f"{value:.1f}" if isinstance(value, float) else value)
        for key, value in attributes.items()
        if value is not None
    ]
    return Markup("<{0}{1}>{2}</{0}>").format(name, _joined(said), _joined(map(escape, inside)))


def drawing(width: float, height: float, *inside: Markup, label: str | None = None, **attributes: object) -> Markup:
    """Returns a whole drawing, `label` its words for who does not see it."""
    box = {"viewBox": f"0 0 {width:.0f} {height:.0f}", "role": "img", "aria_label": label}
    return element("svg", *inside, **box, **attributes)


def _joined(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)


def around_zero(ends: Sequence[float]) -> Axis:
    """Returns the axis of drawn differences, in percent of its length: it holds 0 and these values, with a margin."""
    low, high = min([0.0, *ends]), max([0.0, *ends])
    margin = 0.05 * (high - low) or 0.01
    return Axis(low - margin, high + margin, 0.0, 100.0, False, (), str)


def linear(
    values: Sequence[float], start: float, end: float, words: Callable[[float], str] | None = None, count: int = 5
) -> Axis:
    """Returns an axis from the round number below the values to the one above them, with about `count` ticks."""
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        margin = abs(low) * 0.1 or 0.5
        low, high = low - margin, high + margin
    rough = (high - low) / count
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(each * unit for each in _STEPS if each * unit >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(number * step for number in range(first, last + 1))
    places = max(0, -math.floor(math.log10(step) + 1e-9) + (1 if round(step / unit, 6) == 2.5 else 0))
    return Axis(ticks[0], ticks[-1], start, end, False, ticks, words or f"{{:.{places}f}}".format)


def spanning(values: Sequence[float], start: float, end: float, words: Callable[[float], str]) -> Axis:
    """Returns a logarithmic axis where the values are above zero and span more than `SPAN`, else a linear one from zero."""
    low, high = min(values), max(values)
    if low <= 0 or high / low < SPAN:
        return linear([0.0, *values], start, end, words)
    low, high = low / 1.3, high * 1.3
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    of = (1, 2, 5) if math.log10(high / low) < 2.5 else (1,)
    ticks = tuple(each * 10.0**power for power in powers for each in of if low <= each * 10.0**power <= high)
    return Axis(low, high, start, end, True, ticks, words)

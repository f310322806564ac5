"""Axes of the charts: from values to places in a drawing, with ticks at round numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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

    def marks(self) -> list[tuple[float, str]]:
        """Returns place and words of each tick."""
        return [(self.place(tick), self.words(tick)) for tick in self.ticks]


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

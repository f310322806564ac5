"""How much there is of something of which a part is known: bounds, and what is to be expected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any, NamedTuple

_NORMAL = 1.959964  # 95 % of a normal distribution lie within so many standard deviations
TENTH = 10
UNSEEN = 3.0  # what none of n has, this many in n of the others may have: 95 % by Poisson


class Amount(NamedTuple):
    """A number between `low` and `high`, at 95 %."""

    low: float
    expected: float
    high: float

    def values(self) -> dict[str, float]:
        """Returns it as JSON-able values."""
        return {name: round(value, 6) for name, value in self._asdict().items()}

    def plus(self, other: Amount) -> Amount:
        """Returns the sum; both ends are added up, so that what is wrong may be so together."""
        return Amount(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, factor: float) -> Amount:
        """Returns the product with a number of at least 0."""
        return Amount(*(one * factor for one in self))

    def wider(self, share: float) -> Amount:
        """Returns it with ends that are wider by a share of what is expected."""
        return Amount(max(0.0, self.low - share * self.expected), self.expected, self.high + share * self.expected)

    @property
    def exact(self) -> bool:
        """Returns whether it is known."""
        return self.low == self.high


NOTHING = Amount(0, 0, 0)


def exactly(value: float) -> Amount:
    """Returns an amount that is known."""
    return Amount(value, value, value)


def total(amounts: Iterable[Amount]) -> Amount:
    """Returns the sum."""
    found = NOTHING
    for one in amounts:
        found = found.plus(one)
    return found


def of_others(sample: Sequence[float], rows: float, most: float) -> Amount:
    """Returns the sum over `rows` others, of which each has 0 to `most`, by a random sample of their kind.

    The bounds are those of a sum that is predicted by the sample's mean, by Student's t. What does not show in a sample, since
    it is rare, may be in the others: in up to 3 of as many as the sample has. Without a sample it is all or nothing.
    """
    count = len(sample)
    if rows <= 0:
        return NOTHING
    if count < 2:
        return Amount(0, rows * most, rows * most)
    mean = fmean(sample)
    quantile = _NORMAL + (_NORMAL**3 + _NORMAL) / (4 * (count - 1))  # of Student's t, nearly
    half = quantile * stdev(sample) * sqrt(rows + rows * rows / count)
    unseen = min(1.0, UNSEEN / count)
    low = mean * rows - half - unseen * rows * mean
    high = mean * rows + half + unseen * rows * max(0.0, most - mean)
    return Amount(max(0.0, low), mean * rows, max(mean * rows, min(rows * most, high)))


def of_unlike(sample: Sequence[float], rows: float, most: float) -> Amount:
    """Returns the sum over `rows` others that may be unlike the sample: queries that are new, by those that are known.

    The bounds are what a tenth of the sample has less than, and the most that there can be: on a night of 1,481 queries the new
    ones had more distinct texts than an interval of 95 % by the known ones allowed for.
    """
    if rows <= 0:
        return NOTHING
    if not sample:
        return Amount(0, rows * most, rows * most)
    least = sorted(sample)[len(sample) // TENTH] if len(sample) >= TENTH else 0.0
    mean = min(fmean(sample), most)
    return Amount(rows * min(least, mean), rows * mean, rows * most)


def of_number(sample: Sequence[float], number: Amount, most: float) -> Amount:
    """Returns the sum over a number of others that is not known itself, as `of_others` does."""
    low, expected, high = (of_others(sample, one, most) for one in number)
    return Amount(low.low, expected.expected, high.high)


def spread_between(parts: Sequence[tuple[int, int]], all_rows: int) -> float:
    """Returns by which share a sum may differ that is extrapolated from parts, each with its rows and its number.

    `all_rows`: of all parts. 0 where every part is there.
    """
    rows = sum(one for one, _ in parts)
    if rows >= all_rows or not rows:
        return 0.0
    shares = [number / size for size, number in parts if size]
    mean = fmean(shares)
    if len(shares) < 2 or not mean:
        return 1.0 if mean else 0.0
    return _NORMAL * stdev(shares) / mean / sqrt(len(shares)) * sqrt(1 - rows / all_rows)


def words(amount: Amount, number: Any = lambda value: f"{round(value):,}") -> str:
    """Returns an amount in words; `number` writes one."""
    if number(amount.low) == number(amount.high):
        return str(number(amount.expected))
    return f"about {number(amount.expected)} ({number(amount.low)} to {number(amount.high)})"

"""Amounts of which a part is known: bounds, and the expected value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any, NamedTuple

_UNSEEN = 3.0  # what none of n has, this many in n of the others may have: 95 % by Poisson


class Amount(NamedTuple):
    """A number between `low` and `high`, at 95 %."""

    low: float
    expected: float
    high: float

    def values(self) -> dict[str, float]:
        """Returns it as JSON-able values."""
        return {name: round(value, 6) for name, value in self._asdict().items()}

    def within_twice(self, factor: float) -> Amount:
        """Returns the product with a number that is known within a factor of two."""
        return Amount(self.low * factor / 2, self.expected * factor, self.high * factor * 2)


NOTHING = Amount(0, 0, 0)


def exactly(value: float) -> Amount:
    """Returns an amount that is known."""
    return Amount(value, value, value)


def total(amounts: Iterable[Amount]) -> Amount:
    """Returns the sum; both ends are added up, since all may err in the same direction."""
    return Amount(*map(sum, zip(NOTHING, *amounts, strict=True)))


def of_others(sample: Sequence[float], count: float, most: float) -> Amount:
    """Returns the sum over `count` others, of which each has 0 to `most`, by a random sample of their kind.

    The bounds are those of a sum that is predicted by the sample's mean, by Student's t. What does not show in a sample, since
    it is rare, may be in the others: in up to 3 of as many as the sample has. Without a sample it is all or nothing.
    """
    from scipy.stats import t as student

    size = len(sample)
    if count <= 0:
        return NOTHING
    if size < 2:
        return Amount(0, count * most, count * most)
    mean = fmean(sample)
    half = student.ppf(0.975, size - 1) * stdev(sample) * sqrt(count + count * count / size)
    unseen = min(1.0, _UNSEEN / size)
    low = mean * count - half - unseen * count * mean
    high = mean * count + half + unseen * count * max(0.0, most - mean)
    return Amount(max(0.0, low), mean * count, max(mean * count, min(count * most, high)))


def of_number(sample: Sequence[float], number: Amount, most: float) -> Amount:
    """Returns the sum over a number of others that is not known itself, as `of_others` does."""
    low, expected, high = (of_others(sample, end, most) for end in number)
    return Amount(low.low, expected.expected, high.high)


def amount_text(amount: Amount, number: Any = lambda value: f"{round(value):,}") -> str:
    """Returns an amount in words; `number` writes a value. Where nothing is known but the most, it is only that."""
    if number(amount.low) == number(amount.high):
        return str(number(amount.expected))
    if amount.low == 0 and amount.expected == amount.high:
        return f"up to {number(amount.high)}"
    return f"about {number(amount.expected)} ({number(amount.low)} to {number(amount.high)})"

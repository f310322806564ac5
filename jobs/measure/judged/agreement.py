"""How far a judge agrees with people: Cohen's kappa, and how often it grades higher than they do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class Agreement(NamedTuple):
    """The grades of a judge beside those of people, of the same things."""

    pairs: int
    same: int
    higher: int
    """Of these, how many the judge grades higher than people."""
    lower: int
    kappa: float | None
    """Cohen's, unweighted: the agreement beyond that of chance; None where both give everything one grade."""

    @property
    def note(self) -> str:
        """Returns it as a sentence."""
        kappa = "unknown, since all have one grade" if self.kappa is None else f"{self.kappa:.2f}"
        shares = (f"{100 * count / self.pairs:.0f} %" for count in (self.same, self.higher, self.lower))
        equal, over, under = shares
        return (
            f"calibration: of {self.pairs:,} results that people have judged, too, the judge grades {equal} as they do, "
            f"{over} higher and {under} lower; Cohen's kappa {kappa}"
        )


def agreement(pairs: Sequence[tuple[int, int]]) -> Agreement:
    """Returns the agreement of (people's grade, judge's grade)."""
    n, same = len(pairs), sum(people == judge for people, judge in pairs)
    of_people, of_judge = Counter(one for one, _ in pairs), Counter(one for _, one in pairs)
    by_chance = sum(count * of_judge[grade] for grade, count in of_people.items())  # times n * n
    kappa = None if n * n == by_chance else (same * n - by_chance) / (n * n - by_chance)
    higher = sum(judge > people for people, judge in pairs)
    return Agreement(n, same, higher, n - same - higher, kappa)

"""Interleaved rounds of ours and of what ours is held against, and the rows of the table that they give."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

GOAL = 0.9


class Spent(NamedTuple):
    """Seconds, and CPU seconds of all threads; None where these are not ours to count."""

    seconds: float
    cpu: float | None


class Row(NamedTuple):
    """One line of the table.

    Attributes:
        what: What was done.
        amount: Of what was done, for the rate.
        unit: What is counted.
        limit: What ours is held against.
        ours: What ours took, the median of the rounds.
        bare: What the limit took.
        goal: The least `ratio` that is good enough.
        reason: Why nothing was measured; "" where something was.
    """

    what: str
    limit: str
    amount: int = 0
    unit: str = ""
    ours: Spent = Spent(0.0, None)
    bare: Spent = Spent(0.0, None)
    goal: float = GOAL
    reason: str = ""

    @property
    def ratio(self) -> float:
        """Seconds of the limit / seconds of ours."""
        return self.bare.seconds / self.ours.seconds

    @property
    def cpu_ratio(self) -> float | None:
        """The same of CPU seconds; None where they are not known."""
        if self.bare.cpu is None or self.ours.cpu is None:
            return None
        return self.bare.cpu / self.ours.cpu

    @property
    def met(self) -> bool:
        """Returns True if the goal is met."""
        return not self.reason and self.ratio >= self.goal


class Unmeasured(Exception):
    """It cannot be measured here; the message says why."""


def middle(rounds: Sequence[Spent]) -> Spent:
    """Returns the medians."""
    cpu = [one.cpu for one in rounds if one.cpu is not None]
    return Spent(statistics.median(one.seconds for one in rounds), statistics.median(cpu) if cpu else None)


def interleaved(sides: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Spent]:
    """Returns the medians of functions that are called in turns in this process, after one call of each."""
    for side in sides.values():
        side()
    return alternated({name: lambda side=side: timed(side) for name, side in sides.items()}, rounds)  # type: ignore[misc]


def timed(side: Callable[[], object]) -> Spent:
    """Returns what a call took."""
    began, used = time.perf_counter(), time.process_time()
    side()
    return Spent(time.perf_counter() - began, time.process_time() - used)


def alternated(sides: Mapping[str, Callable[[], Spent]], rounds: int) -> dict[str, Spent]:
    """Returns the medians of what functions say that they took; each round begins with the other end."""
    spent: dict[str, list[Spent]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in list(sides)[:: 1 if number % 2 == 0 else -1]:
            spent[name].append(sides[name]())
    return {name: middle(of) for name, of in spent.items()}

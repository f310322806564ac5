"""How many sends to a server are in flight at a time: as many as do it good, found by watching what comes back.

The number grows while more at a time also means more answered, and shrinks where the server says or shows that it is too
much. After the congestion control of TCP (RFC 5681: slow start, additive increase, multiplicative decrease, once per
round trip), and Netflix's concurrency-limits (a limit of requests in flight, judged by what it does to the round trip).
Two things differ, for language models: an answer takes longer in a larger batch although more are answered, so it is the
rate that is judged, not the time; and a server's random faults are no sign of congestion, so a few of them change nothing.

A server that fails everything is left alone: one probe at a time, with growing pauses, until an answer comes.
"""

from __future__ import annotations

import asyncio
import copy
import math
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["ok", "overload", "trouble"]

OVERLOADED = 0.01  # share of a round trip that may be refused as too much
TROUBLED = 0.25  # share of failures of other kinds; TCP's reaction to 5 % of random losses would leave 5 places
CUT = 0.7
STEP = 0.05
SLOWER = 1.2  # an answer's time at the larger size, in those of the smaller one, that is no queue yet
APART = 1.9  # sizes that are compared differ by this factor at least: less would drown in chance
GAIN = 0.1  # the rate must grow with this power of the size; a queue too long costs less than a batch too small
RECENT = 0.3  # weight of a window in the average that stands for its size
FIRST_WAIT, LONGEST_WAIT = 2.0, 600.0  # seconds until a size that brought nothing is tried again, doubling
IN_A_ROW = 10  # failures without a success between them: the server is down
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 10.0  # seconds between two probes of a server that is down


class Down(Exception):
    """The server has answered nothing for longer than the patience; whoever waits for a place is told so."""


@dataclass
class _Mark:
    """A size that proved good: places, answers per second with all of them taken, seconds of one answer."""

    size: float
    rate: float
    seconds: float


class Growth:
    """The arithmetic: what size is right, from one send after the other that comes back.

    A window is one round trip: as many sends as there are places, all of them sent under the size that it judges. The
    rate is Little's law: answers per second that a place was taken, times the places.
    """

    def __init__(self, most: int, start: int, clock: Callable[[], float]) -> None:
        self.size = float(min(start, most))
        self._most = most
        self._clock = clock
        self._roof = float(most)  # beyond it only an experiment goes
        self._doubling = True
        self._mark: _Mark | None = None
        self._try_at, self._wait, self._latest = 0.0, FIRST_WAIT, 0
        self._again(cut=True)

    def note(self, place: Place, outcome: Outcome, full: bool, latest: int) -> None:
        """A send that came back. full: whether all places were taken then. latest: the number of the latest send."""
        self._latest = latest
        if place.number <= self._cut_at:  # sent under the size that was already found too large
            return
        self._overloads += outcome == "overload"
        self._trouble += ((outcome == "trouble") - self._trouble) / max(20.0, self.size)
        if self._overloads > OVERLOADED * max(self.size, self._seen) or self._trouble > TROUBLED:
            self._cut()
            return
        if place.began < self._since:
            return
        self._seen += 1
        self._full += full
        self._busy += place.seconds
        if outcome == "ok":
            self._answers += 1
            self._answering += place.seconds
        judged = self._mark is None or self.size >= APART * self._mark.size
        if self._seen >= max(self.size * (2 if self._settled else 1), 24 if judged else 4):
            self._judge()

    def resumed(self, factor: float, latest: int) -> Growth:
        """Itself, as it was at an earlier moment, going on from now with this share of the size."""
        self._latest = latest
        self.size = max(1.0, self.size * factor)
        self._doubling = self._doubling and factor == 1
        self._again(cut=True)
        return self

    def _again(self, cut: bool = False) -> None:
        """Begin a window; what was sent before (but for the last moment: answers come in bursts) does not count."""
        self._since = self._clock() - (0.1 * self._mark.seconds if self._mark else 0.0)
        self._settled = False
        if cut:
            self._cut_at, self._trouble = self._latest, 0.0
        self._clear()

    def _clear(self) -> None:
        self._seen = self._full = self._answers = self._overloads = 0
        self._busy = self._answering = 0.0

    def _cut(self) -> None:
        self.size = max(1.0, self.size * CUT)
        self._doubling, self._mark = False, None
        self._again(cut=True)

    def _judge(self) -> None:
        """At the end of a window: keep the size, go on, or go back to the mark."""
        size, mark = self.size, self._mark
        if self._full < 0.8 * self._seen or 2 * self._answers < self._seen or self._busy <= 0:
            return self._clear()  # places were empty, or it was no sample of answers
        rate, seconds = self._answers * size / self._busy, self._answering / self._answers
        if mark is None:
            self._mark = _Mark(size, rate, seconds)
        elif size < APART * mark.size:
            if size == mark.size:
                mark.rate, mark.seconds = _mean(mark.rate, rate), _mean(mark.seconds, seconds)
        elif seconds > SLOWER * mark.seconds and not self._settled:
            self._again()
            self._settled = True  # a queue may have been building up: look once more
            return None
        elif seconds <= SLOWER * mark.seconds or rate >= mark.rate * (size / mark.size) ** GAIN:
            self._mark = _Mark(size, rate, seconds)
            if size > self._roof:
                self._roof, self._wait, self._doubling = float(self._most), FIRST_WAIT, True
        else:
            self.size = self._roof = mark.size
            self._try_at = self._clock() + max(self._wait, 4 * mark.seconds)
            self._wait = min(2 * self._wait, LONGEST_WAIT)
            return self._again()
        return self._grow()

    def _grow(self) -> None:
        if self.size < self._roof:
            self.size = min(self._roof, self.size * 2 if self._doubling else self.size + max(1.0, STEP * self.size))
        elif self._roof < self._most and self._clock() >= self._try_at:
            self.size = min(float(self._most), 2 * self.size)
        else:
            return self._clear()
        return self._again()


def _mean(so_far: float, now: float) -> float:
    return so_far + RECENT * (now - so_far)


class Place:
    """A send's place: `async with limit.place() as place`, and `place.outcome` says how it went before it is left.

    outcome: "ok", "overload" (the server says: too much), "trouble" (any other failure), or None (nothing is learnt).
    seconds: how long it was held, once it is left.
    """

    __slots__ = ("_limit", "began", "number", "outcome", "probe", "seconds")

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self.outcome: Outcome | None = None
        self.probe, self.number, self.began, self.seconds = False, 0, 0.0, 0.0

    async def __aenter__(self) -> Place:
        await self._limit._enter(self)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._limit._leave(self)


class Limit:
    """The places, given in the order in which they are asked for. All use is on one event loop.

    most, start: places at most, and in the beginning. patience: seconds of nothing but failures after which those that
    wait get `Down` instead of a place. clock: seconds; chance: in 0..1, for the jitter of pauses.
    """

    def __init__(
        self,
        most: int,
        start: int = 32,
        *,
        patience: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.in_flight = 0
        self._patience, self._clock, self._chance = patience, clock, chance
        self._growth = Growth(most, start, clock)
        self._waiting: deque[tuple[Place, asyncio.Future[None]]] = deque()
        self._number = 0  # of the latest send
        self._held_until = 0.0
        self._row = 0  # failures without a success between them
        self._row_began, self._row_overloaded = 0.0, False
        self._before = self._growth  # as it was before the row
        self._down = self._probing = False
        self._pauses, self._probe_at = 0, 0.0

    @property
    def size(self) -> int:
        """Places there are now."""
        return int(self._growth.size)

    def place(self) -> Place:
        """A place to wait for."""
        return Place(self)

    def hold(self, seconds: float) -> None:
        """No send begins for so long."""
        until = self._clock() + seconds
        if until > self._held_until:
            self._held_until = until
            self._wake_in(seconds)

    async def _enter(self, place: Place) -> None:
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((place, admitted))
        self._admit()
        try:
            await admitted
        except asyncio.CancelledError:
            if place.number:  # admitted at the same moment
                self._leave(place)
            raise
        place.began = self._clock()

    def _leave(self, place: Place) -> None:
        full = self.in_flight >= self.size
        self.in_flight -= 1
        place.seconds = self._clock() - place.began
        if place.probe:
            self._probing = False
        if place.outcome == "ok":
            self._answered()
        elif place.outcome is not None:
            self._failed(place)
        if place.outcome is not None and not self._down:
            self._growth.note(place, place.outcome, full, self._number)
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._room():
            place, admitted = self._waiting.popleft()
            if not admitted.done():  # else its caller is gone
                self.in_flight += 1
                self._number += 1
                place.number, place.probe, self._probing = self._number, self._down, self._down
                admitted.set_result(None)

    def _room(self) -> bool:
        if self._held_until and self._clock() < self._held_until:
            return False
        if self._down:
            return not self._probing and self._clock() >= self._probe_at
        return self.in_flight < self.size

    def _answered(self) -> None:
        if self._down:
            self._down = False
            self._growth = self._before.resumed(CUT if self._row_overloaded else 1.0, self._number)
        self._row = 0

    def _failed(self, place: Place) -> None:
        self._row += 1
        if self._row == 1:
            self._row_began, self._row_overloaded = self._clock(), False
            self._before = copy.copy(self._growth)
        self._row_overloaded |= place.outcome == "overload"
        if self._row >= max(IN_A_ROW, self.size / 4) and not self._down:  # faults come back sooner than answers
            self._down, self._pauses = True, 0
            self._pause()
            self._wake_in(self._row_began + self._patience - self._clock())
        elif place.probe and self._down:
            self._pauses += 1
            self._pause()

    def _pause(self) -> None:
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self._pauses, 30))
        pause = longest * (0.5 + 0.5 * self._chance())
        self._probe_at = self._clock() + pause
        self._wake_in(pause)

    def _wake_in(self, seconds: float) -> None:
        if seconds < math.inf:
            asyncio.get_running_loop().call_later(max(0.0, seconds) + 0.001, self._wake)  # never a tick too early

    def _wake(self) -> None:
        self._admit()
        if self._down and self._clock() - self._row_began >= self._patience:
            while self._waiting:
                _, admitted = self._waiting.popleft()
                if not admitted.done():
                    admitted.set_exception(Down())

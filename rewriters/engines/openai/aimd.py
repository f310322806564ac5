"""The number of requests in flight to one server, by additive increase and multiplicative decrease (AIMD).

The rule is TCP's (Chiu and Jain 1989; RFC 5681), applied to requests as in Netflix's concurrency-limits: slow start, one
place more per round trip, a fifth of the places less on overload, at most once per round trip. Two things differ from TCP:

- A 429 says plainly that the server is full, as ECN does, so the decrease is that of RFC 8511 instead of a half.
- Other failures (503, timeouts) also occur at random, so only a large share of them counts as overload: under 5 % of
  random losses TCP would keep sqrt(1.5 / 0.05), about 5 places (Mathis et al. 1997).

In an outage (failures only) the server gets one request at a time, with backoff between them, then slow start again, as
after TCP's retransmission timeout.
"""

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from cluster.outages import pause

Outcome = Literal["ok", "overload", "failure"]

INITIAL = 32  # places at first: slow start reaches 128 in two round trips, from TCP's 10 in four
DECREASE = 0.8  # RFC 8511; the sawtooth then uses 0.9 of the server's places on average, with TCP's half 0.75
FAILURE_SHARE = 0.2  # of a round trip; 6 % of random failures stay 4.7 standard deviations below, at 32 places
OUTAGE = 10  # failures in a row, and a round trip of them at least: slow start alone can cause half of one
LONGEST_BACKOFF = 10.0  # seconds: a server that is back is used soon; full jitter


class PatienceExceededError(Exception):
    """The outage has lasted longer than the patience."""


@dataclass
class Place:
    """The right to one request in flight; its holder sets `outcome`: "overload" for 429, None if it tells nothing."""

    outcome: Outcome | None = None


class AimdLimit:
    """Places for requests in flight, given in the order of asking. All use is on one event loop."""

    def __init__(self, max_in_flight: int, patience: float = math.inf) -> None:
        """Starts with `INITIAL` of at most `max_in_flight` places.

        After `patience` seconds of an outage whoever waits for a place gets PatienceExceededError.
        """
        self.in_flight = 0
        self._max, self._patience = max_in_flight, patience
        self._limit = float(min(INITIAL, max_in_flight))
        self._slow_start = True
        self._sent = self._decreased_at = 0  # number of the latest request, now and at the latest decrease
        self._failure_share = 0.0  # moving average over one round trip
        self._failures, self._failing_since = 0, 0.0  # in a row
        self._probes = 0  # failures that an outage began with, and then of each probe; 0: no outage
        self._waiting: deque[asyncio.Future[int]] = deque()
        self._hold: asyncio.TimerHandle | None = None

    @property
    def limit(self) -> int:
        return int(self._limit)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[Place]:
        """Waits for a place, and holds it inside the `with` block."""
        admitted: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(admitted)
        self._admit()
        try:
            number = await admitted
        except asyncio.CancelledError:
            if not admitted.cancelled() and admitted.exception() is None:  # admitted in the same turn of the loop
                self._release()
            raise
        slot = Place()
        try:
            yield slot
        finally:
            if slot.outcome is not None:
                self._adjust(number, slot.outcome)
            self._release()

    def hold(self, seconds: float) -> None:
        """Holds all requests for some seconds; a shorter hold does not end a longer one."""
        loop = asyncio.get_running_loop()
        if self._hold is not None:
            if self._hold.when() >= loop.time() + seconds:
                return
            self._hold.cancel()
        self._hold = loop.call_later(seconds, self._end_hold)

    def _end_hold(self) -> None:
        self._hold = None
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._hold is None and self.in_flight < self.limit:
            admitted = self._waiting.popleft()
            if not admitted.done():  # else cancelled while it waited
                self.in_flight += 1
                self._sent += 1
                admitted.set_result(self._sent)

    def _release(self) -> None:
        self.in_flight -= 1
        self._admit()

    def _adjust(self, number: int, outcome: Outcome) -> None:
        if outcome == "ok":
            self._failures = self._probes = 0
        else:
            self._failures += 1
            if self._failures == 1:
                self._failing_since = asyncio.get_running_loop().time()
        current = number > self._decreased_at  # what was sent before the latest decrease tells of the same overload
        if self._failures >= max(OUTAGE, self._limit) and (current or not self._probes):
            self._back_off()
        elif current:
            self._failure_share += ((outcome == "failure") - self._failure_share) / self._limit
            if outcome == "overload" or self._failure_share > FAILURE_SHARE:
                self._decrease_to(DECREASE * self._limit, slow_start=False)
            elif outcome == "ok" and self.in_flight >= self.limit:  # nothing is learnt from places that nobody uses
                self._limit = min(self._max, self._limit + (1 if self._slow_start else 1 / self._limit))

    def _back_off(self) -> None:
        self._decrease_to(1, slow_start=True)
        self._probes += 1
        self.hold(min(pause(self._probes, longest=LONGEST_BACKOFF, least=0), self._patience))
        if asyncio.get_running_loop().time() - self._failing_since < self._patience:
            return
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(PatienceExceededError())

    def _decrease_to(self, limit: float, *, slow_start: bool) -> None:
        self._limit, self._slow_start = max(1.0, limit), slow_start
        self._decreased_at, self._failure_share = self._sent, 0.0

"""The part of the run's budget that one worker may spend, asked for in portions before requests are sent."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

PORTION = 32  # requests whose money is asked for at a time
_LEAST = 1e-6  # USD that are asked for at least: a request without a price must not be refused
_ASKING_SECONDS = 0.005  # between two looks while another request asks
_LOOK_SECONDS = 0.05  # between two looks at the answers that came meanwhile, while no money is left for another request


class Grant(NamedTuple):
    """The money that a request may cost: kept until its answer is paid."""

    name: str
    usd: float


class Allowance:
    """Lets requests be sent as long as their expected price, with that of the requests in flight, is granted.

    Threads and event loops may share it. A request is expected to cost what those of its name have cost on average.
    """

    def __init__(self, reserve: Callable[[float, float], float], spent: float = 0.0) -> None:
        """Asks for nothing yet; `reserve` is `cluster.run.stage.reserver`; `spent`: USD that were spent otherwise."""
        self._reserve, self._granted, self._spent = reserve, 0.0, spent
        self._in_flight, self._expected = 0, 0.0  # requests with a grant, and the USD of their grants
        self._answered: dict[str, tuple[int, float]] = {}  # name of requests -> number and USD of the answers
        self._lock = threading.Lock()  # guards what is above; never held while another process is asked
        self._asking = threading.Lock()  # never waited for: it would stop an event loop
        self._refused_until = 0.0
        self.ended = False
        """True if requests were refused since nothing is left."""

    def settle(self, grant: Grant, usd: float, answered: bool = True) -> None:
        """Gives a grant back and counts what was spent.

        Args:
            grant: of `take`.
            usd: what the request has cost.
            answered: whether that is the price of an answer, from which the next ones are expected to differ little.
        """
        with self._lock:
            self._in_flight -= 1
            self._expected = self._expected - grant.usd if self._in_flight else 0.0  # without the errors of rounding
            self._spent += usd
            if answered:
                count, sum_usd = self._answered.get(grant.name, (0, 0.0))
                self._answered[grant.name] = count + 1, sum_usd + usd

    async def take(self, name: str, first_price: float) -> Grant | None:
        """Returns the right to send a request, None if nothing is left; waits for answers that may leave money for it.

        Args:
            name: of requests that cost about the same.
            first_price: the most that the request may cost, in USD; expected until one of its name is answered.
        """
        while True:
            if (grant := self._take(name, first_price)) is not None:
                return grant
            asked = await self._ask(name, first_price)
            if (grant := self._take(name, first_price, asked)) is not None or self.ended:
                return grant
            await asyncio.sleep(_ASKING_SECONDS if self._asking.locked() else _LOOK_SECONDS)

    def _take(self, name: str, first_price: float, asked: bool = False) -> Grant | None:
        """Returns a grant if there is money for it; ends if there is none, `asked` for just now, and no answer to wait for."""
        with self._lock:
            price = self._price(name, first_price)
            if self._affordable(price):
                self._in_flight += 1
                self._expected += price
                return Grant(name, price)
            self.ended = self.ended or (asked and not self._in_flight)
            return None

    async def _ask(self, name: str, first_price: float) -> bool:
        """Asks for a portion; returns whether it did: one request of all does so at a time, and not at once after a refusal."""
        if time.monotonic() < self._refused_until or not self._asking.acquire(blocking=False):
            return False
        try:
            with self._lock:
                price, spent = self._price(name, first_price), self._spent
            granted = await asyncio.to_thread(self._reserve, spent, max(PORTION * price, _LEAST))
            with self._lock:
                self._granted = granted
                if not self._affordable(price):
                    self._refused_until = time.monotonic() + _LOOK_SECONDS
            return True
        finally:
            self._asking.release()

    def _price(self, name: str, first_price: float) -> float:
        count, sum_usd = self._answered.get(name, (0, 0.0))
        return sum_usd / count if count else first_price

    def _affordable(self, price: float) -> bool:
        if not self._answered and not self._in_flight:
            return self._spent < self._granted  # one request tells what they cost
        return self._spent + self._expected + price <= self._granted

"""The part of the run's budget that one worker may spend, asked for in portions before requests are sent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

PORTION = 32  # requests whose money is asked for at a time
_LEAST = 1e-6  # USD that are asked for at least: a request without a price must not be refused
_LOOK_SECONDS = 0.05  # between two looks at the answers that came meanwhile, while no money is left for another request


class Allowance:
    """Lets requests be sent as long as their expected price, with that of the requests in flight, is granted."""

    def __init__(self, reserve: Callable[[float, float], float], first_price: Callable[[int], float]) -> None:
        """Asks for nothing yet.

        Args:
            reserve: `cluster.run.stage.reserver`.
            first_price: Returns the most that a request with so many characters may cost, in USD, until one is answered.
        """
        self._reserve, self._first_price = reserve, first_price
        self._granted = self._spent = 0.0
        self._in_flight = self._answers = 0
        self._answered = 0.0  # USD of all answers
        self._lock, self._asking = threading.Lock(), asyncio.Lock()
        self.ended = False
        """Whether requests were refused since nothing is left."""

    def spend(self, usd: float) -> None:
        """Counts money that was spent otherwise, such as that of the start-up."""
        with self._lock:
            self._spent += usd

    def settle(self, usd: float) -> None:
        """Counts an answered request; any thread may call it."""
        with self._lock:
            self._in_flight -= 1
            self._answers += 1
            self._answered += usd
            self._spent += usd

    async def take(self, characters: int) -> bool:
        """Returns whether a request with so many characters may be sent; waits for answers that may leave money for it."""
        while True:
            price = self._answered / self._answers if self._answers else self._first_price(characters)
            if self._take(price):
                return True
            async with self._asking:
                if not self._affordable(price) and not self.ended:
                    self._granted = await asyncio.to_thread(self._reserve, self._spent, max(PORTION * price, _LEAST))
            if self._affordable(price):
                continue
            if not self._in_flight:
                self.ended = True
            if self.ended:
                return False
            await asyncio.sleep(_LOOK_SECONDS)

    def _take(self, price: float) -> bool:
        with self._lock:
            taken = self._affordable(price)
            self._in_flight += taken
            return taken

    def _affordable(self, price: float) -> bool:
        if not self._answers and not self._in_flight:
            return self._spent < self._granted  # one request tells what they cost
        return self._spent + (self._in_flight + 1) * price <= self._granted

"""A limit of requests a second."""

from __future__ import annotations

import threading
import time


class RateLimit:
    """Lets requests pass evenly, so many a second at most. Threads may share it."""

    def __init__(self, per_second: float | None) -> None:
        """None: all pass at once."""
        self._gap = 0.0 if per_second is None else 1 / per_second
        self._lock, self._next = threading.Lock(), 0.0

    def wait(self, stop: threading.Event) -> None:
        """Returns when the next request may be sent, or when `stop` is set."""
        if not self._gap:
            return
        with self._lock:
            now = time.monotonic()
            mine = max(now, self._next)
            self._next = mine + self._gap
        stop.wait(mine - now)

"""A thread that reports the outages which its process waits out, while the process itself is blocked by them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from cluster.outages import Outage, outages

SECONDS = 1.0  # between two looks


@contextlib.contextmanager
def outages_reported(report: Callable[[list[Outage]], object]) -> Iterator[None]:
    """Calls `report` with the process's outages whenever they have changed, and last at the end: who was given up is away.

    One that an earlier job of the process has given up is none, as long as nothing fails again.
    """
    ended, begun = threading.Event(), time.time()

    def look() -> None:
        last: list[Outage] = []
        while True:
            is_last = ended.wait(SECONDS)
            now = outages(begun)
            if now != last:
                with contextlib.suppress(Exception):  # the tracker is being restarted
                    report(now)
                last = now
            if is_last:
                return

    threading.Thread(target=look, name="outages", daemon=True).start()
    try:
        yield
    finally:
        ended.set()

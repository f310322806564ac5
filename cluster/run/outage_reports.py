"""A thread that reports the outages which its process waits out, while the process itself is blocked by them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from types import TracebackType

from cluster.outages import Outage, outages

SECONDS = 1.0  # between two looks


class OutageReports:
    """Calls `report` with the process's outages whenever they have changed, during the `with` block.

    One that an earlier job of the process has given up is none, as long as nothing fails again.
    """

    def __init__(self, report: Callable[[list[Outage]], object]) -> None:
        """Starts nothing yet."""
        self._report, self._ended, self._begun = report, threading.Event(), time.time()
        self._thread = threading.Thread(target=self._look, name="outages", daemon=True)

    def __enter__(self) -> OutageReports:
        """Starts the thread."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stops the thread; reports what is left: a service that was given up has not answered."""
        self._ended.set()

    def _look(self) -> None:
        last: list[Outage] = []
        ended = False
        while not ended:
            ended = self._ended.wait(SECONDS)
            now = outages(self._begun)
            if now != last:
                with contextlib.suppress(Exception):  # the tracker is being restarted
                    self._report(now)
                last = now

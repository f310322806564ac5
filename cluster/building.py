"""Signs of life of a worker that is being built: a model may take longer to load, in one call, than `limits.stall_minutes`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import psutil

LOOK_SECONDS = 15.0  # between two looks
BUSY = 0.05  # cores that are at work: those who wait for a lock, or a server, take less


@contextlib.contextmanager
def reported_while_busy(report: Callable[[], object], seconds: float = LOOK_SECONDS) -> Iterator[None]:
    """Calls `report` every so many seconds of the `with` block, while this process or one that it has started computes.

    What hangs is not reported, so that a run notices it.
    """
    ended = threading.Event()

    def look() -> None:
        before = _cpu_seconds()
        while not ended.wait(seconds):
            now = _cpu_seconds()
            if abs(now - before) >= BUSY * seconds:  # less than before: a process has ended
                report()
            before = now

    thread = threading.Thread(target=look, name="building", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _cpu_seconds() -> float:
    """Returns the CPU time of this process and those below it."""
    this, total = psutil.Process(), 0.0
    for process in (this, *this.children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            times = process.cpu_times()
            total += times.user + times.system
    return total

"""Threads that report during a `with` block: outages for which its process waits, and the start of a worker."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import psutil

from cluster.outages import Outage, outages

OUTAGE_SECONDS = 1.0  # between two looks at the outages
BUSY_SECONDS = 15.0  # between two looks at the CPU time
BUSY = 0.05  # cores that are at work: those who wait for a lock, or a server, take less


@contextlib.contextmanager
def periodically(name: str, step: Callable[[], None], seconds: float, join_seconds: float | None = None) -> Iterator[None]:
    """Takes a step at every interval while the `with` block runs, and once more at its end.

    A thread of its own does so: unavailable storage, which may hold it, delays neither the run nor the lease's heartbeat.
    """
    ended = threading.Event()

    def work() -> None:
        step()
        while not ended.wait(seconds):
            step()
        step()

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(join_seconds)


def outages_reported(report: Callable[[list[Outage]], object]) -> contextlib.AbstractContextManager[None]:
    """Calls `report` with the process's outages whenever they have changed, and last at the end: who was given up is away.

    One that an earlier job of the process has given up is none, as long as nothing fails again.
    """
    last, begun = list[Outage](), time.time()

    def look() -> None:
        nonlocal last
        if (now := outages(begun)) != last:
            with contextlib.suppress(Exception):  # the tracker is being restarted
                report(now)
            last = now

    return periodically("outages", look, OUTAGE_SECONDS, 0.0)


def reported_while_busy(report: Callable[[], object], seconds: float = BUSY_SECONDS) -> contextlib.AbstractContextManager[None]:
    """Calls `report` at every interval of the `with` block, while this process or one that it has started computes.

    A model may take longer to load, in one call, than `limits.stall_minutes`. What hangs is not reported, so that a run
    notices it.
    """
    before = _cpu_seconds()

    def look() -> None:
        nonlocal before
        now = _cpu_seconds()
        if abs(now - before) >= BUSY * seconds:  # less than before: a process has ended
            report()
        before = now

    return periodically("building", look, seconds)


def _cpu_seconds() -> float:
    this, total = psutil.Process(), 0.0
    for process in (this, *this.children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            times = process.cpu_times()
            total += times.user + times.system
    return total

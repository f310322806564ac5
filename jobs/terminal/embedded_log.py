"""The log of a job inside somebody else's program: nothing is printed, and its streams and signals stay as they are.

Events go to the run's `logs/`, and to the handlers that the program has above our logger, as far as its levels let them.
"""

from __future__ import annotations

import io
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cluster.embedded import embedded
from cluster.errors import HeldError
from jobs.terminal.live_display import LiveDisplay
from jobs.terminal.log_files import LogFiles
from jobs.terminal.logs import TREE, JsonLines, attached

TOLD_SECONDS = 1.0  # between two calls of it within a phase
_at_work = threading.Lock()


class ToldProgress(LiveDisplay):
    """A display that shows nothing, and tells a function."""

    def __init__(self, told: Callable[[dict[str, Any]], object] | None) -> None:
        """Takes the function; None: nobody is told."""
        super().__init__(io.StringIO())
        self._told, self._last = told, ("", 0.0)

    def tick(self) -> None:
        """Tells the progress, if the phase is new or the last time is `TOLD_SECONDS` ago."""
        super().tick()
        now, (phase, last) = time.monotonic(), self._last
        if self._told is not None and (phase != self.state.phase or now - last >= TOLD_SECONDS):
            self._last = self.state.phase, now
            self._told(self.state.values(now))


@contextmanager
def embedded_log(
    verb: str, run: str = "", told: Callable[[dict[str, Any]], object] | None = None
) -> Iterator[tuple[LiveDisplay, LogFiles]]:
    """Sets the log of a job up; yields what is told the progress, and the log's files.

    Args:
        verb: which one.
        run: the run's id.
        told: is called with the progress, in the thread that works.

    Raises:
        HeldError: another job is at work in this process: they would share one log.
    """
    if not _at_work.acquire(blocking=False):
        raise HeldError(
            "run-held", "this process: another thread does a job; wait for its end, or start this one in a process of its own"
        )
    try:
        display, files = ToldProgress(told), LogFiles(JsonLines(verb=verb, run=run))
        with embedded(), attached(files.waiting, *_above()):
            try:
                yield display, files
            finally:
                files.close()
    finally:
        _at_work.release()


class _HandedOn(logging.Handler):
    """Hands records to the handlers of the loggers above ours, from the level on that held when it was made."""

    def emit(self, record: logging.LogRecord) -> None:
        above = logging.getLogger(TREE).parent
        if above is not None and above.hasHandlers():
            above.callHandlers(record)


def _above() -> list[logging.Handler]:
    tree = logging.getLogger(TREE)
    return [_HandedOn(tree.getEffectiveLevel())] if tree.propagate else []

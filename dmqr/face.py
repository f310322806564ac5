"""The caller of a verb: a program that calls a function, or a person at a command line (`dmqr.command_line`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobs.terminal.live_display import LiveDisplay
    from jobs.terminal.log_files import LogFiles

OnProgress = Callable[[dict[str, Any]], object]


class Face:
    """A program: nothing is printed, events go to the logger `dmqr`, and streams and signals stay as they are."""

    program = "dmqr"
    """Name of the command line, for commands that a person shall type."""
    as_json = False
    """True where the result is printed as JSON."""
    json_log: bool | None = None
    """True where the log on standard error is lines of JSON; None: nothing is printed."""

    def __init__(self, progress: OnProgress | None = None) -> None:
        self._progress = progress
        self.notes: list[str] = []
        """Notes of a verb beside its result, a sentence each."""

    def job_log(self, verb: str, run: str = "") -> AbstractContextManager[tuple[LiveDisplay, LogFiles]]:
        """Sets up the log of a job; one job is at work at a time."""
        from jobs.terminal.log_files import embedded_log

        return embedded_log(verb, run, self._progress)

    @contextmanager
    def working(self, verb: str) -> Iterator[LiveDisplay]:
        """Yields the display of a verb that keeps no log; several may be at work at a time."""
        from cluster.host_program import embedded
        from jobs.terminal.log_files import ToldProgress

        with embedded():
            yield ToldProgress(self._progress)

    def note(self, line: str) -> None:
        """Keeps a note beside the result."""
        self.notes.append(line)

    def again(self, config: Any, settings: Mapping[str, Any], address: str = "") -> str:
        """Returns the way to go on with a job: the call again, or a command."""
        return "the same call"


COMMAND_LINE: ContextVar[Face | None] = ContextVar("command line", default=None)


def caller(progress: OnProgress | None = None) -> Face:
    """Returns the command line that calls, else this program."""
    return COMMAND_LINE.get() or Face(progress)

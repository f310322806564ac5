"""Who has a verb work: where its log goes, and how a person is told to go on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

from jobs.notify import Notifications

if TYPE_CHECKING:
    from jobs.terminal.live_display import LiveDisplay
    from jobs.terminal.log_files import LogFiles


class Caller(NamedTuple):
    """The caller of a verb that works through a log."""

    watched: Callable[[str, str], AbstractContextManager[tuple[LiveDisplay, LogFiles]]]
    """Sets the log up, by the verb and the run's id: `jobs.terminal.log_files.logged` or `embedded_log`."""
    program: str
    """How the command line is called, for commands that a person shall type."""
    again: str
    """The command, or the call, that goes on with the job."""
    told: Notifications = Notifications()
    """Who is told what becomes of the job; by default nobody."""

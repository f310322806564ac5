"""The display of a job at work: lines of a terminal that are renewed in place, and events of the log now and then."""

from __future__ import annotations

import contextlib
import io
import os
import time
from typing import Any, TextIO

from rich.console import Console, ConsoleDimensions, RenderableType
from rich.live import Live
from rich.text import Text

from jobs.terminal.display import display
from jobs.terminal.logs import event
from jobs.terminal.state import State

LOGGED_SECONDS = 10.0  # between two events of the progress


class LiveDisplay:
    """Shows a State on a terminal, and logs it now and then."""

    def __init__(self, stream: TextIO, title: str = "") -> None:
        self.state, self._stream, self._title = State(), stream, title
        self._phase_began, self._logged = time.monotonic(), ("", 0.0)
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        # rich would else bring back to the terminal what was led into a file
        self._live = Live(
            get_renderable=self._show,
            console=self._console,
            refresh_per_second=2,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self.terminal = stream.isatty()
        self.renews = self.terminal and not self._console.is_dumb_terminal
        if self.renews:
            self._live.start()

    def say(self, words: str) -> None:
        """Writes a line that stays."""
        self._console.print(Text(words))

    def phase(self, phase: str) -> None:
        """Says what the job does now."""
        self.state.phase, self._phase_began = phase, time.monotonic()
        self.tick()

    def tick(self) -> None:
        """Logs the progress, if the phase is new or the last time is `LOGGED_SECONDS` ago."""
        now, state = time.monotonic(), self.state
        phase, last = self._logged
        if phase == state.phase and now - last < LOGGED_SECONDS:
            return
        fields: dict[str, Any] = {"phase": state.phase}
        if state.total:
            fields |= {"committed": state.done, "total": state.total, "errors": state.errors, "usd": state.usd}
        event("progress" if phase == state.phase else "phase", state.words(now), **fields)
        self._logged = (state.phase, now)

    def close(self) -> None:
        """Leaves the terminal as it was."""
        if self._live.is_started:
            self._live.stop()

    def _show(self) -> RenderableType:
        with contextlib.suppress(OSError, io.UnsupportedOperation):  # standard input need not be this terminal
            columns, lines = os.get_terminal_size(self._stream.fileno())
            if columns and lines:
                self._console.size = ConsoleDimensions(columns, lines)
        return display(self.state, time.monotonic(), self._title, self._console.size.height, self._phase_began)

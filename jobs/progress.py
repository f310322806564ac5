"""What a person sees while the job works: a few calm lines, and a log file for everything else.

In a terminal the lines renew themselves in place; elsewhere a plain line appears now and then. Ray and the libraries
write to the standard streams as they like, so for the time of the work both streams of the process lead into the log
file, and only the display keeps the way to the person.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from rich.console import Console, ConsoleDimensions, RenderableType
from rich.live import Live
from rich.text import Text

from jobs.display import State, clock, display

__all__ = ["PLAIN_SECONDS", "Progress", "State", "apart", "clock"]

PLAIN_SECONDS = 10.0  # between two plain lines


class Progress:
    """Shows a State on a stream; `tell` says a line that stays."""

    def __init__(self, stream: TextIO, title: str = "") -> None:
        self.state, self._stream, self._title = State(), stream, title
        self._phase_began, self._said = time.monotonic(), ("", 0.0)
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        # rich would else bring back to the terminal what was led into the log file
        self._live = Live(
            get_renderable=self._show,
            console=self._console,
            refresh_per_second=2,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._renews = self._console.is_terminal and not self._console.is_dumb_terminal
        if self._renews:
            self._live.start()

    def tell(self, words: str) -> None:
        """A line that stays."""
        self._console.print(Text(words))

    def phase(self, phase: str) -> None:
        """What the job is at."""
        self.state.phase, self._phase_began = phase, time.monotonic()
        self.tick()

    def tick(self) -> None:
        """Say a plain line if there is something new to say and no terminal to renew it in."""
        if self._renews:
            return
        now = time.monotonic()
        phase, last = self._said
        if phase != self.state.phase or now - last >= PLAIN_SECONDS:
            self.tell(self.state.words(now))
            self._said = (self.state.phase, now)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live.is_started:
            self._live.stop()

    def _show(self) -> RenderableType:
        with contextlib.suppress(OSError, io.UnsupportedOperation):  # standard input need not be this terminal
            columns, lines = os.get_terminal_size(self._stream.fileno())
            if columns and lines:
                self._console.size = ConsoleDimensions(columns, lines)
        width, height = self._console.size
        return display(self.state, time.monotonic(), self._title, width, height, self._phase_began)


@contextmanager
def apart(name: str) -> Iterator[tuple[Progress, Path]]:
    """Lead standard output and error into a log file; yields the display on the true standard error, and the file."""
    folder = Path(tempfile.gettempdir(), f"dmqr-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    log = folder / f"{name}-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.log"
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    with log.open("ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        encoding = sys.stderr.encoding or "utf-8"
        with os.fdopen(os.dup(kept[1]), "w", encoding=encoding, errors="replace") as stream:
            progress = Progress(stream, name)
            try:
                yield progress, log
            finally:
                progress.close()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in zip((1, 2), kept, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)

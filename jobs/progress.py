"""What a person sees while the job works: one calm line, and a log file for everything else.

In a terminal the line renews itself; elsewhere a plain line appears now and then. Ray and the libraries write to the
standard streams as they like, so for the time of the work both streams of the process lead into the log file, and only
the display keeps the way to the person.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

PLAIN_SECONDS = 10.0  # between two plain lines


@dataclass
class State:
    """What there is to show."""

    phase: str = "starting"
    done: int = 0  # queries
    total: int = 0
    before: int = 0  # of `done`, when the clock began: they tell nothing about the rate
    errors: int = 0
    usd: float | None = None
    began: float = 0.0  # when the first shard of this start came: what went before was start-up

    def rate(self, now: float) -> float:
        """Queries per second since the first shard came; 0 while that is all there is to go by."""
        return (self.done - self.before) / max(1e-9, now - self.began) if self.began else 0.0

    def words(self, now: float) -> str:
        """The state in one line."""
        if not self.total:
            return self.phase
        parts = [f"{self.done:,}/{self.total:,} queries"]
        if rate := self.rate(now):
            parts.append(f"{rate:,.1f}/s")
            if self.done < self.total:
                parts.append(f"ETA {clock((self.total - self.done) / rate)}")
        parts.append(f"{self.errors:,} error{'s' * (self.errors != 1)}")
        if self.usd is not None:
            parts.append(f"${self.usd:.4f}" if self.usd < 1 else f"${self.usd:,.2f}")
        return (f"{self.phase}: " if self.phase != "working" else "") + ", ".join(parts)


class Progress:
    """Shows a State on a stream; `tell` says a line that stays."""

    def __init__(self, stream: TextIO) -> None:
        self.state = State()
        self._phase_began, self._said = time.monotonic(), ("", 0.0)
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        # rich would else bring back to the terminal what was led into the log file
        self._live = Live(
            get_renderable=self._line,
            console=self._console,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        if self._console.is_terminal:
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
        if self._console.is_terminal:
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

    def _line(self) -> Table | Text:
        now = time.monotonic()
        waiting = "" if self.state.began else f" ({clock(now - self._phase_began)})"  # something is going on
        words = Text(self.state.words(now) + waiting, no_wrap=True, overflow="ellipsis")
        if not self.state.total:
            return words
        grid = Table.grid(padding=(0, 1))
        grid.add_row(ProgressBar(total=max(1, self.state.total), completed=self.state.done, width=16), words)
        return grid


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
        with os.fdopen(os.dup(kept[1]), "w", encoding="utf-8", errors="replace") as stream:
            progress = Progress(stream)
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


def clock(seconds: float) -> str:
    """'42 s', '3 min 20 s', '2 h 05 min'."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"

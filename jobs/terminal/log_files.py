"""Destinations of a verb's log: standard error, and two files in the run's `logs/`, for events and library output.

Standard error has a line of text for each event, or with `--log json` a line of JSON, as the run's file of events always has.

Ray and the libraries write to the standard streams as they like. While a verb works both streams of the process lead into a
file, and the events alone reach standard error. Until there is a run to keep them for, that file has no name and events wait
in memory, so a refused verb leaves nothing behind.

Inside somebody else's program nothing is printed, and its streams and signals stay as they are: events go to the run's `logs/`,
and to the handlers that the program has above our logger, as far as its levels let them.
"""

import io
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import IO, Any

from cluster.errors import ClusterError, HeldError
from cluster.host_program import embedded
from cluster.storage import Storage, remote
from jobs.terminal.live_display import LiveDisplay
from jobs.terminal.logs import TREE, JsonLines, attached, event

STORED_SECONDS = 30.0  # between two times that the files are put on S3,
# and more where they are long, since each time the whole file is put: a log that grows by 28 MB a day, put every 30 s, would be
# 40 GB a day; so it is put at 40 MB every ten minutes.
STORED_RATE = 1 << 16  # bytes a second, at most
_WAITING = 10_000  # events that wait for a run
_TAIL = 4000  # bytes of what libraries printed, told with an error where there is no file to look at
TOLD_SECONDS = 1.0  # between two calls of a program's function within a phase
_at_work = threading.Lock()
_DISPLAYED = {"plan", "phase", "progress", "commit", "failures", "retry", "limit", "interrupt"}
"""Events that a display which renews itself shows."""


class LogFiles:
    """The files of one verb's log."""

    def __init__(self, lines: logging.Formatter, output: IO[bytes] | None = None) -> None:
        self.url: str | None = None
        """URL of the events; None: they are not kept yet."""
        self.waiting = MemoryHandler(_WAITING, flushLevel=logging.CRITICAL + 1)
        self._lines, self._output = lines, output
        self._storage: Storage | None = None
        self._files: dict[Path, int] = {}  # local file -> its size when it was put on S3 last
        self._stored = time.monotonic()
        self._putting = threading.Lock()
        self._ended = False

    @property
    def where(self) -> str:
        """The place of details, for messages."""
        return self.url or "the trace above"

    def keep(self, storage: Storage) -> None:
        """Has the log written into the run's `logs/` from now on, with all earlier lines.

        On S3, where nothing can be appended, `store` puts the files.
        """
        name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}"
        if remote(storage.root):
            folder, self._storage = Path(tempfile.mkdtemp(prefix="dmqr-log-")), storage
        else:
            folder = Path(storage.url("logs"))
            folder.mkdir(parents=True, exist_ok=True)
        events, output = folder / f"{name}.jsonl", folder / f"{name}.output.log"
        self._files = {events: 0}
        if self._output is not None:
            self._files[output] = 0
            sys.stdout.flush()
            sys.stderr.flush()
            with output.open("ab", buffering=0) as file:  # which begins with what the standard streams have had so far
                self._output.seek(0)
                shutil.copyfileobj(self._output, file)
                for number in (1, 2):
                    os.dup2(file.fileno(), number)
        handler = logging.FileHandler(events, encoding="utf-8", errors="backslashreplace")
        handler.setFormatter(self._lines)
        self.waiting.setTarget(handler)
        self.waiting.flushLevel = logging.NOTSET  # from now on nothing waits
        self.waiting.flush()
        self.url = storage.url(f"logs/{events.name}")
        event("log", f"log {self.url}", url=self.url)

    def store(self) -> None:
        """Uploads new lines to S3, at most every `STORED_SECONDS` and `STORED_RATE` bytes a second.

        A store that is away is left for the next time.
        """
        if self._storage is None or self._ended:
            return
        wait = max(STORED_SECONDS, sum(self._files.values()) / STORED_RATE)
        if time.monotonic() - self._stored >= wait:
            self._put()

    def close(self) -> None:
        """Writes the last of it; what cannot be put on S3 stays on this machine, and a warning says where."""
        self._ended = True
        if self._storage is not None and (error := self._put()) is not None:
            folder = next(iter(self._files)).parent
            event("warning", f"the log could not be put on S3 ({error}); it is in {folder}", logging.WARNING)
        elif self._storage is not None:
            shutil.rmtree(next(iter(self._files)).parent, ignore_errors=True)
        handler = self.waiting.target
        self.waiting.close()
        if handler is not None:
            handler.close()

    def _put(self) -> Exception | None:
        """Puts the files that have grown; returns what went wrong."""
        assert self._storage is not None
        with self._putting:  # a long one may still be under way when the log is closed
            self._stored = time.monotonic()
            try:
                for path, before in self._files.items():
                    if (size := path.stat().st_size) != before:
                        self._storage.upload(path, f"logs/{path.name}")
                        self._files[path] = size
            except (OSError, ClusterError) as error:
                return error
        return None


class _TextLines(logging.Handler):
    def __init__(self, display: LiveDisplay, files: LogFiles) -> None:
        super().__init__()
        self._display, self._files = display, files

    def emit(self, record: logging.LogRecord) -> None:
        name = getattr(record, "event", "")
        if name == "end" or (self._display.renews and name in _DISPLAYED):  # the end is the last line of standard error
            return
        self._display.say(record.getMessage())
        if record.exc_info and self._files.url is None:
            self._display.say(logging.Formatter().formatException(record.exc_info))


@contextmanager
def logged(verb: str, run: str = "", as_json: bool = False) -> Iterator[tuple[LiveDisplay, LogFiles]]:
    """Sets the log of a verb up; yields the display, on the true standard error, and the log's files; `run` is the run's id."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    encoding = sys.stderr.encoding or "utf-8"
    try:
        with (
            tempfile.TemporaryFile(buffering=0) as output,
            os.fdopen(os.dup(2), "w", encoding=encoding, errors="replace") as stream,
        ):
            for number in (1, 2):
                os.dup2(output.fileno(), number)
            lines = JsonLines(verb=verb, run=run)
            display, files = LiveDisplay(stream, run or verb, renews=not as_json), LogFiles(lines, output)
            seen = logging.StreamHandler(stream) if as_json else _TextLines(display, files)
            seen.setFormatter(lines if as_json else None)
            with attached(seen, files.waiting):
                try:
                    yield display, files
                except Exception as error:
                    size = os.fstat(output.fileno()).st_size
                    tail = os.pread(output.fileno(), _TAIL, max(0, size - _TAIL)).decode(errors="replace").strip()
                    if files.url is None and tail:
                        error.add_note(f"libraries printed last:\n{tail}")
                    raise
                finally:
                    display.close()
                    files.close()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in zip((1, 2), kept, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)


# ---------------------------------------------------------------- inside somebody else's program


class ToldProgress(LiveDisplay):
    """A display that shows nothing, and tells a function."""

    def __init__(self, told: Callable[[dict[str, Any]], object] | None) -> None:
        super().__init__(io.StringIO())
        self._told, self._last = told, ("", 0.0)

    def tick(self) -> None:
        """Logs the progress if the phase is new or the last line is `TOLD_SECONDS` old."""
        super().tick()
        now, (phase, last) = time.monotonic(), self._last
        if self._told is not None and (phase != self.state.phase or now - last >= TOLD_SECONDS):
            self._last = self.state.phase, now
            self._told(self.state.values(now))


@contextmanager
def embedded_log(
    verb: str, run: str = "", told: Callable[[dict[str, Any]], object] | None = None
) -> Iterator[tuple[LiveDisplay, LogFiles]]:
    """Sets the log of a job up; yields the display, and the log's files; `told` is called with the progress.

    Raises:
        HeldError: another job is at work in this process: they would share one log.
    """
    if not _at_work.acquire(blocking=False):
        raise HeldError(
            "run-held", "this process: another thread is running a job; wait for it, or start this one in another process"
        )
    try:
        display, files, tree = ToldProgress(told), LogFiles(JsonLines(verb=verb, run=run)), logging.getLogger(TREE)
        above = [_HandedOn(tree.getEffectiveLevel())] if tree.propagate else []
        with embedded(), attached(files.waiting, *above):
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

"""A watchdog that kills child processes when this process ends, however it ends.

A process that is killed (SIGKILL, out of memory) leaves its children behind: an orphaned engine core would keep the
accelerator's memory, and the next worker could not start. The watchdog is a small shell that reads process ids from a
pipe; when this process ends, so does the pipe, and the shell kills the processes.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Iterator

import psutil

_SHELL = """
while read -r pid; do
  case $pid in new) pids= ;; *) pids="$pids $pid" ;; esac
done
[ -z "$pids" ] || kill -9 $pids 2>/dev/null
"""
_POLL_INTERVAL = 0.5  # seconds


class ChildProcessWatchdog:
    """Kills the child processes that started inside `registering()`, and their children, when this process ends."""

    def __init__(self) -> None:
        """Starts the watchdog's shell."""
        # In a session of its own: a signal to this process's group must not end the shell first.
        self._shell = subprocess.Popen(["/bin/sh", "-c", _SHELL], stdin=subprocess.PIPE, start_new_session=True)
        self._registered: set[int] = set()

    @contextlib.contextmanager
    def registering(self) -> Iterator[None]:
        """Registers every process that starts inside the `with` block."""
        before = _descendants()
        done = threading.Event()

        def poll() -> None:
            while not done.wait(_POLL_INTERVAL):
                self._register(_descendants() - before - self._registered)

        poller = threading.Thread(target=poll, daemon=True)
        poller.start()
        try:
            yield
        finally:
            done.set()
            poller.join()
            self._write("new")  # forgets processes that have ended: their ids may be used again
            self._register(_descendants() - before)

    def close(self) -> None:
        """Ends the watchdog without killing anything; a second call does nothing."""
        self._shell.kill()
        self._shell.wait()

    def _register(self, pids: set[int]) -> None:
        self._registered |= pids
        self._write(*map(str, sorted(pids)))

    def _write(self, *words: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write("".join(f"{word}\n" for word in words).encode())
        self._shell.stdin.flush()


def _descendants() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}

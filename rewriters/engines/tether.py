"""Child processes that must not outlive this one, however it ends.

A process that is killed (SIGKILL, out of memory) leaves its children behind: an orphaned engine core would keep the
accelerator's memory, and the worker that takes over could not start. A small shell waits at a pipe; when this process is
gone the pipe ends, and the shell kills what it was told of.
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
_EVERY = 0.5  # seconds between two looks for new children while something starts


class Tether:
    """Ties every process that is started between entering and leaving `starting()`, children of children too."""

    def __init__(self) -> None:
        # A session of its own: a signal to this process's group must not end the watcher first.
        self._shell = subprocess.Popen(["/bin/sh", "-c", _SHELL], stdin=subprocess.PIPE, start_new_session=True)
        self._known: set[int] = set()

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """While something starts its processes."""
        before = _descendants()
        done = threading.Event()

        def watch() -> None:
            while not done.wait(_EVERY):
                self._tie(_descendants() - before - self._known)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
            self._write("new")  # only what stays: the number of a process that has ended may be another's one day
            self._tie(_descendants() - before)

    def close(self) -> None:
        """Let go: what still lives may go on. A second call does nothing."""
        self._shell.kill()
        self._shell.wait()

    def _tie(self, pids: set[int]) -> None:
        self._known |= pids
        self._write(*map(str, sorted(pids)))

    def _write(self, *words: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write("".join(f"{word}\n" for word in words).encode())
        self._shell.stdin.flush()


def _descendants() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}

"""What a followed job prints, parted as the job itself had it: a job server joins standard output and standard error."""

from __future__ import annotations

import json
import sys
from typing import TextIO


class FollowedLog:
    """Writes a job's log on standard error, and what it prints after its last event, the closing table, on standard output."""

    def __init__(self, log: TextIO | None = None, output: TextIO | None = None) -> None:
        """Begins a log.

        Args:
            log: Where its lines go; None: standard error.
            output: Where its closing table and its folder go; None: standard output.
        """
        self._log, self._output = log or sys.stderr, output or sys.stdout
        self._line = ""  # the last one, as far as it has come
        self._finished = False
        self.last = ""
        """The last line of the closing table: the run's folder."""

    def write(self, text: str) -> None:
        """Takes the next piece of the log."""
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._write(line)

    def close(self) -> None:
        """Writes a last line without an end."""
        if self._line:
            self._write(self._line)
        self._line = ""

    def _write(self, line: str) -> None:
        if self._finished:
            self.last = line or self.last
        print(line, file=self._output if self._finished else self._log, flush=True)
        self._finished = self._finished or _is_good_end(line)


def _is_good_end(line: str) -> bool:
    """Returns whether a line is the event with which the log of a finished run ends."""
    if '"event": "end"' not in line:
        return False
    try:
        event = json.loads(line)
    except ValueError:
        return False
    return isinstance(event, dict) and event.get("event") == "end" and event.get("code") == 0

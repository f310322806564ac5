"""The events of a verb: one tree of Python's loggers, `dmqr`, written as JSON lines or as lines for a person.

A JSON line has `time` (ISO 8601, UTC), `level`, `event`, `message`, `verb`, `run` (the run's id, where there is one), and
then the event's own fields. The events: start, log, index, plan, resume, pools, phase, progress, commit, failures,
retry, outage, recovery, limit, interrupt, compacted, warning, failure, end; lines of our libraries' loggers
below `dmqr` have the event `log_line`.
"""

import errno
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from cluster.cause import cause
from cluster.errors import UnavailableError

TREE = "dmqr"
_log = logging.getLogger(TREE)


def event(name: str, message: str, level: int = logging.INFO, *, error: BaseException | None = None, **fields: object) -> None:
    """Logs an event by its name, with a line for a person, the trace of an error, and JSON-able fields."""
    _log.log(level, "%s", message, extra={"event": name, "fields": fields}, exc_info=error)


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON."""

    def __init__(self, **always: str) -> None:
        """Takes fields of every line; one that is empty is left out."""
        super().__init__()
        self._always = {name: value for name, value in always.items() if value}

    def format(self, record: logging.LogRecord) -> str:
        values = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", "log_line"),
            "message": record.getMessage(),
            **self._always,
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            values["trace"] = self.formatException(record.exc_info)
        values = {name: round(value, 6) if isinstance(value, float) else value for name, value in values.items()}
        return json.dumps(values, ensure_ascii=False, default=str)


@contextmanager
def attached(*handlers: logging.Handler) -> Iterator[None]:
    """Has these handlers, and no others, handle the events for the time of the `with`."""
    before = _log.level, _log.propagate
    _log.setLevel(logging.INFO)
    _log.propagate = False  # Ray gives the root logger handlers of its own
    for handler in handlers:
        _log.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            _log.removeHandler(handler)
        _log.setLevel(before[0])
        _log.propagate = before[1]


_ANOTHER = "correct the path, or name another"
_REMEDIES = {
    errno.ENOSPC: "free space in the output's folder and in that of temporary files (TMPDIR)",
    errno.EDQUOT: "free space in the output's folder and in that of temporary files (TMPDIR)",
    errno.EACCES: "make it writable, or name another",
    errno.EPERM: "make it writable, or name another",
    errno.EROFS: "name another folder, on a disk that can be written",
    errno.ENOENT: "make its folder, or correct the path",
    errno.EPIPE: "the other end of a pipe or connection was closed; start it again",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


def system(error: OSError) -> str:
    """Returns the system's refusal, its place, and the remedy; for a full disk without the file's name."""
    if isinstance(error, UnavailableError):
        return f"{cause(error)}; try again later"
    name = f"{error.filename}: " if error.filename else ""
    return f"{name}{error.strerror or type(error).__name__}; {_REMEDIES.get(error.errno or 0, _ANOTHER)}"

"""What is told of a job: one JSON object of fixed keys, and the same as a text for Slack. No text of a query is in it."""

from __future__ import annotations

import hashlib
import json
import math
import signal
import time
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from cluster.errors import CODES, DmqrError
from jobs.config.notify import Event
from jobs.terminal.formats import clock, money, percent

VERSION = 1  # of the JSON; keys may be added under the same one
LIMITS = frozenset({"stopped-errors", "stopped-cost", "stopped-stall"})
# Codes whose lines hold numbers, names of the config, paths and commands only. In other lines a cell of a table, or what a
# server said of a prompt, may stand: of them the meaning of the code is told, and the line is in the log.
_PLAIN = LIMITS | {
    "interrupted", "stopped-lease", "storage-refused", "storage-unwritable", "disk-space", "storage-away", "run-missing",
    "run-changed", "index-missing", "index-busy", "log-missing", "cluster-away", "cluster-small", "package-missing", "device",
    "prices",
}  # fmt: skip
_TITLES = {
    "end": "finished",
    "failure": "failed",
    "limit": "stopped by a limit",
    "interruption": "interrupted",
    "outage": "waits for a service",
    "recovery": "goes on",
}
What = Event | Literal["recovery"]


class Leading(NamedTuple):
    """The first measure of a job: of a run its results beside the original alone, of an ablation its best arm."""

    name: str
    arm: str
    value: float
    baseline: str | None = None
    baseline_value: float | None = None

    def values(self) -> dict[str, Any] | None:
        """Returns JSON-able values; None where nothing was measured."""
        if not math.isfinite(self.value):
            return None
        below = self.baseline_value if self.baseline_value is not None and math.isfinite(self.baseline_value) else None
        return self._asdict() | {"baseline": None if below is None else self.baseline, "baseline_value": below}


class JobFigures(NamedTuple):
    """How far a job is."""

    done: int = 0
    """Queries that are committed."""
    of: int | None = None
    """None: not known (yet)."""
    traffic: float | None = None
    """The share of the traffic whose queries are committed."""
    usd: float | None = None


_UNKNOWN = JobFigures()


class Away(NamedTuple):
    """A service that a job waits for, or has waited for."""

    service: str
    since: float
    """Seconds since the epoch."""
    seconds: float
    patience: float
    """Seconds after which the job gives up."""

    def values(self) -> dict[str, Any]:
        """Returns JSON-able values."""
        return {
            "service": self.service,
            "since": _iso(self.since),
            "seconds": round(self.seconds),
            "gives_up_after_seconds": round(self.patience),
        }


@dataclass(frozen=True)
class Message:
    """What is told at one time; its values are described in docs/notifications.md."""

    event: What
    verb: str
    name: str
    line: str
    run_id: str | None = None
    folder: str | None = None
    exit_code: int | None = None
    code: str | None = None
    figures: JobFigures = _UNKNOWN
    measure: dict[str, Any] | None = None
    outage: Away | None = None
    time: float = 0.0

    def values(self) -> dict[str, Any]:
        """Returns the JSON object."""
        values = {
            "version": VERSION,
            "event": self.event,
            "time": _iso(self.time),
            "verb": self.verb,
            "name": self.name,
            "run_id": self.run_id,
            "folder": self.folder,
            "exit_code": self.exit_code,
            "code": self.code,
            "line": self.line,
            "queries": {"done": self.figures.done, "of": self.figures.of},
            "traffic": None if self.figures.traffic is None else round(self.figures.traffic, 6),
            "usd": None if self.figures.usd is None else round(self.figures.usd, 6),
            "measure": self.measure,
            "outage": None if self.outage is None else self.outage.values(),
        }
        known = json.dumps([*values.values(), self.time])
        return {"id": hashlib.sha256(known.encode()).hexdigest()[:16]} | values

    def body(self, form: Literal["json", "slack"]) -> bytes:
        """Returns what is sent, in UTF-8."""
        values = self.values() if form == "json" else {"text": self.text()}
        return json.dumps(values, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")

    def text(self) -> str:
        """Returns the text for Slack."""
        code = "" if not self.exit_code else f" (exit code {self.exit_code}{f', {self.code}' if self.code else ''})"
        lines = [f"*{_escaped(self.run_id or self.name)}*: {_TITLES[self.event]}{code}"]
        lines += [_escaped(self.line)] if self.event != "end" else []
        figures, measure = self.figures, self.measure
        parts = []
        if figures.done or figures.of:
            parts.append(f"{figures.done:,}{'' if figures.of is None else f' of {figures.of:,}'} queries")
        parts += [f"{percent(figures.traffic)} of the traffic"] if figures.traffic is not None else []
        parts += [money(figures.usd)] if figures.usd is not None else []
        lines += [_escaped(", ".join(parts))] if parts else []  # a share may be "< 0.1 %"
        if measure is not None:
            arm = "" if self.verb == "run" else f" ({_escaped(measure['arm'])})"
            below = measure["baseline_value"]
            beside = "" if below is None else f", {_escaped(measure['baseline'])} {below:.4f}"
            lines.append(f"{_escaped(measure['name'])} {measure['value']:.4f}{arm}{beside}")
        return "\n".join([*lines, *([_escaped(self.folder)] if self.folder else [])])


class Ending(NamedTuple):
    """How a job that does not finish ends."""

    event: Event
    exit_code: int
    code: str | None
    line: str


def ending(error: BaseException) -> Ending | None:
    """Returns how an error ends a job; None where it is not this job that ends: another driver works on the same run."""
    if isinstance(error, KeyboardInterrupt):
        return Ending("interruption", 128 + signal.SIGINT, "interrupted", "interrupted; what is committed stays")
    if isinstance(error, SystemExit):
        return Ending("interruption", 128 + signal.SIGTERM, "interrupted", "interrupted; what is committed stays")
    if not isinstance(error, DmqrError):
        words = f"{type(error).__name__}; what is committed stays; the log has the trace"
        return Ending("failure", 1, None, words)
    if error.code == "run-held":
        return None
    event: Event = "interruption" if error.code == "interrupted" else "limit" if error.code in LIMITS else "failure"
    return Ending(event, error.exit_code, error.code, _line(error))


def outage_line(away: Away) -> str:
    """Returns the line of an outage."""
    return f"{away.service} has not answered for {clock(away.seconds)}; the job gives up after {clock(away.patience)}"


def recovery_line(away: Away) -> str:
    """Returns the line of an outage's end."""
    return f"{away.service} answers again, after {clock(away.seconds)}"


def _line(error: DmqrError) -> str:
    if error.code in _PLAIN:
        return " ".join(error.line.split())
    where = "standard error, or the exception," if error.exit_code == 2 else "the log"  # what is refused keeps no log
    return f"{CODES[error.code][0].removesuffix('.')}; {where} has the line"


def _escaped(text: str) -> str:
    """Returns a text as Slack wants it; line ends and control characters are spaces."""
    plain = "".join(one if one.isprintable() else " " for one in text)
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))

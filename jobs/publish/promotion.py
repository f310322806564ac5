"""Which version is promoted, and which were before: a stack, from which a rollback takes the last."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cluster.errors import ConfigError, HeldError
from jobs.publish.export import ExportRecord

KEPT = 50
"""Promoted versions of before that are remembered."""


@dataclass(frozen=True)
class Promotion:
    """A promoted version.

    Attributes:
        version: Its name.
        run_id: The run of its rows.
        promoted: When, in UTC.
        history: What a rollback returns to, the last first to go: `version`, `run_id`, `promoted`, `identity` (if known).
        number: Of the promotion, in a folder; 0 in Elasticsearch.
        identity: Of its export; None: an earlier version of dmqr promoted it, which did not note it.
    """

    version: str
    run_id: str
    promoted: str
    history: Sequence[Mapping[str, str]] = ()
    number: int = 0
    identity: str | None = None

    def values(self) -> dict[str, Any]:
        """Returns it as JSON-able values."""
        return asdict(self)

    def is_of(self, record: ExportRecord) -> bool:
        """Returns whether it is of this export; its version may have been removed, and exported again from another run."""
        if self.identity is None:
            return (record.version, record.run_id) == (self.version, self.run_id)
        return (record.version, record.identity) == (self.version, self.identity)


def promoted(record: ExportRecord, before: Promotion | None) -> Promotion:
    """Returns the promotion of a version where `before` is promoted.

    No way leads back to an export that this one has taken the name of.
    """
    history = [] if before is None else [*before.history]
    if before is not None and before.version != record.version:
        names = ("version", "run_id", "promoted", "identity")
        entry = {name: value for name in names if (value := getattr(before, name)) is not None}
        history = [*before.history, entry]
    number = 1 if before is None else before.number + 1
    return Promotion(record.version, record.run_id, _now(), history[-KEPT:], number, record.identity)


def rolled_back(before: Promotion) -> Promotion:
    """Returns the promotion of the version before.

    Raises:
        ConfigError: There was none.
    """
    if not before.history:
        raise ConfigError("publish-version", f"{before.version}: no version was promoted before it; promote another one")
    last = before.history[-1]
    return Promotion(last["version"], last["run_id"], _now(), before.history[:-1], before.number + 1, last.get("identity"))


def overtaken(place: str, now: Promotion | None) -> HeldError:
    """Returns the error of a promotion that came second."""
    what = "nothing is promoted" if now is None else f"{now.version} is promoted, since {now.promoted}"
    return HeldError(
        "publish-overtaken", f"{place}: another promotion came first: {what}; see whether this is meant, and run it again"
    )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")

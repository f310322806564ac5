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
        history: What a rollback returns to, the last first to go: `version`, `run_id`, `promoted`.
        number: Of the promotion, in a folder; 0 in Elasticsearch.
    """

    version: str
    run_id: str
    promoted: str
    history: Sequence[Mapping[str, str]] = ()
    number: int = 0

    def values(self) -> dict[str, Any]:
        """Returns it as JSON-able values."""
        return asdict(self)


def promoted(record: ExportRecord, before: Promotion | None) -> Promotion:
    """Returns the promotion of a version where `before` is promoted."""
    history: list[Mapping[str, str]] = []
    if before is not None:
        history = [*before.history, {"version": before.version, "run_id": before.run_id, "promoted": before.promoted}]
    number = 1 if before is None else before.number + 1
    return Promotion(record.version, record.run_id, _now(), history[-KEPT:], number)


def rolled_back(before: Promotion) -> Promotion:
    """Returns the promotion of the version before.

    Raises:
        ConfigError: There was none.
    """
    if not before.history:
        raise ConfigError("publish-version", f"{before.version}: no version was promoted before it; promote another one")
    last = before.history[-1]
    return Promotion(last["version"], last["run_id"], _now(), before.history[:-1], before.number + 1)


def overtaken(place: str, now: Promotion | None) -> HeldError:
    """Returns the error of a promotion that came second."""
    what = "nothing is promoted" if now is None else f"{now.version} is promoted, since {now.promoted}"
    return HeldError(
        "publish-overtaken", f"{place}: another promotion came first: {what}; see whether this is meant, and run it again"
    )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")

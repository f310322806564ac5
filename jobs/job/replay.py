"""What a replay does again: queries of another run, its parent, that have an error of some reasons."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NOTED = "replay"  # key of run.json, and of the fingerprint's parts
_LABEL = "replay"


@dataclass(frozen=True)
class Replay:
    """The queries of a parent that are done again.

    Attributes:
        of: The parent's run_id.
        path: Its folder.
        reasons: For which its errors/ have them -> how many queries have it, each once a stage.
        query_ids: Sorted.
        thresholds: Those that it took from a sample of all its queries, as its plan keeps them.
    """

    of: str
    path: str
    reasons: Mapping[str, int]
    query_ids: Sequence[str]
    thresholds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def identity(self) -> dict[str, Any]:
        """Returns what it is known by beside its config: of a parent that has gone on, and has more errors, it is another."""
        digest = hashlib.sha256("\n".join(self.query_ids).encode()).hexdigest()[:16]
        return {"of": self.of, "reasons": sorted(self.reasons), "queries": digest}

    @property
    def noted(self) -> dict[str, Any]:
        """Returns what run.json says of it."""
        return {"of": self.of, "path": self.path, "reasons": dict(self.reasons), "queries": len(self.query_ids)}


def replay_label(shown: str | None, most: int) -> str:
    """Returns the label of a replay, in at most so many characters; `shown`: the parent's label, or the date of its log."""
    if shown is None or shown == _LABEL or shown.endswith(f"-{_LABEL}"):
        return shown or _LABEL
    return f"{shown[: most - len(_LABEL) - 1]}-{_LABEL}"

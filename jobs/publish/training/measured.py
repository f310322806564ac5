"""What the gains of training rows are measured by, for the identity and the record of an export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.publish.formats.format import TRAINING
from jobs.publish.training.gains import measured_by
from jobs.runs.folder import RunFolder


def measured_gains(run: RunFolder, options: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Returns format -> `by` in words, and of judgements their `digest`; of formats that measure gains alone.

    Args:
        run: Finished, and no ablation.
        options: Format -> its options, defaults included.

    Raises:
        ConfigError: Gains cannot be measured.
    """
    found: dict[str, dict[str, str]] = {}
    known: dict[tuple[Any, Any], dict[str, str]] = {}
    for name, of in options.items():
        if name in TRAINING and ("min_gain" not in of or of["min_gain"] is not None):
            by = of["qrels"], of["key"]
            if by not in known:
                known[by] = _measured(run, *by)
            found[name] = known[by]
    return found


def _measured(run: RunFolder, qrels: str | None, key: Any) -> dict[str, str]:
    judgements = measured_by(run, qrels, key)
    if judgements is None:
        return {"by": "the reranker's scores"}
    by = judgements.path if judgements.judge is None else f"the run's judge, {judgements.judge.model}"
    return {"by": by, "digest": judgements.digest}

"""What the gains of training rows are measured by, and what asks in them, for the identity and the record of an export."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from jobs.publish.formats.format import TRAINING
from jobs.publish.training.gains import measured_by
from jobs.publish.training.prompts import DEFAULT_PROMPT, strategies_with_prompts, strategy_to_ask
from jobs.runs.folder import RunFolder

_SIDES = {"prompt", "search_as", "output", "keys", "n", "separator", "include_original"}
"""Fields of a strategy that decide the two sides of a row."""


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


def asking_prompts(run: RunFolder, options: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Returns format of training rows -> digest of the prompts that ask in them, and of how their answers are read.

    Args:
        run: Finished, and no ablation.
        options: Format -> its options, defaults included.

    Raises:
        ConfigError: A strategy's file cannot be read, or does not fit.
    """
    found: dict[str, str] = {}
    for name, of in options.items():
        if name not in TRAINING:
            continue
        if name == "chat" and of["prompt_of"] is None:
            asking = strategies_with_prompts(run)
        else:
            asking = {"": strategy_to_ask(run, of["prompt_of"] or DEFAULT_PROMPT)}
        sides = {name: one.model_dump(mode="json", include=_SIDES) for name, one in asking.items()}
        found[name] = hashlib.sha256(json.dumps(sides, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return found

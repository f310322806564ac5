"""The evaluation that a run's report shows, stored beside it for `runs` and for the reports of later nights."""

from __future__ import annotations

import json
from typing import Any

from cluster.storage import Storage
from jobs.measure.evaluate.evaluate import Evaluation, evaluation_values

EVALUATION = "evaluation.json"


def store_evaluation(storage: Storage, evaluation: Evaluation) -> None:
    """Stores an evaluation in a run's folder, in place of an earlier one."""
    storage.put(EVALUATION, json.dumps(evaluation_values(evaluation), indent=1).encode())


def stored_evaluation(output: Storage, folder: str) -> dict[str, Any] | None:
    """Returns `evaluation_values` as they were stored; None: there are none, or they cannot be parsed."""
    try:
        values = json.loads(output.get(f"{folder}/{EVALUATION}") or b"null")
    except ValueError:
        return None
    return values if isinstance(values, dict) and "measures" in values else None

"""The evaluation that a run's report shows, stored beside it for `runs` and for the reports of later nights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from cluster.storage import Storage
from jobs.measure.answers.quality import AnswerQuality
from jobs.measure.evaluate.evaluate import Evaluation
from jobs.measure.evaluate.whole import evaluated_values

EVALUATION = "evaluation.json"


def store_evaluation(storage: Storage, lists: Evaluation | None, answers: Sequence[AnswerQuality] = ()) -> None:
    """Stores an evaluation in a run's folder, in place of an earlier one; nothing where nothing is measured."""
    if values := evaluated_values(lists, answers):
        storage.put(EVALUATION, json.dumps(values, indent=1).encode())


def stored_evaluation(output: Storage, folder: str) -> dict[str, Any] | None:
    """Returns `evaluated_values` as they were stored; None: there are none, or they cannot be parsed."""
    try:
        values = json.loads(output.get(f"{folder}/{EVALUATION}") or b"null")
    except ValueError:
        return None
    return values if isinstance(values, dict) and values.keys() & {"measures", "answers", "judged_answers"} else None

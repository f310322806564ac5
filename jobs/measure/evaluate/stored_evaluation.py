"""The evaluation that a run's report shows, stored beside it for `runs`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from cluster.storage import Storage
from jobs.measure.answers.quality import AnswerQuality
from jobs.measure.evaluate.evaluate import Evaluation
from jobs.measure.evaluate.whole import evaluated_values

EVALUATION = "evaluation.json"


def store_evaluation(
    storage: Storage, lists: Evaluation | None, answers: Sequence[AnswerQuality] = (), *, finished: bool = True
) -> None:
    """Stores an evaluation in a run's folder, in place of an earlier one; nothing where nothing is measured.

    `finished`: whether the run was, when it was measured.
    """
    if values := evaluated_values(lists, answers):
        storage.put(EVALUATION, json.dumps({"finished": finished} | values, indent=1).encode())


def stored_evaluation(output: Storage, folder: str, *, finished: bool) -> dict[str, Any] | None:
    """Returns `evaluated_values` as they were stored; None: there are none, or they cannot be parsed.

    `finished`: whether the run is. Of a finished one, what was measured before its end, of the most frequent queries, is none.
    """
    try:
        values = json.loads(output.get(f"{folder}/{EVALUATION}") or b"null")
    except ValueError:
        return None
    if not isinstance(values, dict) or not values.keys() & {"measures", "answers", "judged_answers"}:
        return None
    return None if finished and not values.get("finished", True) else values

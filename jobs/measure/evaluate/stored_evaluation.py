"""The evaluation that a run's report shows, stored beside it for `runs` and for the reports of later nights."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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


def judged_alike(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Returns whether the means of two evaluations compare: by the same judgements, or by one LLM that was asked alike.

    An evaluation of an earlier version lacks what tells its judgements from others; then their number stands for them, and the
    LLM's name for what it was asked.
    """
    if any(a.get(name) != b.get(name) for name in ("key", "judged_by")):
        return False
    known, instead = ("judge_asked", "judged_by") if "judged_by" in a else ("judgements", "judged")
    of_both = a.get(known), b.get(known)
    return of_both[0] == of_both[1] if None not in of_both else a.get(instead) == b.get(instead)

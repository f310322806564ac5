"""The judge of a run against people's judgements of some of its results (`judge.calibration`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb

from cluster.storage import remote
from jobs.log.judgements import read_qrels
from jobs.measure.judged.agreement import agreement
from jobs.measure.judged_rows import query_of
from jobs.runs.folder import RunFolder


def calibration_notes(
    connection: duckdb.DuckDBPyConnection, run: RunFolder, grades: Mapping[str, Mapping[str, int]], path: str | None = None
) -> list[str]:
    """Returns how far a judge agrees with people; nothing where no judgements of theirs are named.

    Args:
        connection: Registers tables.
        run: Whose results are judged.
        grades: query_id -> doc_id -> the judge's grade.
        path: Of people's judgements; None: those of the run's config.

    Raises:
        ConfigError: The judgements cannot be read.
    """
    named, judge = path is not None, run.config.judge
    path = path or (None if judge is None else judge.calibration)
    if path is None:
        return []
    if not named and not remote(path) and not Path(path).exists():
        return [f"calibration: {path} is not here, so nothing is known of the judge's agreement with people"]
    people = read_qrels(path, "judge.calibration", run.config.evaluate.key)
    pairs = [
        (grade, grades[query_id][doc_id])
        for key, query_id in sorted(query_of(connection, run, people).items())
        if query_id is not None
        for doc_id, grade in sorted(people.grades[key].items())
        if doc_id in grades.get(query_id, {})
    ]
    if not pairs:
        return [f"warning: calibration: the judge has graded no result that {path} judges; see evaluate.key"]
    return [agreement(pairs).note]

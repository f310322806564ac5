"""The judge of a run against people's judgements of some of its results (`judge.calibration`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb

from cluster.errors import ConfigError
from cluster.storage import remote
from jobs.job.judged_ids import qualified_judgements
from jobs.log.judgements import Key, read_qrels
from jobs.measure.judged.agreement import agreement
from jobs.measure.judged_rows import query_of
from jobs.runs.folder import RunFolder
from rewriters.steps.settings import HIGHEST


def calibration_notes(
    connection: duckdb.DuckDBPyConnection,
    run: RunFolder,
    grades: Mapping[str, Mapping[str, int]],
    path: str | None = None,
    key: Key | None = None,
) -> list[str]:
    """Returns how far a judge agrees with people; nothing where no judgements of theirs are named.

    A pair of query and document counts once, however many rows of the log are the query; a grade below 0 is 0.

    Args:
        connection: Registers tables.
        run: Whose results are judged.
        grades: query_id -> doc_id -> the judge's grade.
        path: Of people's judgements; None: those of the run's config.
        key: What those of `path` name; None: as `evaluate.key` says.

    Raises:
        ConfigError: The judgements cannot be read.
    """
    named, judge = path is not None, run.config.judge
    path = path or (None if judge is None else judge.calibration)
    if path is None:
        return []
    if not named and not remote(path) and not Path(path).exists():
        return [f"calibration: {path} is not here, so nothing is known of the judge's agreement with people"]
    names = (key if named else None) or run.config.evaluate.key
    people = read_qrels(path, "calibration" if named else "judge.calibration", names)
    try:
        people = qualified_judgements(people, run.config, run.record.get("indexes") or {})
        query_ids = query_of(connection, run, people)
    except ConfigError as error:
        if named:
            raise
        return [f"warning: calibration: {error}"]
    highest = max(grade for of in people.grades.values() for grade in of.values())
    if highest > HIGHEST:
        words = f"{path} has grades up to {highest:,}, and the judge's are from 0 to {HIGHEST}"
        return [f"warning: calibration: {words}: they are not compared; give grades of the same scale"]
    both: dict[tuple[str, str], int] = {}  # of rows of one query with several grades of a document the highest, as in measures
    for judged, query_id in query_ids.items():
        own = {} if query_id is None else grades.get(query_id, {})
        for doc_id, grade in people.grades[judged].items():
            if query_id is not None and doc_id in own:
                both[query_id, doc_id] = max(0, grade, both.get((query_id, doc_id), 0))
    if not both:
        return [f"warning: calibration: the judge has graded no result that {path} judges; see evaluate.key"]
    pairs = [(grade, grades[query_id][doc_id]) for (query_id, doc_id), grade in sorted(both.items())]
    lower = f" (people's highest grade is {highest} of {HIGHEST})" if highest < HIGHEST else ""
    return [agreement(pairs).note + lower]

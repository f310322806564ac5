"""What a judge found of the nuggets of each query in the arms' answers: the four measures of AutoNuggetizer.

Strict measures count nuggets that the answer says wholly, the others one that it says in part as half; over the vital nuggets,
or over all. As in nuggetizer, the measures of vital nuggets are 0 where a query has none that is vital.
"""

from __future__ import annotations

from typing import NamedTuple

import duckdb

from jobs.measure.judged_rows import database
from jobs.runs.folder import RunFolder

_SUMS = """
WITH known AS (SELECT query_id, nugget, importance = 'vital' AS vital FROM rows_of($nuggets)),
totals AS (SELECT query_id, count(*) AS nuggets, count(*) FILTER (vital) AS vitals FROM known GROUP BY query_id),
found AS (
    SELECT query_id, arm, model, vital, CASE assignment WHEN 'support' THEN 1 ELSE 0 END AS strict,
    CASE assignment WHEN 'support' THEN 1 WHEN 'partial_support' THEN 0.5 ELSE 0 END AS part
    FROM rows_of($assignments) JOIN known USING (query_id, nugget) WHERE sample = $sample
)
SELECT query_id, arm, any_value(model),
coalesce(sum(strict) FILTER (vital), 0) / greatest(any_value(vitals), 1),
coalesce(sum(part) FILTER (vital), 0) / greatest(any_value(vitals), 1),
sum(strict) / any_value(nuggets), sum(part) / any_value(nuggets)
FROM found JOIN totals USING (query_id) GROUP BY query_id, arm HAVING count(*) = any_value(nuggets)
"""


class NuggetScores(NamedTuple):
    """The measures of answers whose nuggets were all looked for."""

    values: dict[tuple[str, str], list[float]]
    """(query_id, arm) -> the value of each of `NUGGET_MEASURES` (`jobs/job/measure_checks.py`)."""
    models: frozenset[str]
    """That looked for them."""
    queries: frozenset[str]
    """That have nuggets."""


_SAME = """
SELECT count(*), count(*) FILTER (a.listed = b.listed)
FROM (SELECT query_id, list([text, importance] ORDER BY nugget) AS listed FROM rows_of($a) GROUP BY query_id) AS a
JOIN (SELECT query_id, list([text, importance] ORDER BY nugget) AS listed FROM rows_of($b) GROUP BY query_id) AS b
USING (query_id)
"""


def same_nuggets(a: RunFolder, b: RunFolder) -> tuple[int, int]:
    """Returns how many queries have nuggets in two runs, and how many of them the same ones.

    Raises:
        ConfigError: files of the runs cannot be read.
    """
    files = {name: list(run.tables.get("nuggets", ())) for name, run in (("a", a), ("b", b))}
    if not all(files.values()):
        return 0, 0
    with database(a, b) as connection:
        both, same = connection.execute(_SAME, files).fetchall()[0]
    return int(both), int(same)


def nugget_scores(connection: duckdb.DuckDBPyConnection, run: RunFolder, sample: int = 0) -> NuggetScores:
    """Returns the measures of a run's answers, or of those of all arms.

    Args:
        connection: Reads the run's tables.
        run: Whose judge makes nuggets.
        sample: From 0, which of several assignments of the same.
    """
    nuggets, assignments = (list(run.tables.get(name, ())) for name in ("nuggets", "assignments"))
    if not nuggets:
        return NuggetScores({}, frozenset(), frozenset())
    queries = connection.execute("SELECT DISTINCT query_id FROM rows_of(?)", [nuggets]).fetchall()
    rows = []
    if assignments:
        given = {"nuggets": nuggets, "assignments": assignments, "sample": sample}
        rows = connection.execute(_SUMS, given).fetchall()
    return NuggetScores(
        {(query_id, arm): [float(value) for value in of] for query_id, arm, _, *of in rows},
        frozenset(model for _, _, model, *_ in rows),
        frozenset(query_id for (query_id,) in queries),
    )

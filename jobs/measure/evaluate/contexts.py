"""The earlier turns of queries, for those who show a query."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from jobs.measure.evaluate.per_query import database
from jobs.runs.folder import RunFolder


def contexts_of(run: RunFolder, query_ids: Iterable[str]) -> dict[str, str]:
    """Returns query_id -> the earlier turns, of the queries that have some; two queries may differ in them alone.

    Raises:
        ConfigError: files of the run cannot be read.
    """
    wanted = pa.table({"query_id": pa.array(sorted(set(query_ids)), pa.string())})
    if run.config.log.context_column is None or not wanted.num_rows:
        return {}
    with database(run) as connection:
        connection.register("wanted", wanted)
        rows = connection.execute(
            "SELECT query_id, context FROM read_parquet(?) SEMI JOIN wanted USING (query_id) WHERE context IS NOT NULL",
            [run.tables["queries"]],
        ).fetchall()
    return dict(rows)

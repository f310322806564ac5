"""Earlier turns of queries, for those who show a query."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from jobs.measure.judged_rows import database
from jobs.runs.folder import RunFolder


def contexts_of(run: RunFolder, query_ids: Iterable[str]) -> dict[str, str | None]:
    """Returns query_id -> its earlier turns, in the order of the ids; None: there are none.

    Raises:
        ConfigError: files of the run cannot be read.
    """
    found: dict[str, str | None] = dict.fromkeys(query_ids)
    if not found or run.config.log.context_column is None:
        return found
    with database(run) as connection:
        connection.register("wanted", pa.table({"query_id": pa.array(sorted(found), pa.string())}))
        query = "SELECT query_id, context FROM rows_of(?) SEMI JOIN wanted USING (query_id)"
        found |= dict(connection.execute(query, [run.tables["queries"]]).fetchall())
    return found

"""What queries were asked with, for those who show a query: its earlier turns, and the values that filter its documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa

from jobs.measure.judged_rows import database
from jobs.runs.folder import RunFolder


class AskedWith(NamedTuple):
    """What two queries of the same words may differ in.

    Attributes:
        context: The earlier turns; None: there are none.
        filters: Column of the log -> the query's value, of the columns of `retrieve.filters`.
    """

    context: str | None = None
    filters: Mapping[str, str] = {}


NOTHING = AskedWith()


def asked_with(run: RunFolder, query_ids: Iterable[str]) -> dict[str, AskedWith]:
    """Returns query_id -> what it was asked with, in the order of the ids; `NOTHING` without earlier turns and filters.

    Raises:
        ConfigError: files of the run cannot be read.
    """
    found = dict.fromkeys(query_ids, NOTHING)
    of_log, columns = run.config.log.context_column is not None, filter_columns(run)
    if not found or not (of_log or columns):
        return found
    wanted = pa.table({"query_id": pa.array(sorted(found), pa.string())})
    named = ["query_id", "context" if of_log else "NULL AS context", '"values"' if columns else 'NULL AS "values"']
    with database(run) as connection:
        connection.register("wanted", wanted)
        source = "rows_of($queries) SEMI JOIN wanted USING (query_id)"
        query = f"SELECT {', '.join(named)} FROM {source}"
        rows = connection.sql(query, params={"queries": run.tables["queries"]}).to_arrow_table()
    for row in rows.to_pylist():
        values = dict(row["values"] or ())
        filters = {name: values[name] for name in columns if values.get(name) is not None}
        found[row["query_id"]] = AskedWith(row["context"], filters)
    return found


def filter_columns(run: RunFolder) -> list[str]:
    """Returns the columns of the log by whose values the documents of its queries are filtered, sorted."""
    return sorted(set(run.config.retrieve.filters.values()))

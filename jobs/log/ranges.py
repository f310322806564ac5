"""Phase two of dedup: the queries of a range of query_ids, out of the files of all parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.run.shards import File
from jobs.log.judge import normal_forms
from jobs.log.parts import CONTEXT, DedupTask, put, query
from jobs.tables import OPTIONAL_QUERIES, STORED, VALUES

SHARDS_PER_FILE = 64

MERGE = """
SELECT query_id, first(raw ORDER BY n DESC, raw) AS query, sum(n)::BIGINT AS log_count
FROM (
    SELECT query_id, raw, sum(n) AS n FROM read_parquet($texts)
    WHERE query_id >= $low AND query_id < $high GROUP BY query_id, raw
)
GROUP BY query_id ORDER BY query_id
"""
# The minimum, not the first in an order: its state has one form, however many a query has.
SHOWN = """
SELECT query_id, "column", min({'before': -n, 'form': form}).form AS form
FROM (
    SELECT query_id, "column", form, sum(n) AS n FROM read_parquet($forms)
    WHERE query_id >= $low AND query_id < $high GROUP BY query_id, "column", form
)
GROUP BY query_id, "column"
"""


def merge_range(task: DedupTask, texts: list[str], forms: list[str], bounds: tuple[str, str]) -> list[File]:
    """Runs phase two on a range of query_ids; returns the files of queries/ written, in order."""
    low, high = bounds
    found = query(MERGE, {"texts": texts, "low": low, "high": high}, threads=1)
    normalised = normal_forms(found.column("query").combine_chunks())
    found = found.append_column("normalised", normalised).select(STORED["queries"].names)
    for name, column in _more(task, found, forms, bounds).items():
        found = found.append_column(OPTIONAL_QUERIES.field(name), column)
    size = SHARDS_PER_FILE * task.shard_size
    return [
        put(task, "queries", f"{low}-{start // size:05d}", found.slice(start, size), row_group_size=task.shard_size)
        for start in range(0, len(found), size)
    ]


def _more(task: DedupTask, queries: pa.Table, forms: list[str], bounds: tuple[str, str]) -> dict[str, pa.Array]:
    """Returns those of OPTIONAL_QUERIES that the log's columns ask for, in their order."""
    columns, more = task.columns, {}
    wanted = columns.context_column is not None or columns.values
    shown = _shown(queries.column("query_id"), forms, bounds, len(columns.values)) if wanted else []
    if columns.context_column is not None:
        more["context"] = shown[CONTEXT]
    if columns.classify is not None:
        more["query_type"] = pa.array(columns.classify.types(queries.column("query").to_pylist()), pa.string())
    if columns.values:
        more["values"] = _maps(columns.values, shown[CONTEXT + 1 :])
    return more


def _shown(query_ids: pa.ChunkedArray, forms: list[str], bounds: tuple[str, str], values: int) -> list[pa.StringArray]:
    """Returns the context of each query, then each column's value: the form most often asked with; null if there is none."""
    if not forms:
        return [pa.nulls(len(query_ids), pa.string())] * (1 + values)
    low, high = bounds
    found = query(SHOWN, {"forms": forms, "low": low, "high": high}, threads=1)
    shown = []
    for column in range(CONTEXT, CONTEXT + 1 + values):
        own = found.filter(pc.equal(found.column("column"), column)).combine_chunks()
        place = pc.index_in(query_ids.combine_chunks(), value_set=own.column("query_id"))
        shown.append(own.column("form").combine_chunks().take(place))
    return shown


def _maps(names: Sequence[str], items: Sequence[pa.StringArray]) -> pa.MapArray:
    """Returns a map of all names to each row's items."""
    rows = len(items[0])
    flat = pa.concat_arrays(items).take(pa.array(np.arange(rows * len(names)).reshape(len(names), rows).T.ravel()))
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * len(names))
    return pa.MapArray.from_arrays(offsets, pa.array([*names] * rows, pa.string()), flat, type=VALUES)

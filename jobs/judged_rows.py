"""What evaluation reads of a run: the judged log_ids, their queries, and what these queries found; by DuckDB, in order.

No table is held in Python: what is joined to the judgements comes some thousand rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import duckdb
import pyarrow as pa

from jobs.fuse import fuse_original
from jobs.judgements import Judgements
from jobs.run_folder import RunFolder
from jobs.tables import ORIGINAL

BATCH_ROWS = 1 << 14


def query_of(connection: duckdb.DuckDBPyConnection, run: RunFolder, judgements: Judgements) -> dict[str, str | None]:
    """The judged log_ids that the log has -> their query_id, None for a rejected row. Leaves the table `wanted`."""
    connection.register("judged", pa.table({"log_id": pa.array(list(judgements.grades), pa.string())}))
    # an id may come again, also rejected once and once not: its query is what counts
    found = connection.execute(
        "SELECT log_id, max(query_id) FROM read_parquet(?) JOIN judged USING (log_id) GROUP BY log_id",
        [run.tables["query_map"]],
    ).fetchall()
    wanted = sorted({query_id for _, query_id in found if query_id is not None})
    connection.register("wanted", pa.table({"query_id": pa.array(wanted, pa.string())}))
    return dict(found)


def not_committed(connection: duckdb.DuckDBPyConnection, run: RunFolder) -> set[str]:
    """The wanted queries whose shard has no manifest. A shard is a row group of a planned file, all of whose are shards."""
    done = {manifest.shard for manifest in run.manifests}
    begins: dict[str, int] = {}
    pending = []
    for shard in sorted(run.plan.shards, key=lambda shard: (shard.key, shard.row_group)):
        begin = begins.get(shard.key, 0)
        begins[shard.key] = begin + shard.rows
        if shard.number not in done:
            pending.append({"filename": run.storage.url(shard.key), "first": begin, "next": begin + shard.rows})
    if not pending:
        return set()
    connection.register("pending", pa.Table.from_pylist(pending))
    rows = connection.execute(
        "SELECT query_id FROM read_parquet(?, filename = true, file_row_number = true) AS queries"
        " SEMI JOIN wanted USING (query_id) JOIN pending ON queries.filename = pending.filename"
        " AND file_row_number >= first AND file_row_number < next",
        [sorted({str(shard["filename"]) for shard in pending})],
    ).fetchall()
    return {query_id for (query_id,) in rows}


def results(connection: duckdb.DuckDBPyConnection, run: RunFolder, depth: int) -> Iterator[tuple[str, list[str]]]:
    """The wanted queries that have results, and the doc_ids of the first `depth`."""
    rows = _rows(connection, run, "results", ("doc_id",), f"rank <= {depth} ORDER BY query_id, rank")
    for query_id, found in rows:
        yield query_id, [doc_id for _, doc_id in found]


def originals(connection: duckdb.DuckDBPyConnection, run: RunFolder, kept: int) -> Iterator[tuple[str, list[str]]]:
    """The wanted queries that the original found something for, and the doc_ids that it alone comes to: its lists fused as
    the run fuses, the first `kept`, as many as the results may have."""
    settings = run.config.fuse.model_dump()
    columns = ("position", "retriever", "doc_id", "score")
    condition = f"strategy = '{ORIGINAL}' AND rank <= {settings['depth']} ORDER BY query_id, retriever, rank"
    for query_id, found in _rows(connection, run, "runs", columns, condition):
        fused = fuse_original([dict(zip(("query_id", *columns), row, strict=True)) for row in found], settings)
        yield query_id, [doc_id for doc_id, _ in fused[query_id][:kept]]


def _rows(
    connection: duckdb.DuckDBPyConnection, run: RunFolder, table: str, columns: Sequence[str], condition: str
) -> Iterator[tuple[str, Iterator[tuple[Any, ...]]]]:
    """A table's rows of the wanted queries, by query, some thousands in memory at a time."""
    if table not in run.tables:  # no committed shard has a row of it
        return
    # a relation, not execute(): its Arrow output came out of order with DuckDB 2.0 where insertion order is not preserved
    found = connection.sql(
        f"SELECT query_id, {', '.join(columns)} FROM read_parquet($files) SEMI JOIN wanted USING (query_id) WHERE {condition}",
        params={"files": run.tables[table]},
    ).to_arrow_reader(BATCH_ROWS)
    rows = (row for batch in found for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
    yield from groupby(rows, key=itemgetter(0))


def strangers(connection: duckdb.DuckDBPyConnection, run: RunFolder, judgements: Judgements) -> tuple[str, str] | None:
    """A judged log_id and one of the log, for a person to see why they do not meet."""
    there = connection.execute("SELECT log_id FROM read_parquet(?) LIMIT 1", [run.tables["query_map"]]).fetchone()
    return None if there is None else (next(iter(judgements.grades)), str(there[0]))

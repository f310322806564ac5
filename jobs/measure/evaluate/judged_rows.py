"""The rows of a run that evaluation reads by DuckDB: what is judged, its queries, and the documents of these queries.

No table is held in memory whole: rows joined to the judgements come some thousand at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from cluster.errors import ConfigError
from jobs.chain.cuts import cuts_of
from jobs.log.judgements import Judgements, Key
from jobs.measure.evaluate.original import fuse_original
from jobs.runs.folder import RunFolder
from jobs.tables import ORIGINAL

BATCH_ROWS = 1 << 14
THREADS = 2  # of a connection
ARM_LISTS = ("results", "tails")  # the tables that hold the lists of an ablation's arms
_PLACES: dict[Key, tuple[str, str]] = {  # the table and column in which a judged key stands
    "log_id": ("query_map", "log_id"),
    "query_id": ("queries", "query_id"),
    "query": ("queries", "normalised"),
}


def query_of(connection: duckdb.DuckDBPyConnection, run: RunFolder, judgements: Judgements) -> dict[str, str | None]:
    """Returns judged key in the log -> its query_id, None for a rejected row; registers the query_ids as table `wanted`."""
    if judgements.key == "query" and run.config.retrieve.filters:
        where = f"{judgements.path}: judges texts of queries, and with retrieve.filters one text is several queries"
        raise ConfigError("judgements", f"{where}; judge log rows or query_ids (--key)")
    table, column = _PLACES[judgements.key]
    connection.register("judged", pa.table({"judged": pa.array(list(judgements.grades), pa.string())}))
    # a judged text is a query on its own: after earlier turns the same words are another one
    alone = " WHERE context IS NULL" if judgements.key == "query" and run.config.log.context_column is not None else ""
    # Runs of earlier versions have half a million rows in a row group of query_map, and each thread holds one: of 10 million
    # rows two threads ran out of 256 MB at times, one did not and was as fast.
    connection.execute("SET threads = 1")
    # a log_id may have several rows, some of them rejected: its query_id is the one that is not null
    found = connection.execute(
        f"SELECT judged, max(query_id) FROM read_parquet(?) JOIN judged ON judged = {column}{alone} GROUP BY judged",
        [run.tables[table]],
    ).fetchall()
    connection.execute(f"SET threads = {THREADS}")
    wanted = sorted({query_id for _, query_id in found if query_id is not None})
    connection.register("wanted", pa.table({"query_id": pa.array(wanted, pa.string())}))
    return dict(found)


def not_committed(connection: duckdb.DuckDBPyConnection, run: RunFolder) -> set[str]:
    """Returns the wanted query_ids whose shard has no manifest."""
    if not run.pending:
        return set()
    connection.register("pending", pa.Table.from_pylist(run.pending))
    rows = connection.execute(
        "SELECT query_id FROM read_parquet(?, filename = true, file_row_number = true) AS queries"
        " SEMI JOIN wanted USING (query_id) JOIN pending ON queries.filename = pending.filename"
        " AND file_row_number >= first AND file_row_number < next",
        [sorted({str(shard["filename"]) for shard in run.pending})],
    ).fetchall()
    return {query_id for (query_id,) in rows}


def results(connection: duckdb.DuckDBPyConnection, run: RunFolder, depth: int) -> Iterator[tuple[str, list[str]]]:
    """Yields wanted query_ids with results, and the doc_ids of their first `depth` results."""
    for rows in _rows(connection, run, ("results",), ("doc_id",), f"rank <= {depth} ORDER BY query_id, rank"):
        pairs = zip(*(column.to_pylist() for column in rows.columns), strict=True)
        for query_id, found in groupby(pairs, key=itemgetter(0)):
            yield query_id, [doc_id for _, doc_id in found]


def arm_results(connection: duckdb.DuckDBPyConnection, run: RunFolder) -> Iterator[pa.Table]:
    """Yields tables of `query_id`, `arm` and `doc_id`: all that arms have of some wanted queries, by query, arm and rank.

    Behind the results stand the documents that measures read beyond them.
    """
    yield from _rows(connection, run, ARM_LISTS, ("arm", "doc_id"), "true ORDER BY query_id, arm, rank")


def originals(connection: duckdb.DuckDBPyConnection, run: RunFolder, kept: int) -> Iterator[tuple[str, list[str]]]:
    """Yields wanted query_ids, and the doc_ids that the original query alone finds, best first.

    Its lists are fused as in the run, without hits below a floor, and cut after `kept` documents, as the results are.
    """
    settings, cuts = run.config.fuse, cuts_of(run.config, {})
    floors = [(name.replace("'", "''"), cuts.of(ORIGINAL, name)[1]) for name in run.config.retrieve.retrievers]
    above = [f" AND (retriever != '{name}' OR score >= '{floor!r}'::DOUBLE)" for name, floor in floors if floor is not None]
    columns = ("position", "retriever", "doc_id", "score")
    condition = f"strategy = '{ORIGINAL}' AND rank <= {settings.depth}{''.join(above)} ORDER BY query_id, retriever, rank"
    for rows in _rows(connection, run, ("runs",), columns, condition):
        for query_id, doc_ids in fuse_original(rows, settings).items():
            yield query_id, doc_ids[:kept]


def _rows(
    connection: duckdb.DuckDBPyConnection, run: RunFolder, tables: Sequence[str], columns: Sequence[str], condition: str
) -> Iterator[pa.Table]:
    """Yields the tables' rows of the wanted queries, some thousands at a time, all rows of a query together."""
    files = [file for table in tables for file in run.tables.get(table, ())]
    if not files:  # no committed shard has a row of them
        return
    # a relation, not execute(): its Arrow output came out of order with DuckDB 2.0 where insertion order is not preserved
    found = connection.sql(
        f"SELECT query_id, {', '.join(columns)} FROM read_parquet($files, union_by_name = true)"
        f" SEMI JOIN wanted USING (query_id) WHERE {condition}",
        params={"files": files},
    ).to_arrow_reader(BATCH_ROWS)
    buffer = found.schema.empty_table()
    for batch in found:
        buffer = pa.concat_tables([buffer, pa.Table.from_batches([batch])])
        query_ids = buffer.column("query_id")
        last = pc.index(query_ids, query_ids[-1]).as_py() if buffer.num_rows else 0  # its rows may go on in the next batch
        if last:
            yield buffer.slice(0, last)
            buffer = buffer.slice(last)
    if buffer.num_rows:
        yield buffer


def unmatched(connection: duckdb.DuckDBPyConnection, run: RunFolder, judgements: Judgements) -> tuple[str, str] | None:
    """Returns a judged key and one of the log, as examples of keys that do not match; None for an empty log."""
    table, column = _PLACES[judgements.key]
    logged = connection.execute(f"SELECT {column} FROM read_parquet(?) LIMIT 1", [run.tables[table]]).fetchall()
    return (next(iter(judgements.grades)), str(logged[0][0])) if logged else None

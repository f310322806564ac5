"""The two phases of dedup.

A part of the log becomes its query_map, its rejected rows, and files of texts; a range of query_ids, out of those of all parts,
becomes queries, after it was counted how often each is asked.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster.run.shards import File
from cluster.storage import open_storage
from cluster.storage.s3_duckdb import bounded_duckdb, no_room
from jobs.log.check import LogColumns, RowGroup
from jobs.log.rejections import Groups, Ints, Rejection, encode, group_rows, hex_ids, normal_forms
from jobs.log.rows import read_rows
from jobs.log.tiers import Cut, divided
from jobs.tables import STORED, VALUES

MEMORY = "256MB"  # of one DuckDB
PLAN = "plan"  # the folder of the intermediate files
# Parquet options by table. Row groups of texts are small, since phase two reads only those that overlap its range. Repeated
# query_ids are dictionary-encoded; statistics of unsorted ids are useless and took half of the time. Row groups of query_map
# are small, since a scanning thread holds pages and dictionary of one: with half a million rows in each, four threads ran out
# of MEMORY from 3 million rows on.
OPTIONS: dict[str, dict[str, Any]] = {
    PLAN: {"row_group_size": 1 << 12, "compression": "none", "use_dictionary": False, "write_statistics": ["query_id"]},
    "query_map": {
        "row_group_size": 1 << 16,
        "use_dictionary": ["query_id"],
        "dictionary_pagesize_limit": 1 << 24,
        "write_statistics": False,
    },
    "queries": {"use_dictionary": False},
    "errors": {},
}
ROW_GROUP_BYTES = {PLAN: 1 << 20, "query_map": 1 << 22}  # at most, where rows are long


class DedupTask(NamedTuple):
    """The parameters shared by all parts and ranges."""

    storage: str
    attempt: str  # unique to this call
    columns: LogColumns
    shard_size: int


def put(task: DedupTask, table: str, name: str, rows: pa.Table, **options: Any) -> File:
    """Writes rows to a file with a unique name; no file is written without rows."""
    key = f"{table}/plan-{task.attempt}-{name}-{uuid.uuid4().hex[:8]}.parquet"
    if not len(rows):
        return File(key, 0, 0)
    sink = pa.BufferOutputStream()  # not a Python file, so that other threads can run meanwhile
    options = {"row_group_size": len(rows), "compression": "zstd"} | OPTIONS[table] | options
    if table in ROW_GROUP_BYTES:
        fitting = len(rows) * ROW_GROUP_BYTES[table] // max(1, rows.nbytes)
        options["row_group_size"] = max(1, min(options["row_group_size"], fitting))
    pq.write_table(rows, sink, store_schema=False, **options)
    data = sink.getvalue().to_pybytes()
    open_storage(task.storage).put(key, data)
    return File(key, len(rows), len(data))


def query(sql: str, params: dict[str, Any], threads: int) -> pa.Table:
    """Returns the result of a DuckDB query; raises LogError if memory or disk space is used up."""
    try:
        with bounded_duckdb(MEMORY, threads) as connection:
            return connection.sql(sql, params=params).to_arrow_table()
    except duckdb.Error as error:
        remedy = "lower log.max_chars, or leave out log.id_column"
        raise no_room("dedup could not group the log", error, MEMORY, remedy) from error


QUERY, CONTEXT = 0, 1  # columns of forms; those of values are numbered from 2


class PartFiles(NamedTuple):
    """The files and counts that phase one makes of some rows."""

    forms: File  # query_id, column, form, n: of queries, contexts and values
    query_map: File
    errors: File
    rejected: Counter[str]
    total: int  # sum of the counts


def read_part(task: DedupTask, part: tuple[int, list[RowGroup]]) -> list[PartFiles]:
    """Runs phase one on the row groups of a part, PIECE_BYTES of rows at a time; returns the files written."""
    number, groups = part
    return [_dedup_rows(task, f"{number:05d}-{place:03d}", rows) for place, rows in enumerate(read_rows(groups, task.columns))]


def _dedup_rows(task: DedupTask, name: str, rows: pa.Table) -> PartFiles:
    groups = group_rows(rows, task.columns.max_chars)
    codes, size = groups.codes, len(groups.raws) + 1
    kept = np.delete(np.arange(size), list(groups.rejections))
    digests = groups.digests[kept]
    ids = hex_ids(digests)
    places = np.full(size, -1, np.int32)
    places[kept] = np.arange(len(kept))
    places = places[codes]  # (rows,) index into ids; -1: rejected
    # not a DictionaryArray, of which each row group would store the whole dictionary
    query_ids = ids.take(pa.array(places, mask=places < 0))

    n = rows.column("n").to_numpy()
    counts = np.zeros(size, np.int64)
    np.add.at(counts, codes, n)
    rejected = np.flatnonzero(places < 0)
    faults = rows.column("fault").take(pa.array(rejected)).to_pylist()
    why = [
        Rejection("malformed", fault, None) if fault else groups.rejections[code]
        for code, fault in zip(codes[rejected].tolist(), faults, strict=True)
    ]
    values: dict[str, Any] = {field: [getattr(one, field) for one in why] for field in Rejection._fields}
    values |= {
        "log_id": rows.column("log_id").take(pa.array(rejected)),
        "stage": ["log"] * len(why),
        "attempts": [1] * len(why),
    }
    schema = STORED["errors"]
    errors = pa.table([values.get(field.name, pa.nulls(len(why), field.type)) for field in schema], schema=schema)
    return PartFiles(
        _put_forms(task, name, list(_forms(task, rows, groups, kept, counts[kept], places)), digests),
        put(task, "query_map", name, pa.table({"log_id": rows.column("log_id"), "query_id": query_ids})),
        put(task, "errors", name, errors),
        Counter(one.reason for one in why),
        (int((n >> 32).sum()) << 32) + int((n & (2**32 - 1)).sum()),  # exact, where an int64 would overflow
    )


def _forms(
    task: DedupTask, rows: pa.Table, groups: Groups, kept: Ints, counts: Ints, places: Ints
) -> Iterator[tuple[Ints, int, pa.StringArray, Ints]]:
    """Yields the forms of a column: index of the query, number of the column, form, sum of the counts."""
    yield np.arange(len(kept)), QUERY, groups.raws.take(pa.array(kept)).cast(pa.string()), counts
    if groups.contexts is not None:
        own = groups.contexts.take(pa.array(kept))
        there = np.flatnonzero(own.is_valid())
        yield there, CONTEXT, own.take(pa.array(there)).cast(pa.string()), counts[there]
    n = rows.column("n").to_numpy()
    for column, name in enumerate(task.columns.values, CONTEXT + 1):
        codes, forms = encode(rows.column(f"value.{name}"))
        there = np.flatnonzero((places >= 0) & (codes < len(forms)))
        pairs, place = np.unique(places[there].astype(np.int64) * len(forms) + codes[there], return_inverse=True)
        sums = np.zeros(len(pairs), np.int64)
        np.add.at(sums, place, n[there])
        query, form = np.divmod(pairs, max(1, len(forms)))
        yield query, column, forms.take(pa.array(form)), sums


def _put_forms(task: DedupTask, name: str, found: list[tuple[Ints, int, pa.StringArray, Ints]], digests: Ints) -> File:
    """Writes the forms of all columns to one file, sorted by the first 8 bytes of the ids, which is enough to split ranges."""
    queries, columns, texts, counts = zip(*found, strict=True)
    place = np.concatenate(queries)
    order = np.argsort(digests.view(">u8")[:, 0].astype(np.uint64)[place])
    column = np.concatenate([np.full(len(of), number, np.int16) for of, number in zip(queries, columns, strict=True)])
    forms = {"form": pa.concat_arrays(texts), "column": pa.array(column), "n": pa.array(np.concatenate(counts))}
    query_ids = hex_ids(digests[place[order]])
    return put(task, PLAN, name, pa.table(forms).take(pa.array(order)).append_column("query_id", query_ids))


SHARDS_PER_FILE = 64

COUNTS = """
SELECT n AS asked, count(*) AS queries
FROM (
    SELECT sum(n)::BIGINT AS n FROM rows_of($forms)
    WHERE "column" = 0 AND query_id >= $low AND query_id < $high GROUP BY query_id
)
GROUP BY n
"""
# The minimum, not the first in an order: its state has one form, however many a query has.
CHOSEN = """
SELECT query_id, "column", min({'before': -n, 'form': form}).form AS form, sum(n)::BIGINT AS n
FROM (
    SELECT query_id, "column", form, sum(n) AS n FROM rows_of($forms)
    WHERE query_id >= $low AND query_id < $high GROUP BY query_id, "column", form
)
GROUP BY query_id, "column" ORDER BY query_id
"""


def count_range(forms: list[str], bounds: tuple[str, str]) -> dict[int, int]:
    """Returns, of the queries in a range of query_ids: times asked -> how many queries were."""
    low, high = bounds
    found = query(COUNTS, {"forms": forms, "low": low, "high": high}, threads=1)
    return {one["asked"]: one["queries"] for one in found.to_pylist()}


def merge_range(task: DedupTask, forms: list[str], range_: tuple[tuple[str, str], Cut | None]) -> tuple[list[File], list[File]]:
    """Runs phase two on a range of query_ids, with the cut of its head; returns the files of the head, and the others."""
    (low, high), cut = range_
    chosen = query(CHOSEN, {"forms": forms, "low": low, "high": high}, threads=1)
    numbers = range(CONTEXT + 1 + len(task.columns.values))
    own, *others = (chosen.filter(pc.equal(chosen["column"], number)) for number in numbers)
    query_ids, texts = own["query_id"].combine_chunks(), own["form"].combine_chunks()
    shown = [of["form"].combine_chunks().take(pc.index_in(query_ids, of["query_id"])) for of in others]
    columns = {"query_id": query_ids, "query": texts, "normalised": normal_forms(texts), "log_count": own["n"]}
    if task.columns.context_column is not None:
        columns["context"] = shown[0]
    if task.columns.classify is not None:
        columns["query_type"] = pa.array(task.columns.classify(texts.to_pylist()), pa.string())
    if task.columns.values:
        columns["values"] = _maps(task.columns.values, shown[CONTEXT:])
    head, rest = divided(pa.table(columns), cut)
    return _put_queries(task, f"0-{low}", head), _put_queries(task, low if cut is None else f"1-{low}", rest)


def _put_queries(task: DedupTask, name: str, queries: pa.Table) -> list[File]:
    size = SHARDS_PER_FILE * task.shard_size
    return [
        put(task, "queries", f"{name}-{start // size:05d}", queries.slice(start, size), row_group_size=task.shard_size)
        for start in range(0, len(queries), size)
    ]


def _maps(names: Sequence[str], items: Sequence[pa.StringArray]) -> pa.MapArray:
    """Returns a map of all names to each row's items."""
    rows = len(items[0])
    flat = pa.concat_arrays(items).take(pa.array(np.arange(rows * len(names)).reshape(len(names), rows).T.ravel()))
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * len(names))
    return pa.MapArray.from_arrays(offsets, pa.array([*names] * rows, pa.string()), flat, type=VALUES)

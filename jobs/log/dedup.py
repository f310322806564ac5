"""Deduplication of the log: equal queries become one, every log row is mapped to its query, unusable rows become errors.

A group-by in two phases. Phase one reads a part of the log, groups its rows by raw text, normalises and hashes each
distinct text once, and stores the part's query_map, its rejected rows, and (query_id, text, n) sorted by query_id. Phase two
reads a range of query_ids from all parts, sums the counts, chooses the most frequent form, and stores the queries. Both
phases take only names and write under unique names, so that any machine can process any part, repeatedly if necessary: only
the returned files count.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cluster.errors import ClusterError, LogError
from cluster.run.shards import File, Shard
from cluster.run.spread import THREADS, spread
from cluster.storage import Storage, open_storage, remote
from cluster.storage.s3_duckdb import attach, reason
from jobs.log.check import LogColumns, RowGroup, check_log
from jobs.log.files import LogFile
from jobs.log.judge import NULL, REASONS, Rejection, hex_ids, judge_all, normal_forms
from jobs.log.rows import read_rows
from jobs.tables import STORED

PART_ROWS = 1 << 19  # or one row group: small enough for many nodes; in larger parts fewer texts are hashed repeatedly
RANGE_ROWS, RANGE_BYTES = 1 << 18, 1 << 25  # of texts, grouped at a time by phase two
SHARDS_PER_FILE = 64
MAX_TOTAL = 2**63 - 1  # log_count is an int64
MEMORY = "256MB"  # of one DuckDB
PLAN = "plan"  # the folder of the intermediate files
# Parquet options by table. Row groups of texts are small, since phase two reads only those that overlap its range. Repeated
# query_ids are dictionary-encoded; statistics of unsorted ids are useless and took half of the time.
OPTIONS: dict[str, dict[str, Any]] = {
    PLAN: {"row_group_size": 1 << 12, "compression": "none", "use_dictionary": False},
    "query_map": {"use_dictionary": ["query_id"], "dictionary_pagesize_limit": 1 << 24, "write_statistics": False},
    "queries": {"use_dictionary": False},
    "errors": {},
}

MERGE = """
SELECT query_id, first(raw ORDER BY n DESC, raw) AS query, sum(n)::BIGINT AS log_count
FROM (
    SELECT query_id, raw, sum(n) AS n FROM read_parquet($texts)
    WHERE query_id >= $low AND query_id < $high GROUP BY query_id, raw
)
GROUP BY query_id ORDER BY query_id
"""
# Hashes first: they have a fixed size and can be grouped on disk.
AMBIGUOUS = """
WITH named AS (FROM read_parquet($query_map) WHERE query_id IS NOT NULL),
suspects AS (SELECT hash(log_id) FROM named GROUP BY 1 HAVING min(hash(query_id)) < max(hash(query_id)) LIMIT 100)
SELECT log_id, count(DISTINCT query_id) AS n FROM named WHERE hash(log_id) IN (FROM suspects)
GROUP BY log_id HAVING n > 1 ORDER BY n DESC, log_id LIMIT 1
"""


@dataclass(frozen=True)
class LogSummary:
    """Counts of the log and the files made of it; rows = rows with a query_id + sum of `rejected`."""

    rows: int
    queries: int
    rejected: dict[str, int]  # reason (a key of REASONS) -> number of log rows
    tables: dict[str, list[File]]  # queries in order of query_id, query_map and errors in order of the log
    shards: list[Shard]  # the row groups of `queries`


class DedupTask(NamedTuple):
    """The parameters shared by all parts and ranges."""

    storage: str
    attempt: str  # unique to this call
    columns: LogColumns
    shard_size: int


class PartFiles(NamedTuple):
    """The files and counts that phase one makes of some rows."""

    texts: File
    query_map: File
    errors: File
    rejected: Counter[str]
    total: int  # sum of the counts


def dedup(
    files: Sequence[LogFile], columns: LogColumns, storage: Storage, shard_size: int, *, local: bool = True
) -> LogSummary:
    """Writes the tables queries, query_map and errors of a log, under unique names, and returns their files and counts.

    queries/: sorted by query_id over all files; a row group is a shard of `shard_size` rows (fewer at the end of a range of
    ids), a file has at most 64. `query` is the most frequent raw form, ties by the smallest code points; `log_count` is the
    number of rows, or the sum of the count column, which then also weights the forms. query_map/: a row per log row in the
    order of the log, query_id null if it was rejected. errors/: a row per rejected log row.

    Intermediate files are always removed, the tables after an error.

    Args:
        files: of the log.
        columns: of the log to read.
        storage: where the tables are written.
        shard_size: queries per shard.
        local: whether to work in this process; else on the connected Ray, all of whose nodes must reach the log and
            `storage`.

    Raises:
        LogError: no rows, no usable query, a damaged file, an invalid count, or a log_id with several queries.
    """
    task = DedupTask(storage.root, uuid.uuid4().hex[:12], columns, shard_size)
    try:
        # absolute: a Ray worker has another working directory
        absolute = [file if remote(file.path) else replace(file, path=os.path.abspath(file.path)) for file in files]
        parts = list(enumerate(_parts(check_log(absolute, columns))))
        pieces = [piece for part in spread(partial(read_part, task), parts, local=local) for piece in part]
        rejected = _check(files, columns, pieces)
        query_map = [piece.query_map for piece in pieces]
        if columns.id_column is not None:
            _refuse_ambiguous([storage.url(file.key) for file in query_map], columns.id_column)
        texts = [piece.texts for piece in pieces if piece.texts.rows]
        merge = partial(merge_range, task, [storage.url(file.key) for file in texts])
        queries = [file for range_ in spread(merge, _ranges(texts), local=local) for file in range_]
    except BaseException:
        _remove(storage, task, "queries", "query_map", "errors")
        raise
    finally:
        _remove(storage, task, PLAN)
    places = [(file, start) for file in queries for start in range(0, file.rows, shard_size)]
    shards = [
        Shard(number, file.key, start // shard_size, min(shard_size, file.rows - start))
        for number, (file, start) in enumerate(places)
    ]
    errors = [piece.errors for piece in pieces if piece.errors.rows]
    tables = {"queries": queries, "query_map": query_map, "errors": errors}
    rows, distinct = (sum(file.rows for file in tables[name]) for name in ("query_map", "queries"))
    return LogSummary(rows, distinct, rejected, tables, shards)


def _parts(groups: Iterable[RowGroup]) -> list[list[RowGroup]]:
    parts: list[list[RowGroup]] = []
    rows = PART_ROWS
    for group in groups:
        if rows + group.rows > PART_ROWS:
            parts.append([])
            rows = 0
        parts[-1].append(group)
        rows += group.rows
    return parts


def _ranges(texts: Sequence[File]) -> list[tuple[str, str]]:
    """Returns ranges of query_ids as (first, end exclusive) with about RANGE_ROWS texts at most: ids are evenly spread."""
    rows, size = (sum(getattr(file, name) for file in texts) for name in ("rows", "size"))
    number = 1 + max(rows // RANGE_ROWS, size // RANGE_BYTES)
    bounds = [*(f"{(place << 32) // number:08x}" for place in range(number)), "g"]
    return list(pairwise(bounds))


def _check(files: Sequence[LogFile], columns: LogColumns, pieces: Sequence[PartFiles]) -> dict[str, int]:
    """Returns the number of rejected rows by reason; raises LogError if none is left or the counts exceed an int64."""
    if sum(piece.total for piece in pieces) > MAX_TOTAL:
        where = f"log file {files[0].path}" + " and others" * (len(files) > 1)
        what = f"column {columns.count_column!r} (log.count_column)"
        raise LogError("log-value", f"{where}: {what} adds up to more than {MAX_TOTAL:,}; correct it")
    found = sum((piece.rejected for piece in pieces), Counter())
    rejected = {reason: found[reason] for reason in REASONS if found[reason]}
    if not any(piece.texts.rows for piece in pieces):
        why = ", ".join(f"{n:,} {REASONS[reason].format(max_chars=columns.max_chars)}" for reason, n in rejected.items())
        where = files[0].path if len(files) == 1 else f"{len(files)} files"
        what = f"all {found.total():,} rows of {where} were rejected (column {columns.query_column!r}: {why})"
        raise LogError("log-empty", f"the log has no usable query: {what}; name another column, or raise log.max_chars")
    return rejected


def _refuse_ambiguous(query_map: list[str], column: str) -> None:
    """Raises LogError if a log_id has several queries, since joins would be wrong; repeats of the same query are allowed."""
    for found in _query(AMBIGUOUS, {"query_map": query_map}, THREADS).to_pylist():
        raise LogError(
            "log-column",
            f"column {column!r} (log.id_column) is not unique: id {found['log_id']!r} stands for {found['n']:,} different"
            " queries; name a unique column, or none (id_column: null) to have rows named by file and row",
        )


def _remove(storage: Storage, task: DedupTask, *folders: str) -> None:
    with contextlib.suppress(OSError, ClusterError):  # files left behind are removed as orphans at the end of the run
        storage.delete(*(entry.key for folder in folders for entry in storage.list(folder) if task.attempt in entry.key))


# ---------------------------------------------------------------- the phases


def read_part(task: DedupTask, part: tuple[int, list[RowGroup]]) -> list[PartFiles]:
    """Runs phase one on the row groups of a part, PIECE_BYTES of rows at a time; returns the files written."""
    number, groups = part
    return [_dedup_rows(task, f"{number:05d}-{place:03d}", rows) for place, rows in enumerate(read_rows(groups, task.columns))]


def _dedup_rows(task: DedupTask, name: str, rows: pa.Table) -> PartFiles:
    encoded = rows.column("text").combine_chunks().dictionary_encode()  # the group-by
    raws, codes = encoded.dictionary, encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()  # (rows,) index into raws
    digests, rejections = judge_all(raws, task.columns.max_chars)
    kept = np.delete(np.arange(len(raws)), list(rejections))
    digests = digests[kept]
    ids = hex_ids(digests)
    rejections[len(raws)] = NULL
    places = np.full(len(raws) + 1, -1, np.int32)
    places[kept] = np.arange(len(kept))
    places = places[codes]  # (rows,) index into ids; -1: rejected
    query_ids = pa.DictionaryArray.from_arrays(pa.array(places, mask=places < 0), ids)

    n = rows.column("n").to_numpy()
    counts = np.zeros(len(raws) + 1, np.int64)
    np.add.at(counts, codes, n)
    order = np.argsort(
        digests.view(">u8")[:, 0].astype(np.uint64)
    )  # by the first 8 of 16 bytes, which is enough to split ranges
    texts = raws.take(pa.array(kept[order])).cast(pa.string())

    rejected = np.flatnonzero(places < 0)
    why = [rejections[code] for code in codes[rejected].tolist()]
    values: dict[str, Any] = {field: [getattr(one, field) for one in why] for field in Rejection._fields}
    values |= {
        "log_id": rows.column("log_id").take(pa.array(rejected)),
        "stage": ["log"] * len(why),
        "attempts": [1] * len(why),
    }
    schema = STORED["errors"]
    errors = pa.table([values.get(field.name, pa.nulls(len(why), field.type)) for field in schema], schema=schema)
    return PartFiles(
        _put(task, PLAN, name, pa.table({"query_id": ids.take(pa.array(order)), "raw": texts, "n": counts[kept[order]]})),
        _put(task, "query_map", name, pa.table({"log_id": rows.column("log_id"), "query_id": query_ids})),
        _put(task, "errors", name, errors),
        Counter(one.reason for one in why),
        (int((n >> 32).sum()) << 32) + int((n & (2**32 - 1)).sum()),  # exact, where an int64 would overflow
    )


def merge_range(task: DedupTask, texts: list[str], bounds: tuple[str, str]) -> list[File]:
    """Runs phase two on a range of query_ids; returns the files of queries/ written, in order."""
    low, high = bounds
    found = _query(MERGE, {"texts": texts, "low": low, "high": high}, threads=1)
    normalised = normal_forms(found.column("query").combine_chunks())
    found = found.append_column("normalised", normalised).select(STORED["queries"].names)
    size = SHARDS_PER_FILE * task.shard_size
    return [
        _put(task, "queries", f"{low}-{start // size:05d}", found.slice(start, size), row_group_size=task.shard_size)
        for start in range(0, len(found), size)
    ]


def _put(task: DedupTask, table: str, name: str, rows: pa.Table, **options: Any) -> File:
    """Writes rows to a file with a unique name; no file is written without rows."""
    key = f"{table}/plan-{task.attempt}-{name}-{uuid.uuid4().hex[:8]}.parquet"
    if not len(rows):
        return File(key, 0, 0)
    sink = pa.BufferOutputStream()  # not a Python file, so that other threads can run meanwhile
    options = {"row_group_size": len(rows), "compression": "zstd"} | OPTIONS[table] | options
    pq.write_table(rows, sink, store_schema=False, **options)
    data = sink.getvalue().to_pybytes()
    open_storage(task.storage).put(key, data)
    return File(key, len(rows), len(data))


def _query(query: str, params: dict[str, Any], threads: int) -> pa.Table:
    """Returns the result of a DuckDB query; raises LogError if memory or disk space is used up."""
    with tempfile.TemporaryDirectory(prefix="dmqr-log-") as temp:
        try:
            with connect(MEMORY, threads, Path(temp)) as connection:
                attach(connection)
                return connection.sql(query, params=params).to_arrow_table()
        except duckdb.Error as error:
            where = f"memory_limit {MEMORY}, temporary files in {Path(temp).parent}"
            raise LogError(
                "log-space", f"dedup could not group the log ({where}): {reason(error)}; free space there"
            ) from error


def connect(memory_limit: str, threads: int, temp: Path) -> duckdb.DuckDBPyConnection:
    """Opens an in-memory DuckDB that spills to `temp`."""
    config: dict[str, str | int | bool] = {"memory_limit": memory_limit, "temp_directory": str(temp)}
    config |= {"threads": threads, "preserve_insertion_order": False}
    return duckdb.connect(config=config)

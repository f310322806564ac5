"""What all parts and ranges of a dedup share: the task, writing of files, DuckDB."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from cluster.errors import LogError
from cluster.run.shards import File
from cluster.storage import open_storage
from cluster.storage.s3_duckdb import open_duckdb, reason
from jobs.log.check import LogColumns

MEMORY = "256MB"  # of one DuckDB
PLAN = "plan"  # the folder of the intermediate files
# Parquet options by table. Row groups of texts are small, since phase two reads only those that overlap its range. Repeated
# query_ids are dictionary-encoded; statistics of unsorted ids are useless and took half of the time. Row groups of query_map
# are small, since a scanning thread holds pages and dictionary of one: with half a million rows in each, four threads ran out
# of MEMORY from 3 million rows on.
OPTIONS: dict[str, dict[str, Any]] = {
    PLAN: {"row_group_size": 1 << 12, "compression": "none", "use_dictionary": False},
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
    with tempfile.TemporaryDirectory(prefix="dmqr-log-") as temp:
        try:
            with connect(MEMORY, threads, Path(temp)) as connection:
                return connection.sql(sql, params=params).to_arrow_table()
        except duckdb.Error as error:
            remedy = "lower log.max_chars, or leave out log.id_column"
            raise no_room("dedup could not group the log", error, MEMORY, Path(temp).parent, remedy) from error


def no_room(what: str, error: duckdb.Error, memory: str, temp: Path, remedy: str) -> LogError:
    """Returns the error of a query that ran out of memory, with that remedy, or of disk space (DuckDB has two for it)."""
    why = reason(error)
    if isinstance(error, duckdb.OutOfMemoryException) and "max_temp_directory_size" not in str(error):
        return LogError("log-space", f"{what}: it needs more memory than its {memory} ({why}); {remedy}")
    return LogError("log-space", f"{what} (memory_limit {memory}, temporary files in {temp}): {why}; free space there")


def connect(memory_limit: str, threads: int, temp: Path) -> duckdb.DuckDBPyConnection:
    """Opens an in-memory DuckDB that reads s3:// and spills to `temp`."""
    config: dict[str, str | int | bool] = {"memory_limit": memory_limit, "temp_directory": str(temp)}
    config |= {"threads": threads, "preserve_insertion_order": False}
    return open_duckdb(config)

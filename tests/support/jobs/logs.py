"""Logs in Parquet, the tables that dedup makes of a log, and how it refuses one."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import LogError
from cluster.storage import Storage, open_storage
from jobs.log.check import LogColumns
from jobs.log.dedup import LogSummary, dedup
from jobs.log.files import LogFile, find_log_files

QUERY = LogColumns("query")
Tables = dict[str, list[dict[str, Any]]]


def write_log(path: Path, columns: Mapping[str, Any], **options: object) -> str:
    """Writes a log; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return str(path)


def rows_of(summary: LogSummary, storage: Storage) -> Tables:
    """Returns the rows of queries, query_map and errors."""

    def read(key: str) -> list[dict[str, Any]]:
        with storage.open(key) as file:
            rows: list[dict[str, Any]] = pq.read_table(file).to_pylist(maps_as_pydicts="strict")
        return rows

    return {name: [row for file in files for row in read(file.key)] for name, files in summary.tables.items()}


def deduped(
    log: str | Sequence[LogFile], out: Path, columns: LogColumns = QUERY, shard_size: int = 100
) -> tuple[LogSummary, Tables]:
    """Returns what dedup says of a log, and the rows of its tables, which are in `out`."""
    storage = open_storage(str(out))
    summary = dedup(find_log_files(log) if isinstance(log, str) else log, columns, storage, shard_size)
    return summary, rows_of(summary, storage)


def tables_of(log: str, columns: LogColumns = QUERY) -> Tables:
    """Returns the rows of the tables of a log."""
    with tempfile.TemporaryDirectory() as out:
        return deduped(log, Path(out), columns)[1]


def refused(log: str | list[str], columns: LogColumns = QUERY) -> LogError:
    """Returns the one line with which a log is refused, before dedup or by it; nothing is left behind."""
    with tempfile.TemporaryDirectory() as out:
        with pytest.raises(LogError) as error:
            dedup(find_log_files(log), columns, open_storage(out), 10)
        assert [path for path in Path(out).rglob("*") if path.is_file()] == []
    assert "\n" not in str(error.value)
    return error.value

"""Checks of the log before it is read: its files have the configured columns; lists their parts."""

import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, count
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.errors import LogError, UnavailableError, nearest
from cluster.storage import remote
from cluster.storage.prefetch import prefetch
from jobs.log.files import LogFile, replaced
from jobs.log.sets.queries import query_files, set_queries
from jobs.log.table_file import HEAD_OBJECTS, ParquetTable, TableFault, TextTable, open_table

_REMEDY = "convert it, or name another column"
CHECKS_IN_FLIGHT = 16  # files; one by one, a thousand take minutes on an object store, by its latency


@dataclass(frozen=True)
class LogColumns:
    """The columns to read (the config's `log:`), the limits of their texts, and what is made of them."""

    query_column: str
    id_column: str | None = None
    count_column: str | None = None
    max_chars: int = 2000  # most code points of a query; longer ones are rejected
    context_column: str | None = None
    values: tuple[str, ...] = ()  # columns of which each query gets its most frequent value
    classify: Callable[[list[str]], list[str]] | None = None  # gives queries their `query_type`; a worker is sent it


class RowGroup(NamedTuple):
    """A row group with at least one row; of lines of JSON, CSV and data sets, which have none, the whole file."""

    file: LogFile
    number: int
    start: int  # its first row in the file, from 0
    rows: int  # of lines of JSON and CSV about as many, by the file's size


def check_log(files: Sequence[LogFile], columns: LogColumns) -> list[RowGroup]:
    """Returns the row groups of all files, in order; reads only footers, and the beginnings of lines of JSON and CSV.

    Raises LogError if a file is not readable, lacks a column or has one of an unsuitable type, or no file has rows.
    """

    def sizes_of(file: LogFile) -> list[int]:
        with opened(file) as table:
            if table is None:
                return []
            _check_columns(file, table, columns)
            return [max(1, file.size // table.row_bytes)] * table.has_rows if isinstance(table, TextTable) else table.sizes

    groups: list[RowGroup] = []
    for file, sizes in zip(files, prefetch(sizes_of, files, CHECKS_IN_FLIGHT), strict=True):
        starts = accumulate(sizes, initial=0)
        groups += [RowGroup(file, *group) for group in zip(count(), starts, sizes, strict=False) if group[-1]]
    if not groups:
        more = f" and {len(files) - 1} more" * (len(files) > 1)
        raise LogError(
            "log-empty", f"the log is empty: no rows in {files[0].path}{more}; name another log.path, or set log.allow_empty"
        )
    return groups


def has_values(file: LogFile, name: str) -> bool:
    """Returns True if a file has a column whose values a query can have: in it, or as a partition of its path."""
    if name in dict(file.partitions):
        return True
    with opened(file) as table:
        return table is not None and table.names.count(name) == 1 and _fits(_VALUE, table.types.get(name, pa.string()))


@contextmanager
def opened(file: LogFile) -> Iterator[ParquetTable | TextTable | None]:
    """Yields the rows of a file, None if it is empty; raises LogError if it is unreadable or was replaced meanwhile."""
    try:
        if file.data_set is not None:
            listed = [file, *([] if file.judged is None else [file.judged])]
            present = query_files(file.data_set)
            if [(entry.size, entry.changed) for entry in present] != [(entry.size, entry.changed) for entry in listed]:
                raise replaced(file)
            buffer = pa.BufferOutputStream()
            pq.write_table(set_queries(file.data_set)[0], buffer)
            yield ParquetTable(pa.BufferReader(buffer.getvalue()))
        elif remote(file.path):
            yield open_table(file.path, str(file.changed))
        elif ((stat := os.stat(file.path)).st_size, stat.st_mtime_ns) == (file.size, file.changed):
            yield open_table(file.path)
        else:
            raise replaced(file)
    except TableFault as fault:
        raise file.error("log-files", fault.message, fault.at) from fault
    except UnavailableError:
        raise
    except OSError as error:
        if error.errno == errno.ESTALE:
            raise replaced(file) from error
        raise file.error("log-files", f"cannot be read ({error.strerror or error}); make it readable") from error


# Types of columns, as pyarrow writes them.
TEXT = r"((large_)?string|string_view|null|dictionary<values=(large_)?string.*>)"
_CONTEXT = rf"{TEXT}|(large_|fixed_size_)?list<[^:]*: {TEXT}( not null)?>(\[\d+\])?"
_ID = rf"{TEXT}|u?int\d+|decimal\d+\(.*|date\d+.*|timestamp.*|extension<arrow\.uuid>"
_VALUE = rf"{_CONTEXT}|{_ID}|float|double|bool|time\d+.*"
_USED = "used by a prompt or a selection"
_PLAIN = ("log.query_column", "log.id_column", "log.count_column")
_ODD: dict[type, str] = {dict: "an object", list: "an array", float: "a number with a fraction"}


def _uses(columns: LogColumns) -> list[tuple[str, str | None, str, str]]:
    """Returns the key that names each column, the column, its type, and the pattern of such types."""
    return [
        ("log.query_column", columns.query_column, "text (string)", TEXT),
        ("log.id_column", columns.id_column, "text, whole numbers, dates, times or UUIDs", _ID),
        ("log.count_column", columns.count_column, "whole numbers", r"u?int\d+"),
        ("log.context_column", columns.context_column, "text (string) or lists of text", _CONTEXT),
        *((_USED, name, "text, lists of text, numbers, true or false, dates, times or UUIDs", _VALUE)
          for name in columns.values),
    ]  # fmt: skip


def _check_columns(file: LogFile, table: ParquetTable | TextTable, columns: LogColumns) -> None:
    for use, column, wanted, types in _uses(columns):
        if column is None:
            continue
        _check_name(file, table, use, column)
        kind = table.types.get(column, pa.null())  # null: a shard that has no value
        if not _fits(types, kind):
            raise file.error("log-column", f"column {column!r} ({use}) holds {kind}, wanted {wanted}; {_REMEDY}")
        for line, row in table.head if use in _PLAIN else ():
            what = _ODD.get(type(row.get(column)))
            if what is not None and not (use == "log.query_column" and isinstance(row[column], float)):
                message = f"column {column!r} ({use}) holds {what}, wanted text or whole numbers; name another column"
                raise file.error("log-column", message, f", line {line}")


def _check_name(file: LogFile, table: ParquetTable | TextTable, use: str, column: str) -> None:
    names = table.names
    if names.count(column) > 1:
        raise file.error("log-column", f"column {column!r} ({use}) appears more than once; name another")
    if column in names:
        return
    if column not in dict(file.partitions):
        seen = f" in its first {HEAD_OBJECTS:,} objects" if table.head else ""
        every = [*names, *(name for name, _ in file.partitions)]
        raise file.error("log-column", f"no column {column!r} ({use}){seen}{nearest(column, every)}")
    value = dict(file.partitions)[column]
    if use == "log.count_column" and value is not None and not re.fullmatch(r"-?\d{1,18}", value):
        raise file.error("log-column", f"partition {column!r} ({use}) is {value!r}, wanted whole numbers; {_REMEDY}")


def _fits(types: str, kind: pa.DataType) -> bool:
    return re.fullmatch(types, str(kind)) is not None or pa.types.is_null(kind)

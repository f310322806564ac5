"""Checks of the log before it is read: its files have the configured columns; lists their parts."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, count
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.cause import one_line
from cluster.errors import LogError, UnavailableError, nearest
from cluster.storage import open_file, remote
from cluster.storage.csv_file import CsvFault, CsvHeader, csv_header
from cluster.storage.prefetch import prefetch
from jobs.log.files import LogFile, check_file_version, unchanged
from jobs.log.json_lines import BYTES_PER_ROW, check_fields, json_fields
from jobs.log.key import MAX_CONTEXT_CHARS
from jobs.log.sets.queries import set_queries

_REMEDY = "convert it, or name another column"
MAGIC = b"PAR1"
CSV_BYTES_PER_ROW = 1 << 6  # about as many as a row of a web log takes; for the size of parts only
CHECKS_IN_FLIGHT = 16  # files; one by one, a thousand take minutes on an object store, by its latency


class Classifier(Protocol):
    """Tells the types of queries; a frozen value that can be pickled, since it goes to the machines that deduplicate."""

    def types(self, queries: list[str]) -> list[str]:
        """Returns the type of each query."""
        ...


@dataclass(frozen=True)
class LogColumns:
    """The columns to read (the config's `log:`), the limits of their texts, and what is made of them."""

    query_column: str
    id_column: str | None = None
    count_column: str | None = None
    max_chars: int = 2000  # most code points of a query; longer ones are rejected
    context_column: str | None = None
    max_context_chars: int = MAX_CONTEXT_CHARS  # code points of a context that count, the newest
    values: tuple[str, ...] = ()  # columns of which each query gets its most frequent value
    classify: Classifier | None = None  # gives each query its `query_type`


class RowGroup(NamedTuple):
    """A row group with at least one row; of lines of JSON, CSV and data sets, which have none, the whole file."""

    file: LogFile
    number: int
    start: int  # its first row in the file, from 0
    rows: int  # of lines of JSON and CSV about as many, by the file's size


def check_log(files: Sequence[LogFile], columns: LogColumns) -> list[RowGroup]:
    """Returns the row groups of all files, in order; reads only footers, and the beginnings of lines of JSON and CSV.

    Raises:
        LogError: a file is not readable, or lacks a column, or a column has an unsuitable type; or no file has rows.
    """

    def sizes_of(file: LogFile) -> list[int]:
        named = [(use, column) for use, column, *_ in _uses(columns) if column is not None]
        if file.form == "json":
            fields = json_fields(file, {column: use for use, column in named if use in _PLAIN})
            if fields is None:
                return []
            check_fields(file, fields, named)
            return [max(1, file.size // BYTES_PER_ROW)]
        if file.form == "csv":
            header = open_header(file)
            if header is None:
                return []
            for use, column in named:
                _check_name(file, header.names, use, column)
            return [max(1, file.size // CSV_BYTES_PER_ROW)] if header.has_rows else []
        if file.data_set is not None:
            rows = set_queries(file.data_set).rows
            _check_columns(file, rows.schema, columns)
            return [rows.num_rows]
        with open_log_file(file, columns) as parquet:
            return [parquet.metadata.row_group(number).num_rows for number in range(parquet.num_row_groups)]

    groups: list[RowGroup] = []
    for file, sizes in zip(files, prefetch(sizes_of, files, CHECKS_IN_FLIGHT), strict=True):
        starts = accumulate(sizes, initial=0)
        groups += [RowGroup(file, *place) for place in zip(count(), starts, sizes, strict=False) if place[-1]]
    if not groups:
        more = f" and {len(files) - 1} more" * (len(files) > 1)
        raise LogError(
            "log-empty", f"the log is empty: no rows in {files[0].path}{more}; name another log.path, or set log.allow_empty"
        )
    return groups


def has_values(file: LogFile, columns: LogColumns, name: str) -> bool:
    """Returns whether a file has a column whose values a query can have: in it, or as a partition of its path.

    Raises:
        LogError: the file is not readable, or lacks a column that is read.
    """
    if name in dict(file.partitions):
        return True
    if file.form == "json":
        fields = json_fields(file)
        return fields is not None and name in fields.names
    if file.form == "csv":
        header = open_header(file)
        return header is not None and header.names.count(name) == 1
    if file.data_set is not None:
        return name in set_queries(file.data_set).rows.column_names
    with open_log_file(file, columns) as parquet:
        schema = parquet.schema_arrow
        return schema.names.count(name) == 1 and _is_value(schema.field(name).type)


def open_header(file: LogFile) -> CsvHeader | None:
    """Returns the header of a CSV file; None: the file is empty.

    Raises:
        LogError: it cannot be read, or was replaced since it was listed.
    """
    with reading_csv(file):
        return csv_header(file.path, file.etag)


@contextmanager
def reading_csv(file: LogFile) -> Iterator[None]:
    """Raises LogError, which names the file, where the body cannot read it as CSV."""
    try:
        yield
    except CsvFault as fault:
        raise file.error("log-unreadable", fault.words, fault.at) from fault
    except UnavailableError:
        raise
    except (OSError, pa.ArrowException) as error:
        check_file_version(file, error)
        raise file.error("log-unreadable", f"cannot be read ({one_line(error)}); copy it again") from error


def open_log_file(file: LogFile, columns: LogColumns) -> pq.ParquetFile:
    """Opens a file for reading in bounded memory (pages, not whole row groups) and checks its columns.

    Raises:
        LogError: as for `check_log`, or the file was replaced since it was listed.
    """
    try:
        source = open_file(file.path, file.etag) if remote(file.path) else file.path
        if isinstance(source, str) and not unchanged(file):
            raise OSError(errno.ESTALE, "was replaced", source)
        parquet = pq.ParquetFile(source, pre_buffer=False, buffer_size=1 << 20)
    except UnavailableError:
        raise
    except (OSError, pa.ArrowException) as error:
        check_file_version(file, error)
        raise file.error("log-unreadable", _why_unreadable(file.path, error)) from error
    try:
        _check_columns(file, parquet.schema_arrow, columns)
    except BaseException:
        parquet.close()
        raise
    return parquet


def _why_unreadable(path: str, error: Exception) -> str:
    try:
        with open_file(path) as stream:
            head = stream.read(16)
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - 4))
            tail = stream.read(4)
    except UnavailableError:
        raise
    except OSError as reason:
        return f"cannot be read ({reason.strerror or reason}); make it readable"
    if not head:
        return "not a Parquet file: it is empty (0 bytes); copy it again, or remove it"
    if head.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        return "not a Parquet file: it is a workbook of a spreadsheet, or another archive; save it as CSV (*.csv)"
    if not head.startswith(MAGIC):
        begins = head.decode("utf-8", "replace")
        return f"not a Parquet file: it starts with {begins!r} (is it text or compressed?); convert it"
    if tail != MAGIC:
        return f"truncated Parquet: the footer at the end of its {size:,} bytes is missing; copy it again"
    return f"damaged Parquet: {one_line(error)}; copy it again"


_USED = "used by a prompt or a selection"
_PLAIN = ("log.query_column", "log.id_column", "log.count_column")


def _uses(columns: LogColumns) -> list[tuple[str, str | None, str, Callable[[pa.DataType], bool]]]:
    """Returns what names each column, the column, and of which type it is to be."""
    return [
        ("log.query_column", columns.query_column, "text (string)", _is_text),
        ("log.id_column", columns.id_column, "text, whole numbers, dates, times or UUIDs", _is_id),
        ("log.count_column", columns.count_column, "whole numbers", pa.types.is_integer),
        ("log.context_column", columns.context_column, "text (string) or lists of text", _is_context),
        *((_USED, name, "text, lists of text, numbers, true or false, dates, times or UUIDs", _is_value)
          for name in columns.values),
    ]  # fmt: skip


def _check_columns(file: LogFile, schema: pa.Schema, columns: LogColumns) -> None:
    for use, column, wanted, fits in _uses(columns):
        if column is None:
            continue
        _check_name(file, schema.names, use, column)
        if column in schema.names:
            kind = schema.field(column).type
            if not (fits(kind) or pa.types.is_null(kind)):  # null: a shard that has no value
                raise file.error("log-column", f"column {column!r} ({use}) holds {kind}, wanted {wanted}; {_REMEDY}")


def _check_name(file: LogFile, names: Sequence[str], use: str, column: str) -> None:
    """Checks that a file with columns of these names has a column once, or a partition of that name."""
    if names.count(column) > 1:
        raise file.error("log-column", f"column {column!r} ({use}) stands in it more than once; name another")
    if column in names:
        return
    if column not in dict(file.partitions):
        every = [*names, *(name for name, _ in file.partitions)]
        raise file.error("log-column", f"no column {column!r} ({use}){nearest(column, every)}")
    value = dict(file.partitions)[column]
    if use == "log.count_column" and value is not None and not re.fullmatch(r"-?\d{1,18}", value):
        raise file.error("log-column", f"partition {column!r} ({use}) is {value!r}, wanted whole numbers; {_REMEDY}")


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    types = pa.types
    return any(is_kind(kind) for is_kind in (types.is_string, types.is_large_string, types.is_string_view, types.is_null))


def _is_context(kind: pa.DataType) -> bool:
    return _is_text(kind) or (is_list(kind) and _is_text(kind.value_type))


def _is_value(kind: pa.DataType) -> bool:
    types = pa.types
    more = (types.is_float32, types.is_float64, types.is_boolean, types.is_time)
    return _is_context(kind) or _is_id(kind) or any(is_kind(kind) for is_kind in more)


def is_list(kind: pa.DataType) -> bool:
    """Returns whether a column of this type holds lists."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_id(kind: pa.DataType) -> bool:
    types = pa.types
    exact = (types.is_integer, types.is_decimal, types.is_date, types.is_timestamp)
    return _is_text(kind) or any(is_kind(kind) for is_kind in exact) or isinstance(kind, pa.UuidType)

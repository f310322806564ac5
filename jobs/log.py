"""The query log as files: whether they can be read, and which columns they have."""

from __future__ import annotations

import difflib
import errno
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from cluster import UnavailableError
from cluster.ahead import ahead
from cluster.storage import open_file, remote
from jobs.log_files import LogError, LogFile

_OTHER = "convert it, or name another column"
MAGIC = b"PAR1"
CHECKED = 16  # files at a time: one by one, a thousand take minutes of an object store's latency
DICTIONARY_BYTES = 8 << 20  # largest row group, in encoded bytes of the query column, that is read as dictionaries


@dataclass(frozen=True)
class LogColumns:
    """Which columns matter (the config's `log:`), and how many code points a query may have."""

    query_column: str
    id_column: str | None = None
    count_column: str | None = None
    max_chars: int = 2000


# ---------------------------------------------------------------- checking


def check_log(files: Sequence[LogFile], columns: LogColumns) -> int:
    """Every file is readable Parquet with the named columns in usable types; returns the rows of all files.

    Reads footers only. Raises LogError naming the file and what is wrong with it, or when there is no row at all.
    """

    def rows_of(file: LogFile) -> int:
        with open_log_file(file, columns) as opened:
            return int(opened.metadata.num_rows)

    rows = sum(ahead(rows_of, files, CHECKED))
    if not rows:
        raise LogError(no_rows(files))
    return rows


def no_rows(files: Sequence[LogFile]) -> str:
    """The one line for a log without a single row."""
    return (
        f"the log is empty: no rows in {files[0].path}"
        + (f" and {len(files) - 1} more" * (len(files) > 1))
        + "; name another log.path"
    )


def open_log_file(file: LogFile, columns: LogColumns) -> pq.ParquetFile:
    """The file opened for reading in bounded memory (pages, not whole row groups), its columns checked.

    The query column comes dictionary-encoded where the file's encodings allow it: on a log that repeats itself that
    is 3 to 9 times as fast as decoding every text (5 million rows: 0.06-0.15 s against 0.52 s).
    Raises LogError as `check_log` does.
    """
    try:
        source = open_file(file.path, file.etag) if remote(file.path) else file.path
        opened = pq.ParquetFile(source, pre_buffer=False, buffer_size=1 << 20)
    except UnavailableError:
        raise
    except (OSError, pa.ArrowException) as error:
        check_not_replaced(file, error)
        raise LogError(f"log file {file.path}: {_why_unreadable(file.path, error)}") from error
    try:
        _check_columns(file, opened.schema_arrow, columns)
        if not _dictionary_readable(opened.metadata, columns.query_column):
            return opened
        known, dictionaries = opened.metadata, [columns.query_column]
        return pq.ParquetFile(source, metadata=known, read_dictionary=dictionaries, pre_buffer=False, buffer_size=1 << 20)
    except BaseException:
        opened.close()
        raise


def check_not_replaced(file: LogFile, error: Exception) -> None:
    """LogError where it is that: the version that was listed is what the run is planned on."""
    if isinstance(error, OSError) and error.errno == errno.ESTALE:
        raise LogError(f"log file {file.path}: was replaced since it was listed; start again") from error


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
    if not head.startswith(MAGIC):
        begins = head.decode("utf-8", "replace")
        return f"not a Parquet file: it starts with {begins!r} (is it text or compressed?); convert it"
    if tail != MAGIC:
        return f"truncated Parquet: the footer at the end of its {size:,} bytes is missing; copy it again"
    return f"damaged Parquet: {one_line(error)}; copy it again"


def one_line(error: object, limit: int = 200) -> str:
    """An exception's text without line breaks, cut to `limit` characters."""
    return " ".join(str(error).split())[:limit]


def _dictionary_readable(metadata: pq.FileMetaData, column: str) -> bool:
    """Whether the column's row groups are dictionary-encoded, and small.

    Where a writer gave up its dictionary half-way (or had none), pyarrow 26 goes on adding to one until the row group
    ends, and hands the whole of it out with every batch: 5 million distinct texts took 1.5 GB and 6 s instead of 0.4 s.
    The DELTA encodings it refuses to decode to dictionaries.
    """
    position = _leaf(metadata, column)
    if position is None:
        return False
    chunks = [metadata.row_group(group).column(position) for group in range(metadata.num_row_groups)]
    return all(
        chunk.has_dictionary_page
        and chunk.total_uncompressed_size <= DICTIONARY_BYTES
        and not any(encoding.startswith("DELTA") for encoding in chunk.encodings)
        for chunk in chunks
    )


def _leaf(metadata: pq.FileMetaData, column: str) -> int | None:
    """Position of a top-level flat column among the file's leaf columns."""
    return next((i for i in range(metadata.num_columns) if metadata.schema.column(i).path == column), None)


def bytes_per_row(metadata: pq.FileMetaData, column: str) -> float:
    """The largest mean, over row groups, of a column's encoded bytes per row; 0 when the file has no such column."""
    position = _leaf(metadata, column)
    if position is None:
        return 0.0
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    return max((g.column(position).total_uncompressed_size / g.num_rows for g in groups if g.num_rows), default=0.0)


def _check_columns(file: LogFile, schema: pa.Schema, columns: LogColumns) -> None:
    for key, column, wanted, fits in (
        ("query_column", columns.query_column, "text (string)", _is_text),
        ("id_column", columns.id_column, "text, whole numbers, dates, times or UUIDs", _is_id),
        ("count_column", columns.count_column, "whole numbers", pa.types.is_integer),
    ):
        if column is None:
            continue
        if schema.names.count(column) > 1:
            raise LogError(f"log file {file.path}: column {column!r} (log.{key}) stands in it more than once; name another")
        if column in schema.names:
            kind = schema.field(column).type
            if not fits(kind):
                raise LogError(f"log file {file.path}: column {column!r} (log.{key}) holds {kind}, wanted {wanted}; {_OTHER}")
        elif column in dict(file.partitions):
            value = dict(file.partitions)[column]
            if key == "count_column" and value is not None and not re.fullmatch(r"-?\d{1,18}", value):
                raise LogError(
                    f"log file {file.path}: partition {column!r} (log.{key}) is {value!r}, wanted {wanted}; {_OTHER}"
                )
        else:
            there = [*schema.names, *(name for name, _ in file.partitions)]
            raise LogError(f"log file {file.path}: no column {column!r} (log.{key}){_nearest(column, there)}")


def _nearest(column: str, there: list[str]) -> str:
    folded = {name.casefold(): name for name in there}
    near = difflib.get_close_matches(column.casefold(), folded, 1)
    shown = ", ".join(there[:20]) + (f" and {len(there) - 20} more" if len(there) > 20 else "")
    return (f"; nearest: {folded[near[0]]}" if near else "") + f"; name one of the columns there: {shown or 'none'}"


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_id(kind: pa.DataType) -> bool:
    types = pa.types
    exact = (types.is_integer, types.is_decimal, types.is_date, types.is_timestamp)
    return _is_text(kind) or any(is_kind(kind) for is_kind in exact) or isinstance(kind, pa.UuidType)

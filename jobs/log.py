"""The query log as files: which ones, whether they can be read, and which columns they have."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.storage import open_file, open_storage, remote

_OTHER = "convert it, or name another column"
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
MAGIC = b"PAR1"
DICTIONARY_BYTES = 8 << 20  # largest row group, in encoded bytes of the query column, that is read as dictionaries


class LogError(Exception):
    """The log cannot be used; `str()` is one line for a person: what, where, what was found, what to do."""


@dataclass(frozen=True)
class LogFile:
    """One file of the log; `size` with `etag` or `mtime_ns` tells a later start whether it is still the same."""

    path: str  # absolute or as configured: how to open it
    name: str  # relative to the log's path, with "/": the same on every machine, the stem of a row's log_id
    size: int  # bytes
    mtime_ns: int | None  # None: an object of S3
    partitions: tuple[tuple[str, str | None], ...] = ()  # hive partitions in its path (date=2020-01-01), outer first
    etag: str | None = None  # the object's version

    @property
    def version(self) -> dict[str, Any]:
        """What a plan keeps of it."""
        changed = {"mtime_ns": self.mtime_ns} if self.etag is None else {"etag": self.etag}
        return {"path": self.path, "size": self.size, **changed}


@dataclass(frozen=True)
class LogColumns:
    """Which columns matter (the config's `log:`), and how many code points a query may have."""

    query_column: str
    id_column: str | None = None
    count_column: str | None = None
    max_chars: int = 2000


# ---------------------------------------------------------------- finding


def find_log_files(path: str | Sequence[str], date: str | None = None) -> list[LogFile]:
    """The Parquet files under `path` (a file, a folder with or without hive partitions, or a list of these), by name.

    In folders only `*.parquet` counts, at any depth; names starting with `.` or `_` are skipped, links are followed.
    A file reached twice is taken once. `date` is what `{date}` stood for; it only appears in messages.
    Raises LogError when something named is not there or holds no Parquet file; ClusterError or OSError as S3 does.
    """
    paths = [path] if isinstance(path, str) else list(path)
    if not paths:
        raise LogError("log.path is an empty list; name a file or folder")
    when = f" (date {date})" if date else ""
    if all(remote(one) for one in paths):
        return _find_objects(paths, when)
    for one in paths:
        if remote(one):
            raise LogError(f"log.path {one}{when}: stands beside files of this machine; name all in s3://, or none")
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", one):
            raise LogError(f"log.path {one}{when}: cannot be read; name s3://BUCKET/FOLDER, a local file or folder")
        if not os.path.exists(one):
            raise LogError(f"log.path {one}{when}: no such file or folder{_nearest_path(one)}; correct log.path")
    base = None if len(paths) == 1 else os.path.commonpath([os.path.dirname(os.path.abspath(one)) for one in paths])
    found: dict[str, LogFile] = {}
    for one in paths:
        before = len(found)
        inside = list(_walk(one)) if os.path.isdir(one) else [one]
        root = base or (one if os.path.isdir(one) else os.path.dirname(one) or ".")
        for file in inside:
            found.setdefault(os.path.realpath(file), _log_file(file, root))
        if not inside and len(found) == before:
            raise LogError(
                f"log.path {one}{when}: no Parquet file (*.parquet) in this folder, {_what_is_in(one)}; name another"
            )
    return sorted(found.values(), key=lambda file: file.name)


def _find_objects(paths: Sequence[str], when: str) -> list[LogFile]:
    """The same on S3: an object of this very name is a file, else the name is a folder."""
    base = None if len(paths) == 1 else os.path.commonpath([one.rstrip("/").rpartition("/")[0] for one in paths])
    found: dict[str, LogFile] = {}
    for one in paths:
        folder, _, name = one.rpartition("/")
        entry = open_storage(folder).stat(name) if name and folder.count("/") >= 2 else None
        if entry is not None:
            inside, root = [entry], folder
        else:
            root = one.rstrip("/")
            there = list(open_storage(root).list())
            inside = [entry for entry in there if _is_log(entry.key)]
            if not inside:
                shown = ", ".join(entry.key for entry in there[:5]) + (f" and {len(there) - 5} more" if len(there) > 5 else "")
                what = f"found {shown}" if there else "nothing lies there"
                raise LogError(f"log.path {one}{when}: no Parquet file (*.parquet) in this folder, {what}; name another")
        for entry in inside:
            url = f"{root}/{entry.key}"
            named = url.removeprefix(f"{base or root}/")
            found[url] = LogFile(url, named, entry.size, None, _partitions(url.split("/")[3:-1]), entry.etag)
    return sorted(found.values(), key=lambda file: file.name)


def _is_log(key: str) -> bool:
    return key.endswith(".parquet") and all(part[:1] not in "._" for part in key.split("/"))


def _walk(folder: str) -> Iterator[str]:
    seen: set[str] = set()
    for parent, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(parent)
        if real in seen:  # a link that leads back up
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if name[0] not in "._"]
        yield from (os.path.join(parent, name) for name in files if name[0] not in "._" and name.endswith(".parquet"))


def _log_file(path: str, root: str) -> LogFile:
    stat = os.stat(path)
    partitions = _partitions(Path(os.path.abspath(path)).parts[:-1])
    return LogFile(path, Path(os.path.relpath(path, root)).as_posix(), stat.st_size, stat.st_mtime_ns, partitions)


def _partitions(folders: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    pairs = [folder.split("=", 1) for folder in folders if re.fullmatch(r"[^=]+=.*", folder)]
    return tuple((key, None if value == HIVE_NULL else unquote(value)) for key, value in pairs)


def _nearest_path(path: str) -> str:
    parent, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(parent):
        return f"; {parent} is not there either"
    near = difflib.get_close_matches(name, os.listdir(parent), 1)
    return f"; nearest: {os.path.join(parent, near[0])}" if near else ""


def _what_is_in(folder: str) -> str:
    names = sorted(os.listdir(folder))
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"found {shown}" if names else "it is empty"


# ---------------------------------------------------------------- checking


def check_log(files: Sequence[LogFile], columns: LogColumns) -> int:
    """Every file is readable Parquet with the named columns in usable types; returns the rows of all files.

    Reads footers only. Raises LogError naming the file and what is wrong with it, or when there is no row at all.
    """
    rows = 0
    for file in files:
        with open_log_file(file, columns) as opened:
            rows += opened.metadata.num_rows
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
    opened = _open(file, [])
    try:
        _check_columns(file, opened.schema_arrow, columns)
        if _dictionary_readable(opened.metadata, columns.query_column):
            opened.close()
            opened = _open(file, [columns.query_column])
    except BaseException:
        opened.close()
        raise
    return opened


def _open(file: LogFile, dictionaries: list[str]) -> pq.ParquetFile:
    try:
        source = open_file(file.path) if remote(file.path) else file.path
        return pq.ParquetFile(source, read_dictionary=dictionaries, pre_buffer=False, buffer_size=1 << 20)
    except (OSError, pa.ArrowException) as error:
        raise LogError(f"log file {file.path}: {_why_unreadable(file.path, error)}") from error


def _why_unreadable(path: str, error: Exception) -> str:
    try:
        with open_file(path) as stream:
            head = stream.read(16)
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - 4))
            tail = stream.read(4)
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

"""Checks of query logs that are lines of JSON, as User Behavior Insights (UBI) is exported: an object a line.

An object is a query itself, or a hit of OpenSearch or Elasticsearch that wraps it in `_source`; a file may be packed (.gz,
.zst). Which fields a file has, its first objects tell. The rows are read in jobs/log/json_batches.py.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa

from cluster.errors import LogError, UnavailableError, nearest
from cluster.http import encodable
from cluster.storage import open_file
from jobs.log.files import LogFile

HEAD_OBJECTS, HEAD_BYTES = 1000, 1 << 20  # of a file, whose fields tell what it holds
LINE_BYTES = 1 << 24  # of a line, as for DuckDB
BYTES_PER_ROW = 1 << 10  # about as many as a query of UBI with ten hits takes; for the size of parts only
_PACKED = {".gz": "gzip", ".zst": "zstd"}
_BULK = {"index", "create", "update", "delete"}  # the actions of the bulk API
_ONE_A_LINE = "write an object a line, as jq -c does"


class LineFields(NamedTuple):
    """What the first objects of a file have."""

    names: tuple[str, ...]
    wrapped: bool  # in `_source`


def json_fields(file: LogFile) -> LineFields | None:
    """Returns the fields of a file's first objects; None: it has none.

    Raises:
        LogError: the file cannot be read, or does not hold JSON objects, one a line; it was replaced since it was listed.
    """
    names: dict[str, None] = {}
    wrapped = None
    for number, line in enumerate(_lines(file, HEAD_OBJECTS, HEAD_BYTES), 1):
        found = _object(file, number, line)
        inside = isinstance(found.get("_source"), dict)
        if wrapped not in (None, inside):
            where = f"log file {file.path}, line {number}"
            raise LogError("log-ubi", f"{where}: some objects are wrapped in _source, some are not; write all in one way")
        wrapped = inside
        names |= dict.fromkeys(map(encodable, found["_source"] if inside else found))
    return None if wrapped is None else LineFields(tuple(names), wrapped)


def check_fields(file: LogFile, fields: LineFields, columns: Iterable[tuple[str, str]]) -> None:
    """Checks that a file has the columns that are read, or its partitions do.

    Args:
        file: of the log.
        fields: of its first objects.
        columns: the config key that names a column, for messages, and the column.

    Raises:
        LogError: it lacks one.
    """
    known = [*fields.names, *(name for name, _ in file.partitions)]
    for use, column in columns:
        if column not in known:
            more = "; it holds UBI's events: let log.path name the queries, log.events these"
            more = more if "action_name" in known else nearest(column, known)
            where = f"log file {file.path}: no field {column!r} ({use}) in its first {HEAD_OBJECTS:,} objects"
            raise LogError("log-column", where + more)


def objects_from(file: LogFile, first: int, fields: LineFields) -> Iterator[dict[str, Any]]:
    """Yields the objects of a file from that one on, from 0; text that is not UTF-8 has half surrogates (see `raw`).

    Of a key that an object has twice, the last value holds.

    Raises:
        ValueError: a line is no JSON object, or longer than LINE_BYTES.
        LogError: the file cannot be read to its end; it was replaced since it was listed.
    """
    for line in islice(_lines(file), first, None):
        found = _loads(line)
        inside = found.get("_source") if fields.wrapped and isinstance(found, dict) else found
        inside = {} if inside is None and fields.wrapped else inside
        if not isinstance(inside, dict):
            raise ValueError("not an object")
        yield inside


def raw(text: str) -> bytes:
    """Returns a text of `objects_from` as it is in the file; half a surrogate pair becomes bytes that are not UTF-8."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _loads(line: bytes) -> Any:
    try:
        return json.loads(line)
    except UnicodeDecodeError:
        return json.loads(line.decode("utf-8", "surrogateescape"))
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _lines(file: LogFile, most: int | None = None, most_bytes: int | None = None) -> Iterator[bytes]:
    """Yields the lines of a file that are not blank: `most`, of about the first `most_bytes`; None: all."""
    packed = next((name for ending, name in _PACKED.items() if file.path.endswith(ending)), None)
    read = lines = 0
    try:
        with open_file(file.path, file.etag) as opened:
            stream: Any = pa.CompressedInputStream(pa.PythonFile(opened, "r"), packed) if packed else opened
            rest: list[bytes] = []  # of a line whose end has not been read
            while (most is None or lines < most) and (most_bytes is None or read < most_bytes):
                piece = stream.read(1 << 16)
                read += len(piece)
                first, *more = piece.split(b"\n")
                rest.append(first)
                if more or not piece:
                    for line in (b"".join(rest), *more[:-1]):
                        if line.strip():
                            lines += 1
                            yield line
                    rest = more[-1:]
                if not piece:
                    return
                if sum(map(len, rest)) > LINE_BYTES:
                    raise ValueError("a line too long")
            if lines == 0:
                yield b"".join(rest)
    except UnavailableError:
        raise
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno == errno.ESTALE:
            raise LogError("log-changed", f"log file {file.path}: was replaced since it was listed; start again") from error
        words = " ".join(str(getattr(error, "strerror", None) or error).split())[:200]
        raise LogError("log-unreadable", f"log file {file.path}: cannot be read ({words}); make it readable") from error


def _object(file: LogFile, number: int, line: bytes) -> dict[str, Any]:
    where = f"log file {file.path}, line {number}"
    try:
        found = _loads(line)
    except ValueError as error:
        begins = line[:40].decode("utf-8", "replace").strip()
        whole = begins in ("{", "[")
        what = "an object or array over several lines" if whole else f"no JSON: it begins with {begins!r}"
        raise LogError("log-ubi", f"{where}: {what}; {_ONE_A_LINE}") from error
    if not isinstance(found, dict):
        raise LogError("log-ubi", f"{where}: a JSON {_kind(found)}, wanted an object; {_ONE_A_LINE}")
    if isinstance(found.get("hits"), dict) and "hits" in found["hits"]:
        raise LogError("log-ubi", f"{where}: a whole answer of a search; {_ONE_A_LINE}: jq -c '.hits.hits[]'")
    if len(found) == 1 and _BULK.issuperset(found) and isinstance(next(iter(found.values())), dict):
        what = "an action of the bulk API; export the documents alone, queries and events apart"
        raise LogError("log-ubi", f"{where}: {what}")
    return found


def _kind(value: object) -> str:
    return "array" if isinstance(value, list) else "value"

"""Reader of query logs that are lines of JSON: an object a line.

An object is a query itself, or a hit of OpenSearch or Elasticsearch that wraps it in `_source`; a file may be packed (.gz,
.zst). Which fields a file has, its first objects tell. DuckDB reads the fields that are wanted, in order, as a stream: it takes
a number where text is wanted, and holds some ten MB of a file of any size. A file is read from its start to its end by one
worker. From a row on that DuckDB refuses, since a text in it is not UTF-8, Python reads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from types import MappingProxyType
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from cluster.cause import one_line
from cluster.errors import LogError, UnavailableError, nearest
from cluster.http import encodable
from cluster.storage import object_at, open_file, remote
from cluster.storage.packed import unpacked
from cluster.storage.s3_duckdb import bounded_duckdb, reason
from cluster.storage.sql import file_literal, identifier, text_literal
from jobs.log.files import LogFile, check_file_version, replaced, unchanged

HEAD_OBJECTS, HEAD_BYTES = 1000, 1 << 20  # of a file, whose fields tell what it holds
LINE_BYTES = 1 << 24  # of a line, as for DuckDB
BYTES_PER_ROW = 1 << 10  # about as many as a query with ten hits takes; for the size of parts only
NONE: Mapping[str, str] = MappingProxyType({})
_KINDS: dict[type, str] = {dict: "object", list: "array"}
_BULK = {"index", "create", "update", "delete"}  # the actions of the bulk API
_ONE_A_LINE = "write an object a line, as jq -c does"


class LineFields(NamedTuple):
    """What the first objects of a file have."""

    names: tuple[str, ...]
    wrapped: bool  # in `_source`


def json_fields(file: LogFile, plain: Mapping[str, str] = NONE) -> LineFields | None:
    """Returns the fields of a file's first objects; None: it has none.

    Fields that are `plain` (field -> the config key that names it) hold no objects and arrays, but for the query no fractions.

    Raises:
        LogError: the file cannot be read, or does not hold JSON objects, one a line; it was replaced since it was listed.
    """
    names: dict[str, None] = {}
    wrapped = None
    for number, line in enumerate(_lines(file, HEAD_OBJECTS, HEAD_BYTES), 1):
        found = _object(file, number, line)
        inside = isinstance(found.get("_source"), dict)
        if wrapped not in (None, inside):
            words = "some objects are wrapped in _source, some are not; write all in one way"
            raise file.error("log-unreadable", words, f", line {number}")
        wrapped, own = inside, found["_source"] if inside else found
        for name, use in plain.items():
            if isinstance(own.get(name), dict | list if use == "log.query_column" else dict | list | float):
                odd = own[name]
                what = "a number with a fraction" if isinstance(odd, float) else f"an {_KINDS[type(odd)]}"
                words = f"field {name!r} ({use}) holds {what}, wanted text or whole numbers; name another field"
                raise file.error("log-column", words, f", line {number}")
        names |= dict.fromkeys(map(encodable, own))
    return None if wrapped is None else LineFields(tuple(names), wrapped)


def check_fields(file: LogFile, fields: LineFields, columns: Iterable[tuple[str, str]]) -> None:
    """Checks that a file with these first fields has the `columns` that are read (config key, column), or its partitions do.

    Raises:
        LogError: it lacks one.
    """
    known = [*fields.names, *(name for name, _ in file.partitions)]
    for use, column in columns:
        if column not in known:
            what = f"no field {column!r} ({use}) in its first {HEAD_OBJECTS:,} objects"
            raise file.error("log-column", what + nearest(column, known))


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
    read = lines = 0
    try:
        with open_file(file.path, file.etag) as opened:
            stream = unpacked(opened, file.path)
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
        check_file_version(file, error)
        words = one_line(getattr(error, "strerror", None) or error, 200)
        raise file.error("log-unreadable", f"cannot be read ({words}); make it readable") from error


def _object(file: LogFile, number: int, line: bytes) -> dict[str, Any]:
    at = f", line {number}"
    try:
        found = _loads(line)
    except ValueError as error:
        begins = line[:40].decode("utf-8", "replace").strip()
        whole = begins in ("{", "[")
        what = "an object or array over several lines" if whole else f"no JSON: it begins with {begins!r}"
        raise file.error("log-unreadable", f"{what}; {_ONE_A_LINE}", at) from error
    if not isinstance(found, dict):
        kind = "array" if isinstance(found, list) else "value"
        raise file.error("log-unreadable", f"a JSON {kind}, wanted an object; {_ONE_A_LINE}", at)
    if isinstance(found.get("hits"), dict) and "hits" in found["hits"]:
        raise file.error("log-unreadable", f"a whole answer of a search; {_ONE_A_LINE}: jq -c '.hits.hits[]'", at)
    if len(found) == 1 and _BULK.issuperset(found) and isinstance(next(iter(found.values())), dict):
        raise file.error("log-unreadable", "an action of the bulk API; export the documents alone", at)
    return found


MEMORY = "256MB"  # of one DuckDB


def json_batches(file: LogFile, texts: Sequence[str], lists: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Yields the objects of a file in their order, `rows` at a time.

    Args:
        file: of the log.
        texts: fields that are read as text; what is no text as its JSON.
        lists: fields that are read as lists of text; what is no list is a list of one.
        rows: objects at a time.

    Raises:
        LogError: the file cannot be read to its end, or was replaced.
    """
    check_version(file)
    fields = json_fields(file)
    if fields is None:
        return
    named = [name for name in (*texts, *lists) if name in fields.names]
    expressions = {name: _list(name) if name in lists else f"{identifier(name)}->>'$'" for name in named}
    columns = ", ".join(f"{expression} AS {identifier(name)}" for name, expression in expressions.items())
    # a row per object even where all columns come from partitions
    select = f"SELECT {columns or 'NULL AS nothing'} FROM {objects([file.path], fields, named)}"
    read = 0
    with bounded_duckdb(MEMORY, 1, ordered=True) as connection:
        try:
            for batch in connection.sql(select).to_arrow_reader(rows):
                yield batch
                read += len(batch)
            return
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            if "Invalid Input Error: " not in str(error):  # Arrow's reader passes DuckDB's errors on as its own
                raise _unreadable(file, error) from error
            failed = error
    # One text that is not UTF-8, or a key twice, and DuckDB reads no further; with ignore_errors it drops rows uncounted.
    try:
        found = ({name: one.get(name) for name in named} for one in objects_from(file, read, fields))  # of wide objects little
        while some := list(islice(found, rows)):
            yield _batch(some, {name: name in lists for name in named})
    except ValueError as error:
        raise _unreadable(file, failed) from error


def _batch(found: Sequence[dict[str, Any]], named: dict[str, bool]) -> pa.RecordBatch:
    """Returns columns (name -> whether it is read as lists) of objects, in which text may not be UTF-8, as DuckDB has them."""
    columns = {"nothing": pa.nulls(len(found))} if not named else {}
    for name, is_list in named.items():
        values = [one.get(name) for one in found]
        if not is_list:
            columns[name] = pa.array(map(_text, values), pa.binary()).view(pa.string())
            continue
        items = [value if isinstance(value, list) else [value] for value in values]
        offsets = pa.array(accumulate(map(len, items), initial=0), pa.int32())
        texts = pa.array((_text(item) for of in items for item in of), pa.binary())
        columns[name] = pa.ListArray.from_arrays(offsets, texts.view(pa.string()))
    return pa.record_batch(columns)


def _text(value: object) -> bytes | None:
    if value is None:
        return None
    return raw(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _unreadable(file: LogFile, error: Exception) -> LogError:
    return file.error("log-unreadable", f"{reason(error)}; correct it, or export it again")


def objects(paths: Sequence[str], fields: LineFields, names: Sequence[str]) -> str:
    """Returns SQL of a table: these fields, of type JSON, of the objects of files of one shape."""
    files = ", ".join(map(file_literal, paths))
    inside = ", ".join(f"{identifier(name)} JSON" for name in names)
    if not names:
        columns = "'_id': 'JSON'"
    elif fields.wrapped:
        columns = f"'_source': {text_literal(f'STRUCT({inside})')}"
    else:
        columns = ", ".join(f"{text_literal(name)}: 'JSON'" for name in names)
    table = f"read_json([{files}], format = 'newline_delimited', columns = {{{columns}}})"
    if not fields.wrapped or not names:
        return table
    picked = ", ".join(f"_source.{identifier(name)} AS {identifier(name)}" for name in names)
    return f"(SELECT {picked} FROM {table})"


def check_version(file: LogFile) -> None:
    """Checks that a file is the one that was listed, since DuckDB opens it by its name alone.

    Raises:
        LogError: it was replaced.
    """
    if remote(file.path):
        entry = object_at(file.path)
        same = entry is not None and entry.etag == file.etag
    else:
        same = os.path.exists(file.path) and unchanged(file)
    if not same:
        raise replaced(file)


def _list(name: str) -> str:
    column = identifier(name)
    return f"CASE WHEN json_type({column}) = 'ARRAY' THEN {column}->>'$[*]' ELSE [{column}->>'$'] END"

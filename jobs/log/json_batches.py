"""Reader of lines of JSON by DuckDB: in order, as a stream, the fields that are wanted.

DuckDB takes a number where text is wanted, reads packed files, and holds some ten MB of a file of any size. A file is read
from its start to its end by one worker. From a row on that DuckDB refuses, since a text in it is not UTF-8, Python reads.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from cluster.errors import LogError
from cluster.storage import object_at, remote
from cluster.storage.s3_duckdb import reason
from jobs.log.files import LogFile, unchanged
from jobs.log.json_lines import LineFields, json_fields, objects_from, raw
from jobs.log.task import MEMORY, connect


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
    expressions = {name: _list(name) if name in lists else f"{_quoted(name)}->>'$'" for name in named}
    columns = ", ".join(f"{expression} AS {_quoted(name)}" for name, expression in expressions.items())
    # a row per object even where all columns come from partitions
    select = f"SELECT {columns or 'NULL AS nothing'} FROM {objects([file.path], fields, named)}"
    read = 0
    with tempfile.TemporaryDirectory(prefix="dmqr-log-") as temp, connect(MEMORY, 1, Path(temp)) as connection:
        try:
            connection.execute("SET preserve_insertion_order = true")
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
    return LogError("log-unreadable", f"log file {file.path}: {reason(error)}; correct it, or export it again")


def objects(paths: Sequence[str], fields: LineFields, names: Sequence[str]) -> str:
    """Returns SQL of a table: these fields, of type JSON, of the objects of files of one shape."""
    files = ", ".join(f"'{_escaped(path)}'" for path in paths)
    inside = ", ".join(f"{_quoted(name)} JSON" for name in names)
    if not names:
        columns = "'_id': 'JSON'"
    elif fields.wrapped:
        columns = f"'_source': '{_escaped(f'STRUCT({inside})')}'"
    else:
        columns = ", ".join(f"'{_escaped(name)}': 'JSON'" for name in names)
    table = f"read_json([{files}], format = 'newline_delimited', columns = {{{columns}}})"
    if not fields.wrapped or not names:
        return table
    picked = ", ".join(f"_source.{_quoted(name)} AS {_quoted(name)}" for name in names)
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
        raise LogError("log-changed", f"log file {file.path}: was replaced since it was listed; start again")


def _list(name: str) -> str:
    column = _quoted(name)
    return f"CASE WHEN json_type({column}) = 'ARRAY' THEN {column}->>'$[*]' ELSE [{column}->>'$'] END"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _escaped(text: str) -> str:
    return text.replace("'", "''")

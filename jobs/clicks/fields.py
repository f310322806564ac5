"""SQL of the fields of UBI's exports, in whatever form a file has them.

A field has a path: `event_attributes.object.object_id`. In lines of JSON it is followed into the object. In Parquet its root
may be a struct, or JSON as text; and in both a field may stand flat under its whole path.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.cause import one_line
from cluster.errors import LogError, UnavailableError
from cluster.storage import open_file
from cluster.storage.prefetch import prefetch
from cluster.storage.sql import file_literal
from jobs.log.check import CHECKS_IN_FLIGHT, is_list
from jobs.log.files import LogFile
from jobs.log.json_lines import LineFields, json_fields, objects

Shape = LineFields | tuple[tuple[str, str], ...]
"""Of lines of JSON their fields; of Parquet the names of its columns, and how each is read: text, list, nested or other."""


def rows_of(
    files: Sequence[LogFile],
    texts: Mapping[str, Sequence[str]],
    lists: Mapping[str, Sequence[str]],
    needed: Collection[str] = (),
) -> str:
    """Returns SQL that selects fields of all rows of files: `texts` as VARCHAR, `lists` as VARCHAR[].

    Args:
        files: lines of JSON or Parquet.
        texts: name of a column -> paths of its field, the first that a row has; what is no text is its JSON.
        lists: the same; what is no list is a list of one.
        needed: columns that some file must have; the others are null where no file has them.

    Raises:
        LogError: a file cannot be read, no file has a row, or all files lack all paths of a needed column.
    """
    shapes: dict[Shape, list[str]] = {}
    for file, shape in zip(files, prefetch(_shape, files, CHECKS_IN_FLIGHT), strict=True):
        if shape is not None:
            shapes.setdefault(shape, []).append(file.path)
    if not shapes:
        raise LogError("log-empty", f"no rows in {_shown(files)}; name other files")
    names = {name for shape in shapes for name in _names(shape)}
    for column in needed:
        paths = texts.get(column) or lists[column]
        if not any(_root(path, names) for path in paths):
            more = f" (found: {', '.join(sorted(names)[:24])})"
            raise LogError("log-ubi", f"{_shown(files)}: no field {paths[0]!r} of UBI 1.3{more}; name other files, or add it")
    return " UNION ALL ".join(_select(shape, paths, texts, lists) for shape, paths in shapes.items())


def _select(shape: Shape, paths: list[str], texts: Mapping[str, Sequence[str]], lists: Mapping[str, Sequence[str]]) -> str:
    columns = [
        f"coalesce({', '.join([*(_text(shape, path) for path in of), 'NULL::VARCHAR'])}) AS {name}"
        for name, of in texts.items()
    ]
    columns += [
        f"coalesce({', '.join([*(_list(shape, path) for path in of), 'NULL::VARCHAR[]'])}) AS {name}"
        for name, of in lists.items()
    ]
    if isinstance(shape, LineFields):
        wanted = [path for of in (*texts.values(), *lists.values()) for path in of]
        roots = {root for path in wanted if (root := _root(path, shape.names))}
        table = objects(paths, shape, sorted(roots))
    else:
        listed = ", ".join(map(file_literal, paths))
        table = f"read_parquet([{listed}], hive_partitioning = false)"
    return f"SELECT {', '.join(columns)} FROM {table}"


def _text(shape: Shape, path: str) -> str:
    root = _root(path, _names(shape))
    if root is None:
        return "NULL::VARCHAR"
    column, rest = f'"{root}"', path[len(root) + 1 :]
    if isinstance(shape, LineFields):
        return f"({column}->>'${'.' * bool(rest)}{rest}')"
    if not rest:
        return f"{column}::VARCHAR"
    kind = dict(shape)[root]
    nested = {"nested": f"to_json({column})", "text": f"TRY_CAST({column} AS JSON)"}.get(kind)
    return "NULL::VARCHAR" if nested is None else f"({nested}->>'$.{rest}')"


def _list(shape: Shape, path: str) -> str:
    if path not in _names(shape):
        return "NULL::VARCHAR[]"
    column = f'"{path}"'
    if not isinstance(shape, LineFields):
        kind = dict(shape)[path]
        if kind == "list":
            return f"{column}::VARCHAR[]"
        column = f"TRY_CAST({column}::VARCHAR AS JSON)"
    one = f"CASE WHEN {column}->>'$' IS NULL THEN NULL ELSE [{column}->>'$'] END"
    return f"CASE WHEN json_type({column}) = 'ARRAY' THEN {column}->>'$[*]' ELSE {one} END"


def _root(path: str, names: Sequence[str] | set[str]) -> str | None:
    """Returns the field in which a path begins: itself, if it stands flat, else its first part."""
    return next((root for root in (path, path.partition(".")[0]) if root in names), None)


def _names(shape: Shape) -> tuple[str, ...]:
    return shape.names if isinstance(shape, LineFields) else tuple(name for name, _ in shape)


def _shape(file: LogFile) -> Shape | None:
    if file.form == "json":
        return json_fields(file)
    try:
        with open_file(file.path, file.etag) as stream:
            schema = pq.ParquetFile(stream).schema_arrow
    except UnavailableError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise LogError(
            "log-unreadable", f"log file {file.path}: no readable Parquet: {one_line(error)}; copy it again"
        ) from error
    return tuple((field.name, _kind(field.type)) for field in schema)


def _kind(kind: pa.DataType) -> str:
    if is_list(kind):
        return "list"
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        return "nested"
    return "text" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else "other"


def _shown(files: Sequence[LogFile]) -> str:
    return files[0].path + f" and {len(files) - 1} more" * (len(files) > 1)

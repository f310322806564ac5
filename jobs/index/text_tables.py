"""A corpus of lines of JSON or CSV, written as Parquet, which indexes are built from.

Of CSV every column is text. Of lines of JSON a column has the type that all its values have, whole numbers, fractions, truth
values, text, or lists of one of them; of what is mixed or nested it has text, and JSON where a value is none. What looks like a
date stays text: DuckDB's own reading would take an id 2024-01-31 for a day.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from cluster.errors import RetrieverError, UnavailableError
from cluster.storage import open_file
from cluster.storage.s3_duckdb import bounded_duckdb, reason
from cluster.storage.sql import file_literal, identifier, text_literal
from jobs.log.table_file import TableFault, TextTable, open_table
from retrievers.corpora.files import Progress, Source
from retrievers.settings import CorpusSettings

_ROWS = 8192  # read and written at a time
_MEMORY = "256MB"  # of DuckDB
_ARROW = {
    "VARCHAR": pa.string(), "UBIGINT": pa.uint64(), "BIGINT": pa.int64(), "DOUBLE": pa.float64(), "BOOLEAN": pa.bool_(),
}  # fmt: skip
_MIXED = "JSON"
_Rows = tuple[pa.Schema, int, Iterator[pa.RecordBatch]]
"""Schema, rows in all (0: not known), and the rows of a file, which are read when they are iterated over."""


def as_parquet(
    path: str, columns: CorpusSettings, to: Path, progress: Progress, renamed: Mapping[str, str] = MappingProxyType({})
) -> Source:
    """Writes the rows of a file, here or on S3, as Parquet; returns it under the file's own name.

    Args:
        path: Of the file, whose ending says its form.
        columns: The config's `corpus`.
        to: Of the Parquet file.
        progress: Called with "convert", rows done, rows in all.
        renamed: Column of the file -> its name in the Parquet file.

    Raises:
        RetrieverError: The file cannot be read, or one of the columns that are indexed has an unsuitable type.
    """
    done = 0
    with reading(path):
        table = open_table(path)
        if table is None or not isinstance(table, TextTable):
            raise TableFault("no documents in it; give another")
        try:
            schema, total, batches = _of_json(path, columns) if table.head else _of_csv(table)
            names = [renamed.get(name, name) for name in schema.names]
            with pq.ParquetWriter(to, pa.schema(zip(names, schema.types, strict=True))) as writer:
                for batch in batches:
                    progress("convert", done, max(total, done))
                    writer.write_batch(batch.cast(schema).rename_columns(names))
                    done += len(batch)
        except (duckdb.Error, pa.ArrowException):
            deque(table.records(table.names), 0)  # says in which line
            raise
    return Source(path, partial(open_file, str(to)))


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Raises RetrieverError, which names the file, where the body cannot read it."""
    try:
        yield
    except TableFault as fault:
        raise RetrieverError("corpus", f"corpus {path}{fault.at}: {fault.words}") from None
    except UnavailableError:
        raise
    except (duckdb.Error, OSError, pa.ArrowException) as error:
        words = f"cannot be read: {reason(error)}; correct it, or export it again"
        raise RetrieverError("corpus", f"corpus {path}: {words}") from None


def _of_csv(table: TextTable) -> _Rows:
    _check_distinct(table.names)
    schema = pa.schema([(name, pa.string()) for name in table.names])
    return schema, 0, table.batches(table.names, _ROWS)


def _check_distinct(names: Sequence[str]) -> None:
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise TableFault(f"two columns are called {twice[0]!r}; rename one")


def _of_json(path: str, columns: CorpusSettings) -> _Rows:
    objects = f"read_json_objects({file_literal(path)}, format = 'newline_delimited')"
    with bounded_duckdb(_MEMORY, 1) as connection:
        total, told = connection.execute(f"SELECT count(*), json_group_structure(json) FROM {objects}").fetchone() or (0, None)
    kinds = json.loads(str(told))
    if not isinstance(kinds, dict) or not kinds:
        raise TableFault("holds JSON that is no object with fields; write an object a line, as jq -c does")
    _check_distinct([name.lower() for name in kinds])  # DuckDB does not tell fields apart by case
    for column, name in columns.read_as.items():
        if name is not None and name in kinds and _type(kinds[name]) is None:
            _check_mixed(path, name, whole_numbers=column == "doc_id")
    types = {name: _type(kind) for name, kind in kinds.items()}
    table = _table(path, {name: _MIXED if kind is None else kind for name, kind in types.items()})
    picked = (identifier(name) + ("->>'$'" if kind is None else "") + f" AS {identifier(name)}" for name, kind in types.items())
    schema = pa.schema([(name, _arrow(kind)) for name, kind in types.items()])
    return schema, total, _selected(f"SELECT {', '.join(picked)} FROM {table}")


def _type(kind: Any) -> str | None:
    """Returns the type of a column, as DuckDB has it, by what its values are found to be; None: it is mixed or nested."""
    if isinstance(kind, list):
        inside = _type(kind[0]) if kind else "VARCHAR"
        return None if inside is None or inside.endswith("[]") else f"{inside}[]"
    if kind == "NULL":
        return "VARCHAR"
    return kind if isinstance(kind, str) and kind in _ARROW else None


def _arrow(kind: str | None) -> pa.DataType:
    if kind is None:
        return pa.string()
    return pa.list_(_ARROW[kind[:-2]]) if kind.endswith("[]") else _ARROW[kind]


def _check_mixed(path: str, name: str, *, whole_numbers: bool) -> None:
    """Checks that a column that is mixed or nested, and will be text, has text and perhaps whole numbers."""
    with bounded_duckdb(_MEMORY, 1) as connection:
        found = connection.execute(
            f"SELECT DISTINCT json_type({identifier(name)}) FROM {_table(path, {name: _MIXED})}"
        ).fetchall()
    odd = {kind for (kind,) in found if kind} - {"VARCHAR", "NULL"} - ({"UBIGINT", "BIGINT"} if whole_numbers else set())
    if odd:
        wanted, kinds = "string or integer" if whole_numbers else "string", ", ".join(sorted(odd)).lower()
        raise TableFault(f"column {name!r} must be {wanted}, found {kinds} in some rows; convert it")


def _table(path: str, types: Mapping[str, str]) -> str:
    """Returns SQL of a file's fields with these types."""
    read = ", ".join(f"{text_literal(name)}: '{kind}'" for name, kind in types.items())
    return f"read_json({file_literal(path)}, format = 'newline_delimited', records = true, columns = {{{read}}})"


def _selected(query: str) -> Iterator[pa.RecordBatch]:
    with bounded_duckdb(_MEMORY, 1, ordered=True) as connection:
        yield from connection.sql(query).to_arrow_reader(_ROWS)

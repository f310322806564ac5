"""Files of rows for others, as JSON lines or Parquet by their ending, and what is said of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TextIO, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.errors import ConfigError
from cluster.storage.whole_file import written

ENDINGS = (".parquet", ".jsonl")
_GROUP = 1_000  # rows of a row group
Row = TypeVar("Row")


class WrittenAnswers(NamedTuple):
    """A file that was written."""

    path: str
    rows: int
    notes: tuple[str, ...]
    """What it leaves out or assumes."""
    of: str = "answers"
    """What its rows are."""

    def __str__(self) -> str:
        """Returns it in one line."""
        return "; ".join([f"{self.path}: {self.rows:,} {self.of}", *self.notes])


def check_rows_ending(path: str, option: str) -> None:
    """Checks the name of a file of rows.

    Args:
        path: of the file.
        option: of the command line that gave it.

    Raises:
        ConfigError: it ends in neither .parquet nor .jsonl.
    """
    if not path.lower().endswith(ENDINGS):
        what = f"{option} {path}: is neither Parquet nor JSON lines"
        raise ConfigError("argument", f"{what}; give a name that ends in {' or '.join(ENDINGS)}")


def write_rows(path: str, schema: pa.Schema, rows: Iterable[dict[str, Any]]) -> int:
    """Writes rows to a local file or an object on S3; returns their number."""
    with written(path) as file:
        if path.lower().endswith(".jsonl"):
            with file.open("w", encoding="utf-8", newline="\n") as lines:
                return sum(_line(lines, row, schema) for row in rows)
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            return sum(_group(writer, group, schema) for group in batched(rows, _GROUP))


def _line(lines: TextIO, row: dict[str, Any], schema: pa.Schema) -> int:
    lines.write(json.dumps({name: row.get(name) for name in schema.names}, ensure_ascii=False) + "\n")
    return 1


def _group(writer: pq.ParquetWriter, rows: list[dict[str, Any]], schema: pa.Schema) -> int:
    writer.write_table(pa.Table.from_pylist(rows, schema))
    return len(rows)


def batched(rows: Iterable[Row], most: int) -> Iterator[list[Row]]:
    """Yields the rows in lists of at most `most`."""
    remaining = iter(rows)
    while batch := list(itertools.islice(remaining, most)):
        yield batch

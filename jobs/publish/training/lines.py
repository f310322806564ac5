"""The lines of a format of training rows: as they come, or where filters give one text several queries, equal ones once."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.runs.folder import RunFolder
from jobs.runs.reading import database

_STAGED = pa.schema([("key", pa.binary(16)), ("place", pa.int64()), ("line", pa.string())])
_BATCH = 1 << 12  # lines that are staged at a time
_FIRST = """
SELECT line FROM rows_of($staged)
SEMI JOIN (SELECT min(place) AS place FROM rows_of($staged) GROUP BY key) AS first USING (place) ORDER BY place
"""


class TrainingLines(Protocol):
    """Takes rows; counts `rows` that are written, and `equal` ones that are not."""

    def write(self, row: Mapping[str, Any], *same: str) -> None:
        """Takes a row; those of one prompt and answer have the same words."""
        ...


@contextmanager
def training_lines(path: Path, run: RunFolder, counts: Counter[str]) -> Iterator[TrainingLines]:
    """Opens a file of JSON lines, which is complete when the context ends.

    With `retrieve.filters` one text is as many queries as it has values, and the model is shown the text alone: of rows
    with the same words the first is written.
    """
    with path.open("w", encoding="utf-8", newline="\n") as file:
        if not run.config.retrieve.filters:
            yield _EachLine(file, counts)
            return
        with tempfile.TemporaryDirectory(prefix="dmqr-lines-") as folder:
            staged = Path(folder, "staged.parquet")
            with pq.ParquetWriter(staged, _STAGED, compression="zstd") as writer:
                lines = _StagedLines(writer)
                yield lines
                lines.flush()
            written = 0
            with database() as connection:
                for batch in connection.sql(_FIRST, params={"staged": str(staged)}).to_arrow_reader(_BATCH):
                    file.writelines(batch.column("line").to_pylist())
                    written += batch.num_rows
            counts.update(rows=written, equal=lines.taken - written)


class _EachLine:
    def __init__(self, file: TextIO, counts: Counter[str]) -> None:
        self._file, self._counts = file, counts

    def write(self, row: Mapping[str, Any], *same: str) -> None:
        self._file.write(_line(row))
        self._counts["rows"] += 1


class _StagedLines:
    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer, self._waiting = writer, list[tuple[bytes, int, str]]()
        self.taken = 0

    def write(self, row: Mapping[str, Any], *same: str) -> None:
        key = sha256(json.dumps(same).encode()).digest()[:16]
        self._waiting.append((key, self.taken, _line(row)))
        self.taken += 1
        if len(self._waiting) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        columns = zip(*self._waiting, strict=True) if self._waiting else ((), (), ())
        self._writer.write_table(pa.table([*map(list, columns)], schema=_STAGED))
        self._waiting.clear()


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"

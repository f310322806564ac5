"""The files that dedup writes: schemas, row groups of exact size, the move of a finished set into its folder."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

QUERIES = pa.schema([("query_id", pa.string()), ("query", pa.string()), ("log_count", pa.int64())])
QUERY_MAP = pa.schema([("log_id", pa.string()), ("query_id", pa.string())])
REJECTED = pa.schema([(name, pa.string()) for name in ("log_id", "reason", "message", "raw")])
# query_map as it is handed to the writer: a file stores no trace of it, readers see QUERY_MAP
ENCODED_MAP = pa.schema([("log_id", pa.string()), ("query_id", pa.dictionary(pa.int32(), pa.string()))])

GROUPS_PER_FILE = 64
TABLES = ("queries", "query_map", "rejected")
NAMES = re.compile(rf"({'|'.join(TABLES)})-\d{{5}}\.parquet")


@dataclass(frozen=True)
class Shard:
    """One row group of one queries file: the unit of work of everything that follows."""

    file: str  # name inside the out folder
    row_group: int
    rows: int
    first_query_id: str


class RowGroups:
    """Writes `<name>-00000.parquet`, ...: row groups of exactly `group_rows` (the last one fewer), 64 to a file.

    With `group_rows` None every table pushed is a row group. There is a file even when there are no rows.
    """

    def __init__(self, folder: Path, name: str, schema: pa.Schema, group_rows: int | None) -> None:
        self.folder, self.name, self.schema, self.group_rows = folder, name, schema, group_rows
        self.shards: list[Shard] = []  # one per row group; first_query_id: the first row of the first column
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._files = 0
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        self._open()
        return self

    def push(self, table: pa.Table) -> None:
        """Take rows; what fills a row group is written."""
        if self.group_rows is None:
            self._write(table)
            return
        self._pending.append(table)
        self._pending_rows += len(table)
        if self._pending_rows < self.group_rows:
            return
        joined = pa.concat_tables(self._pending)
        whole = self._pending_rows // self.group_rows * self.group_rows
        for start in range(0, whole, self.group_rows):
            self._write(joined.slice(start, self.group_rows))
        self._pending = [joined.slice(whole)]
        self._pending_rows -= whole

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self._pending_rows:
                self._write(pa.concat_tables(self._pending))
        finally:
            if self._writer is not None:
                self._writer.close()

    def _write(self, table: pa.Table) -> None:
        if not len(table):
            return
        if len(self.shards) and len(self.shards) % GROUPS_PER_FILE == 0:
            self._open()
        assert self._writer is not None
        self._writer.write_table(table, row_group_size=len(table))
        file = f"{self.name}-{self._files - 1:05d}.parquet"
        self.shards.append(Shard(file, len(self.shards) % GROUPS_PER_FILE, len(table), table.column(0)[0].as_py()))

    def _open(self) -> None:
        if self._writer is not None:
            self._writer.close()
        encoded = [column.name for column in self.schema if pa.types.is_dictionary(column.type)]
        self._writer = pq.ParquetWriter(
            self.folder / f"{self.name}-{self._files:05d}.parquet",
            self.schema,
            compression="zstd",
            store_schema=False,
            # ids are unique or few: a dictionary is worth its cost only where the table comes with one
            use_dictionary=encoded or (["reason", "message"] if self.schema.equals(REJECTED) else False),
            dictionary_pagesize_limit=1 << 24,
        )
        self._files += 1


def move_files(built: Path, out_folder: Path) -> None:
    """Replace the files of an earlier dedup in `out_folder` by those in `built`; other files stay."""
    for name in os.listdir(out_folder):
        if NAMES.fullmatch(name):
            os.unlink(out_folder / name)
    for name in sorted(os.listdir(built)):
        os.replace(built / name, out_folder / name)


def files_by_table(folder: Path) -> dict[str, tuple[str, ...]]:
    """Table -> names of its files in `folder`, in order."""
    names = sorted(name for name in os.listdir(folder) if NAMES.fullmatch(name))
    return {table: tuple(name for name in names if name.startswith(f"{table}-")) for table in TABLES}

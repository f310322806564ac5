"""Writes a file of one table, one row group after the other."""

from __future__ import annotations

import io
import uuid

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.run.shards import File
from cluster.run.stage import heartbeat
from cluster.storage import Storage
from jobs.chain.tables import ARM_STORED

ROW_GROUP = 50_000  # rows: one of an arm's own has a few hundred, and takes longer to begin than to fill


class RowGroups:
    """A file of one table, written one row group after the other: memory holds one group's rows."""

    def __init__(self, storage: Storage, table: str, shard: int) -> None:
        self._storage, self._key = storage, f"{table}/shard-{shard:06d}-{uuid.uuid4().hex[:12]}.parquet"
        self._schema, self._sink, self._group = ARM_STORED[table], io.BytesIO(), list[pa.Table]()
        self.file = File(self._key, 0, 0)

    def __enter__(self) -> RowGroups:
        self._writer = pq.ParquetWriter(self._sink, self._schema, compression="zstd")
        return self

    def add(self, rows: pa.Table) -> None:
        """Adds rows."""
        self._group.append(rows)
        self.file = self.file._replace(rows=self.file.rows + rows.num_rows)
        if sum(one.num_rows for one in self._group) >= ROW_GROUP:
            self._write()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return
        if self._group:
            self._write()
        self._writer.close()
        data = self._sink.getvalue()
        self.file = self.file._replace(size=len(data))
        if self.file.rows:
            self._storage.put(self._key, data)

    def _write(self) -> None:
        self._writer.write_table(pa.concat_tables(self._group))
        self._group = []
        heartbeat()

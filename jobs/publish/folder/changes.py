"""The files of a delta: `changes.parquet` and `changes.jsonl`, what to put and what to delete to come to a version."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.publish.delta import Delta
from jobs.publish.rows import LOOK_UP

CHANGES = "changes"
PUT, DELETE = "put", "delete"
SCHEMA = pa.schema([("op", pa.string()), *LOOK_UP])
"""Columns of `changes.parquet`; of a row to delete all but `op` and `key` are null."""
_BATCH = 1 << 14


def write_changes(delta: Delta, folder: Path) -> None:
    """Writes both files into a new folder `CHANGES` of this one: first the rows to put, then those to delete, by key each."""
    own = folder / CHANGES
    own.mkdir()
    with pq.ParquetWriter(own / f"{CHANGES}.parquet", SCHEMA, compression="zstd") as file:
        for batch in delta.changed.batches():
            file.write_batch(pa.RecordBatch.from_arrays([pa.array([PUT] * len(batch)), *batch.columns], schema=SCHEMA))
        with pq.ParquetFile(delta.gone_file) as gone:
            for batch in gone.iter_batches(_BATCH):
                nothing = [pa.nulls(len(batch), field.type) for field in list(LOOK_UP)[1:]]
                ops = pa.array([DELETE] * len(batch))
                file.write_batch(pa.RecordBatch.from_arrays([ops, batch.column(0), *nothing], schema=SCHEMA))
    with (own / f"{CHANGES}.jsonl").open("w", encoding="utf-8", newline="\n") as lines:
        lines.writelines(f'{{"op":"{PUT}",{line[1:]}\n' for _, line in delta.puts())
        lines.writelines(f'{{"op":"{DELETE}","key":"{key}"}}\n' for key in delta.gone())

"""Log -> shards: dedup's files become tables of the run, and `shards.json` fixes which rows are one shard."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.shards import File, Plan, Shard, put_plan
from cluster.storage import Storage
from jobs.dedup import LogSummary, dedup
from jobs.prepare import Prepared
from jobs.tables import STORED


class Draft(NamedTuple):
    """What dedup left in a temporary folder, which goes with the draft."""

    folder: tempfile.TemporaryDirectory[str]
    log: LogSummary


def draft_queries(prepared: Prepared) -> Draft:
    """Collapse the log into distinct queries; LogError if it has none. Nothing of the run is written yet."""
    folder = tempfile.TemporaryDirectory(prefix="dmqr-plan-")
    log = dedup(prepared.files, prepared.columns, Path(folder.name), prepared.config.cluster.shard_size)
    return Draft(folder, log)


def fix_plan(prepared: Prepared, draft: Draft) -> Plan:
    """Store the draft's tables and fix the shards; the first to put `shards.json` decides."""
    folder, log = Path(draft.folder.name), draft.log
    storage = prepared.storage
    attempt = uuid.uuid4().hex[:12]
    tables = {
        table: [_store(storage, folder / name, f"{table}/plan-{attempt}-{name}", table) for name in log.files[written]]
        for table, written in (("queries", "queries"), ("query_map", "query_map"), ("errors", "rejected"))
    }
    shards = [
        Shard(number, f"queries/plan-{attempt}-{shard.file}", shard.row_group, shard.rows)
        for number, shard in enumerate(log.shards)
    ]
    counts = {"log_rows": log.rows, "queries": log.queries, "rejected": sum(log.rejected.values())}
    return put_plan(storage, Plan(prepared.inputs, counts, prepared.config.cluster.shard_size, tables, shards))


def _store(storage: Storage, path: Path, key: str, table: str) -> File:
    """Store a planned file with the columns of its table."""
    if table == "errors":
        _as_errors(path)
    storage.upload(path, key)
    return File(key, pq.read_metadata(path).num_rows, path.stat().st_size)


def _as_errors(path: Path) -> None:
    """Give dedup's rejected rows the columns of errors/, a row group at a time."""
    schema = STORED["errors"]
    with (
        pq.ParquetFile(path) as source,
        pq.ParquetWriter(path.with_suffix(".errors"), schema, compression="zstd") as sink,
    ):
        for batch in source.iter_batches():
            rows = {name: batch.column(name) for name in batch.schema.names}
            rows |= {"stage": pa.repeat("log", len(batch)), "attempts": pa.repeat(pa.scalar(1, pa.int32()), len(batch))}
            arrays = [rows.get(f.name, pa.nulls(len(batch), f.type)) for f in schema]
            sink.write_table(pa.Table.from_arrays(arrays, schema=schema))
    path.with_suffix(".errors").replace(path)

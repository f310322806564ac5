"""Writing beside bare pyarrow: the same tables of a shard of 1,000 queries, in the same order, as Parquet with zstd.

The bare loop has the tables ready in memory and calls `write_table` for each, into files. Ours is once the same, to storage
that makes names and bytes durable; once the last stage, which makes the tables from a block as the stage before hands it on,
counts, and commits the shard by a manifest; once the lists of the retrieving stage (`runs/`, the largest table of a run),
which are made from arrays.
"""

import itertools
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.run.shards import write_table
from cluster.storage import open_storage
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.lists import Found, stored_rows
from jobs.chain.stages import retrieve
from jobs.chain.stages.write import Write
from jobs.chain.worker import WorkerJob
from limits.recorded_blocks import DEPTH, bm25_index, rewritten_block, work_of
from limits.rounds import Row, interleaved

QUERIES, LIMIT = 1000, "bare pyarrow, tables at hand"


def measure(quick: bool) -> list[Row]:
    """Returns the rows of the files, of the last stage and of the lists."""
    work = work_of({"bm25": bm25_index()}, fuse={"keep_candidates": True})
    block = shard(rewritten_block())
    with tempfile.TemporaryDirectory() as name:
        folder, rounds = Path(name), 1 if quick else 7
        with mock.patch.object(retrieve, "stored_rows", wraps=stored_rows) as writing:  # the lists that it writes
            retrieved = retrieve.Retrieve(WorkerJob(replace(work, keep_lists=True), str(folder)))(block)
        last = interleaved(of_last_stage(folder, work, retrieved), rounds)
        lists = interleaved(of_lists(folder, *writing.call_args.args[:2]), rounds)
    whole, files = (last[name] for name in ("ours", "files"))
    return [
        Row("writing, the files alone", LIMIT, QUERIES, "queries", files, last["bare"]),
        Row("writing, the last stage", LIMIT, QUERIES, "queries", whole, last["bare"]),
        Row("writing, lists", LIMIT, QUERIES, "queries", lists["ours"], lists["bare"]),
    ]


def shard(block: pa.Table) -> pa.Table:
    """A block of `QUERIES` rows: those of the block over and over, under ids of their own."""
    copies = []
    for number in range(-(-QUERIES // block.num_rows)):
        ids = [f"{number:x}{query_id[1:]}" for query_id in block.column("query_id").to_pylist()]
        place = block.schema.get_field_index("query_id")
        copies.append(block.set_column(place, block.schema.field(place), pa.array(ids)))
    return pa.concat_tables(copies).slice(0, QUERIES).combine_chunks()


def of_last_stage(folder: Path, work: SharedWork, block: pa.Table) -> dict[str, Any]:
    """Ours and the bare loop; each call of ours commits another shard."""
    run, numbers = folder / "run", itertools.count()
    worker, place = Write(WorkerJob(work, str(run))), block.schema.get_field_index("shard")
    kind = block.schema.field(place)

    def ours() -> None:
        worker(block.set_column(place, kind, pa.array([next(numbers)] * QUERIES, kind.type)))

    ours()
    tables = {path.parent.name: pq.ParquetFile(path).read() for path in run.glob("*/shard-*.parquet")}
    storage = open_storage(str(folder / "files"))
    return {
        "ours": ours,
        "files": lambda: [write_table(storage, name, 0, table) for name, table in tables.items()],
        "bare": lambda: written(folder, tables),
    }


def of_lists(folder: Path, ids: pa.Array, found: Mapping[str, Found]) -> dict[str, Any]:
    """Ours and the bare loop."""
    storage, rows = open_storage(str(folder / "lists")), stored_rows(ids, found, DEPTH)
    return {
        "ours": lambda: write_table(storage, "runs", 0, stored_rows(ids, found, DEPTH)),
        "bare": lambda: written(folder, {"runs": rows}),
    }


def written(folder: Path, tables: Mapping[str, pa.Table]) -> None:
    """The bare loop."""
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet", compression="zstd")

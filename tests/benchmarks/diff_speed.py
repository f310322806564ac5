"""How long `diff` takes, and its peak memory, on two made runs of many queries.

    .venv/bin/python tests/benchmarks/diff_speed.py --queries 1000000

Two rewrites and 20 results per query; a tenth of the texts and half of the documents differ; shards of 1,000 in both. The
figures of `diff` must be those that were made: it exits with 1 where they are not.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cluster.run.shards import File, Manifest, Plan, Shard
from cluster.storage.files import FileStorage
from jobs.measure.diff.diff import diff
from jobs.runs.folder import RunFolder
from jobs.tables import STORED

SHARD, SHARDS_PER_FILE, RESULTS = 1000, 64, 20
STRATEGIES = ["general", "keyword"]
CONFIG = {
    "name": "made",
    "output": "none",
    "log": {"path": "none", "query_column": "query"},
    "rewrite": {"engine": {"kind": "recorded", "path": "none"}, "strategies": STRATEGIES},
    "retrieve": {"retrievers": {"bm25": {"kind": "local", "index": "none"}}},
    "rerank": {"kind": "none"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=1_000_000)
    queries = parser.parse_args().queries
    ids = sorted(sha256(str(number).encode()).hexdigest()[:32] for number in range(queries))
    generator = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        other = generator.random((2, queries, len(STRATEGIES))) < np.array([0, 0.1])[:, None, None]
        new = generator.random((2, queries, RESULTS)) < np.array([0, 0.5])[:, None, None]
        a, b = (make(Path(folder, name), ids, other[side], new[side]) for side, name in enumerate("ab"))
        print(f"made in {time.perf_counter() - began:.0f} s, {memory()}")
        began, busy = time.perf_counter(), time.process_time()
        found = diff(a, b, None, None, 10).moves
        print(f"diff: {time.perf_counter() - began:.1f} s ({time.process_time() - busy:.1f} s of CPU), {memory()}")
    first = new[1, :, : found.depth]
    expected = queries, int(other[1].any(axis=1).sum()), int(first.any(axis=1).sum()), int(first[:, 0].sum())
    counted = found.both.queries, found.rewrites.queries, found.others.queries, found.first.queries
    print(f"queries, with other rewrites, other documents, another first one: {counted}, made {expected}")
    if counted != expected or abs((found.overlap or 0) - (1 - first.mean())) > 1e-9:
        raise SystemExit(1)


def make(folder: Path, ids: list[str], other: np.ndarray, new: np.ndarray) -> RunFolder:
    """A run of these queries.

    Args:
        folder: where it is written.
        ids: of the queries.
        other: (queries, strategies), which texts differ from those of the other run.
        new: (queries, RESULTS), which documents differ.
    """
    storage = FileStorage(str(folder))
    plan, manifests = Plan([], {}, SHARD, {"queries": []}, []), []
    for begin in range(0, len(ids), SHARD * SHARDS_PER_FILE):
        part = ids[begin : begin + SHARD * SHARDS_PER_FILE]
        columns = {"query_id": part, "query": part, "normalised": part, "log_count": np.ones(len(part))}
        plan.tables["queries"].append(write(storage, "queries", columns, begin))
    for number, begin in enumerate(range(0, len(ids), SHARD)):
        part = ids[begin : begin + SHARD]
        file, group = divmod(number, SHARDS_PER_FILE)
        plan.shards.append(Shard(number, plan.tables["queries"][file].key, group, len(part)))
        texts = [f"{one}{changed}" for one, row in zip(part, other[begin:], strict=False) for changed in row]
        rewrites = {
            "query_id": np.repeat(part, len(STRATEGIES)),
            "strategy": STRATEGIES * len(part),
            "position": np.ones(len(texts)),
            "text": texts,
        }
        docs = [f"d{rank}{changed}" for row in new[begin : begin + len(part)] for rank, changed in enumerate(row)]
        results = {
            "query_id": np.repeat(part, RESULTS),
            "rank": np.tile(np.arange(1, RESULTS + 1), len(part)),
            "doc_id": docs,
        }
        files = {"rewrites": rewrites, "results": results}
        written = {table: [write(storage, table, columns, number)] for table, columns in files.items()}
        manifests.append(Manifest(number, 1, written, {"queries": len(part)}, {}))
    return RunFolder.of(storage, {"config": CONFIG, "status": "finished"}, plan, manifests, finished=True)


def write(storage: FileStorage, table: str, columns: dict[str, object], number: int) -> File:
    key = f"{table}/{number:09d}.parquet"
    schema, sink = STORED[table], pa.BufferOutputStream()
    rows = len(columns["query_id"])  # type: ignore[arg-type]
    values = [columns.get(field.name, pa.nulls(rows, field.type)) for field in schema]
    pq.write_table(
        pa.table(values, schema=schema), sink, compression="zstd", row_group_size=SHARD if table == "queries" else None
    )
    storage.put(key, sink.getvalue().to_pybytes())
    return File(key, rows, sink.getvalue().size)


def memory() -> str:
    return f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB"


if __name__ == "__main__":
    main()

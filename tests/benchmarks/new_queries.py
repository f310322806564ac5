"""Time and memory of counting which queries no earlier night had.

    python tests/benchmarks/new_queries.py [--nights 12] [--queries 2500000]

Each night has so many ids in one sorted file of queries/, in row groups of a thousand, and shares 60 % of them with the night
before. Peak is that of a process which counts and has made none of them. Exits with 1 where a count is wrong, or where the peak
is more than DuckDB's limit above that of the process before it counts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from results import peak_mib

from cluster.run.shards import File, Plan
from cluster.storage import open_storage
from jobs.measure.nights.new_queries import new_queries

SHARED = 0.6
LIMIT = 512  # MB: jobs.runs.reading.MEMORY


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=12)
    parser.add_argument("--queries", type=int, default=2_500_000)
    parser.add_argument("--made", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.made:
        sys.exit(count(Path(options.made), options.nights, options.queries))
    with tempfile.TemporaryDirectory() as folder:
        for night in range(options.nights):
            make(Path(folder, str(night)), round(night * options.queries * (1 - SHARED)), options.queries)
        more = ["--nights", str(options.nights), "--queries", str(options.queries)]
        sys.exit(subprocess.run([sys.executable, __file__, "--made", folder, *more], check=False).returncode)


def make(folder: Path, first: int, queries: int) -> None:
    """Writes the ids of the numbers from the first on."""
    numbers = np.arange(first, first + queries, dtype=np.uint64)
    halves = (numbers * np.uint64(0x9E3779B97F4A7C15), (numbers + np.uint64(77)) * np.uint64(0xC2B2AE3D27D4EB4F))
    ids = np.sort(np.char.add(*(np.array([f"{one:016x}" for one in half.tolist()]) for half in halves)))
    (folder / "queries").mkdir(parents=True)
    table = pa.table({"query_id": ids, "query": ids, "normalised": ids, "log_count": np.ones(queries, np.int64)})
    pq.write_table(table, folder / "queries" / "all.parquet", row_group_size=1000, compression="zstd")


def count(made: Path, nights: int, queries: int) -> int:
    """Counts, prints what it took, and returns the exit code."""
    plan = Plan([], {"queries": queries}, 1000, {"queries": [File("queries/all.parquet", queries, 0)]}, [])
    given = [(open_storage(str(made / str(night))), plan) for night in range(nights)]
    before, began, spent = peak_mib(os.getpid()), time.monotonic(), time.process_time()
    found = [one.queries for one in new_queries(given)]
    wall, spent, more = time.monotonic() - began, time.process_time() - spent, peak_mib(os.getpid()) - before
    starts = [round(night * queries * (1 - SHARED)) for night in range(nights)]
    right = found == [queries, *(after - start for start, after in pairwise(starts))]
    print(f"{nights} nights of {queries:,} queries: {wall:.1f} s, {spent:.1f} CPU s, {more:.0f} MiB above {before:.0f} MiB")
    print("counts are right" if right else f"WRONG: {found}")
    return int(not right or more > LIMIT)


if __name__ == "__main__":
    main()

"""Time and peak memory of dedup, and of looking up judged ids, for a log of mostly distinct rows that have ids.

    python tests/benchmarks/dedup_ids.py [--rows 3000000 10000000 20000000] [--threads 2 4]

88 % of the rows are queries of their own, the others one of 1,000. Each size runs in a new process.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from cluster.run import spread  # noqa: E402
from cluster.run.shards import Plan  # noqa: E402
from cluster.storage import open_storage  # noqa: E402
from jobs.evaluate import judged_rows  # noqa: E402
from jobs.evaluate.judgements import Judgements  # noqa: E402
from jobs.evaluate.per_query import database  # noqa: E402
from jobs.log import dedup as module  # noqa: E402
from jobs.log.check import LogColumns  # noqa: E402
from jobs.log.files import find_log_files  # noqa: E402
from jobs.run.folder import RunFolder  # noqa: E402

FILE_ROWS, JUDGED = 1_000_000, 100_000


def make(folder: Path, rows: int) -> None:
    """Writes the log."""
    generator = np.random.default_rng(0)
    for start in range(0, rows, FILE_ROWS):
        places = range(start, min(rows, start + FILE_ROWS))
        own = (generator.random(len(places)) < 0.88).tolist()
        texts = [f"how to find product number {place if new else place % 1000}" for place, new in zip(places, own, strict=True)]
        table = pa.table({"id": [f"id-{place:012d}" for place in places], "query": texts})
        pq.write_table(table, folder / f"{start:010d}.parquet")


def peak() -> int:
    """Returns the process's peak memory in MB since `reset`."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) // 1024


def reset() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def once(rows: int, threads: int) -> None:
    """Does it in this process and prints what it took."""
    spread.THREADS = threads
    check = module._refuse_ambiguous

    def timed(urls: list[str], column: str) -> None:
        reset()
        began = perf_counter()
        check(urls, column)
        print(f"  check of the ids {perf_counter() - began:6.1f} s, peak {peak()} MB", flush=True)

    module._refuse_ambiguous = timed
    with tempfile.TemporaryDirectory(prefix="dmqr-dedup-ids-") as name:
        folder = Path(name, "log")
        folder.mkdir()
        make(folder, rows)
        storage = open_storage(str(Path(name, "out")))
        reset()
        began = perf_counter()
        summary = module.dedup(find_log_files(str(folder)), LogColumns("query", "id"), storage, 1000)
        print(f"  dedup {perf_counter() - began:6.1f} s, {summary.queries:,} queries", flush=True)
        run = RunFolder(storage, {}, Plan([], {}, 1000, summary.tables, []), [], finished=True)
        judgements = Judgements("made", {f"id-{place * (rows // JUDGED):012d}": {"d": 1} for place in range(JUDGED)})
        reset()
        began = perf_counter()
        with database(run) as connection:
            found = judged_rows.query_of(connection, run, judgements)
        print(f"  {len(found):,} judged ids found in {perf_counter() - began:6.1f} s, peak {peak()} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[3_000_000, 10_000_000, 20_000_000])
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        once(options.rows[0], options.threads[0])
        return
    for rows in options.rows:
        for threads in options.threads:
            print(f"{rows:,} rows, {threads} threads", flush=True)
            subprocess.run([sys.executable, __file__, "--once", "--rows", str(rows), "--threads", str(threads)], check=True)


if __name__ == "__main__":
    main()

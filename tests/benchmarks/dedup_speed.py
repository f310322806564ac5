"""Speed and memory of dedup, against one DuckDB GROUP BY over lower-cased, trimmed, white-space-collapsed text.

    DMQR_SHARED=<folder with logs/> python tests/benchmarks/dedup_speed.py [--rows 5000000] [--rounds 3] [--threads 2]

The terabyte log is repeated to `--rows` rows. Both sides run on the same file and the same CPUs, in turns; dedup does
all of its work (query_map, queries and rejected written). Then the same with the rows shuffled and the file without
dictionaries; then peak memory, each in a process of its own, at ten times the rows.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import duckdb  # noqa: E402
import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.compute as pc  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from jobs.dedup import LogSummary, dedup  # noqa: E402
from jobs.log import LogColumns, check_log, find_log_files  # noqa: E402

GROUP_BY = r"""
    SELECT trim(regexp_replace(lower(query), '\s+', ' ', 'g')) AS q, count(*) AS n FROM read_parquet($log) GROUP BY q
"""


def repeated(source: Path, target: Path, rows: int, shuffled: bool) -> None:
    """The log again and again, cut at `rows`, in row groups of a million rows (pyarrow's default)."""
    log = pq.read_table(source, columns=["query"])
    rng = np.random.default_rng(0)
    with pq.ParquetWriter(target, log.schema, use_dictionary=not shuffled) as writer:
        while rows:
            part = pa.concat_tables([log] * (-(-min(rows, 1_000_000) // len(log)))).slice(0, min(rows, 1_000_000))
            writer.write_table(part.take(rng.permutation(len(part))) if shuffled else part)
            rows -= len(part)


def distinct(source: Path, target: Path, rows: int) -> None:
    """As many different queries as rows: every repetition has its number in each text."""
    log = pq.read_table(source, columns=["query"]).column("query").combine_chunks()
    schema = pa.schema([("query", pa.string()), ("id", pa.int64())])
    with pq.ParquetWriter(target, schema) as writer:
        for start in range(0, rows, len(log)):
            texts = log.slice(0, min(len(log), rows - start))
            numbers = pa.array(range(start, start + len(texts)))
            numbered = pc.binary_join_element_wise(texts, numbers.cast(pa.string()), " ")
            writer.write_table(pa.table([numbered, numbers], schema=schema))


def one_dedup(log: Path, out: Path, columns: LogColumns, threads: int) -> LogSummary:
    files = find_log_files(str(log))
    check_log(files, columns)
    return dedup(files, columns, out, 1000, threads=threads)


def peak(log: Path, out: Path, columns: LogColumns) -> int:
    """Peak memory in MB of a process that does nothing but dedup this log (ru_maxrss would be at least its parent's)."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); sys.path.insert(0, sys.argv[1] + '/tests/benchmarks')\n"
        "from dedup_speed import *\n"
        "one_dedup(Path(sys.argv[2]), Path(sys.argv[3]), LogColumns('query', sys.argv[4] or None), 2)\n"
        "print(next(int(line.split()[1]) // 1024 for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    arguments = [sys.executable, "-c", code, str(ROOT), str(log), str(out), columns.id_column or ""]
    return int(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)


def speed(log: Path, folder: Path, rounds: int, threads: int) -> None:
    theirs, ours, splits = [], [], []
    for number in range(rounds):
        with duckdb.connect(config={"threads": threads}) as connection:
            started = perf_counter()
            groups = len(connection.sql(GROUP_BY, params={"log": str(log)}).to_arrow_table())
            theirs.append(perf_counter() - started)
        started = perf_counter()
        summary = one_dedup(log, folder / "out", LogColumns("query"), threads)
        ours.append(perf_counter() - started)
        splits.append(summary.seconds)
        print(f"round {number + 1}: GROUP BY {theirs[-1]:.2f} s ({groups:,} groups), dedup {ours[-1]:.2f} s")
    rows = summary.rows
    print(f"{rows:,} rows, {summary.queries:,} queries, {threads} threads, medians of {rounds} rounds:")
    print(f"  DuckDB GROUP BY  {median(theirs):6.2f} s  {rows / median(theirs):12,.0f} rows/s")
    print(f"  dedup            {median(ours):6.2f} s  {rows / median(ours):12,.0f} rows/s")
    print("  of it: " + ", ".join(f"{name} {median(s[name] for s in splits):.2f} s" for name in splits[0]))
    print(f"  ratio {median(theirs) / median(ours):.2f} (goal: 0.5 or more)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory-rows", type=int, default=200_000, help="and ten times as many; 0: not measured")
    options = parser.parse_args()
    source = Path(os.environ["DMQR_SHARED"]) / "logs" / "terabyte05_50k" / "log.parquet"
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    pa.set_cpu_count(options.threads)
    with tempfile.TemporaryDirectory(prefix="dmqr-dedup-speed-") as name:
        folder = Path(name)
        for shuffled in (False, True):
            repeated(source, folder / "log.parquet", options.rows, shuffled)
            print("shuffled, without dictionaries" if shuffled else "repeated as it is")
            speed(folder / "log.parquet", folder, options.rounds, options.threads)
        for id_column in (None, "id") if options.memory_rows else ():
            peaks = []
            for rows in (options.memory_rows, 10 * options.memory_rows):
                distinct(source, folder / f"{rows}.parquet", rows)
                peaks.append(peak(folder / f"{rows}.parquet", folder / "out", LogColumns("query", id_column)))
            print(
                f"peak memory, all queries distinct, id_column {id_column}: {options.memory_rows:,} rows {peaks[0]} MB,"
                f" ten times the rows {peaks[1]} MB ({peaks[1] / peaks[0] - 1:+.0%})"
            )


if __name__ == "__main__":
    main()

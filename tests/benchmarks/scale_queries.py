"""Runs of more and more queries with recorded answers: whether time is linear and memory is flat.

    python tests/benchmarks/scale_queries.py [--queries 1000,10000,100000] [--shard-sizes 1000] [--sides none,local]
                                              [--log-rows 0]

Queries of words that Zipf's law would give, four recorded rewrites each, BM25 over 5,000 documents, fused, not reranked,
without a store. Each run is a process of its own. The table has, of each: seconds (the median of `--rounds`, 1),
milliseconds of each query that it has more than the size before, CPU seconds (without Ray), the peak (VmHWM) of the driver, of
which the places of the recording are some 350 bytes a query, and the largest peak of another process of the run (with Ray: a
worker or a daemon). With `--log-rows` each log has so many rows: each query once, and again as Zipf's law says. With the
defaults it writes its section of RESULTS.md.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from results import measured_on, peak_mib, put_section
from small_jobs import KINDS, REPOSITORY, prepare, write_config
from small_jobs import SIDES as SIDE_NAMES

DEFAULTS = {"queries": "1000,10000,100000", "shard_sizes": "1000", "sides": "none,local", "rounds": 1, "log_rows": 0}


class Figures(NamedTuple):
    """Figures of one run."""

    seconds: float
    cpu: float
    driver: float  # MiB
    other: float  # MiB


def recorded(folder: Path, queries: int) -> None:
    """Writes the answers to the first queries of the log: words of the query and of Zipf's law."""
    chance, answers = random.Random(2), folder / f"answers-{queries}.jsonl"
    log = pq.read_table(folder / f"log-{queries}.parquet")["query"].to_pylist()
    words = sorted({word for query in log[:5000] for word in query.split()})
    with open(answers, "w") as file:
        for query in log:
            more = " ".join(chance.choices(words, k=12))
            texts = (f"about {query}", ", ".join(query.split()), f"{query} {more}", " ".join(query.split()[:2]))
            completion = json.dumps(dict(zip(KINDS, texts, strict=True)))
            file.write(json.dumps({"query": query, "completions": {"dmqr": completion}}) + "\n")


def repeated(folder: Path, queries: int, rows: int) -> None:
    """Writes the log with so many rows, of which each query has at least one."""
    path = folder / f"log-{queries}.parquet"
    once, chance = pq.read_table(path).combine_chunks(), numpy.random.default_rng(3)
    shares, left = 1 / numpy.arange(1, queries + 1), max(0, rows - queries)
    shares /= shares.sum()
    with pq.ParquetWriter(path, once.schema) as writer:  # in parts: 100 million texts at once overflow an Arrow column
        writer.write_table(once)
        while left:
            part = min(left, 1_000_000)
            writer.write_table(once.take(pa.array(chance.choice(queries, part, p=shares))))
            left -= part


def configured(folder: Path, side: str, queries: int, shard_size: int, number: int) -> Path:
    """Writes the config of a run; returns its path."""
    engine = {"kind": "recorded", "path": f"answers-{queries}.jsonl"}
    name = f"{side}-{queries}-{shard_size}-{number}"
    return write_config(folder, name, queries, engine, {"address": side, "shard_size": shard_size})


def timed(command: list[str], folder: Path) -> Figures:
    """Runs a process to its end, and looks at it and at its descendants once a second."""
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "RAY_AUTH_MODE": "disabled"}
    began, peaks = time.monotonic(), dict[int, float]()
    with open(folder / "out.log", "ab") as out:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out)
    watched = psutil.Process(process.pid)
    while True:
        for one in (*alive(watched), process.pid):
            peaks[one] = max(peaks.get(one, 0.0), peak_mib(one))
        ended, status, used = os.wait4(process.pid, os.WNOHANG)
        if ended:
            process.returncode = os.waitstatus_to_exitcode(status)
            break
        time.sleep(1)
    seconds = time.monotonic() - began
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}:\n{(folder / 'out.log').read_text()[-3000:]}")
    driver = peaks.pop(process.pid)
    return Figures(seconds, used.ru_utime + used.ru_stime, driver, max(peaks.values(), default=0.0))


def alive(process: psutil.Process) -> list[int]:
    """Returns the ids of the descendants."""
    try:
        return [one.pid for one in process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def main() -> None:
    """Prints each figure as it comes, then the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in DEFAULTS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", default=default, type=type(default))
    options = parser.parse_args()
    where, sides = measured_on(("ray", "bm25s", "pyarrow", "duckdb")), options.sides.split(",")
    sizes = sorted(int(one) for one in options.queries.split(","))
    shard_sizes = [int(one) for one in options.shard_sizes.split(",")]
    found: dict[tuple[str, int, int], list[Figures]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, sizes)
        for size in sizes:
            recorded(folder, size)
            if options.log_rows:
                repeated(folder, size, options.log_rows)
        config = configured(folder, "none", sizes[0], shard_sizes[0], 0)
        timed([sys.executable, "-m", "jobs", "index", config.name, "--corpus", "corpus.parquet"], folder)
        for number in range(options.rounds):
            for size in sizes:
                for shard_size in shard_sizes:
                    for side in sides:
                        config = configured(folder, side, size, shard_size, number)
                        figures = timed([sys.executable, "-m", "jobs", "run", config.name], folder)
                        found.setdefault((side, shard_size, size), []).append(figures)
                        print(f"{side} {size:,} in shards of {shard_size:,}: {figures}", flush=True)
    body = f"`python tests/benchmarks/scale_queries.py {' '.join(sys.argv[1:])}`,\n{where}\n\n{table(found, sizes)}"
    print(body)
    if all(getattr(options, name) == default for name, default in DEFAULTS.items()):
        put_section("More and more queries", body)


def table(found: dict[tuple[str, int, int], list[Figures]], sizes: list[int]) -> str:
    """Returns the medians, as Markdown."""
    medians = {of: Figures(*map(statistics.median, zip(*figures, strict=True))) for of, figures in found.items()}
    lines = [
        "| what | shards of | queries | seconds | ms of each more | CPU seconds | driver, MiB | largest other, MiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for side, shard_size, size in sorted(medians, key=lambda one: (-list(SIDE_NAMES).index(one[0]), one[1:])):
        one, smaller = medians[side, shard_size, size], [other for other in sizes if other < size]
        before = medians[side, shard_size, smaller[-1]] if smaller else None
        more = f"{(one.seconds - before.seconds) * 1000 / (size - smaller[-1]):.2f}" if before else ""
        own = ("", f"{one.other:.0f}") if side == "local" else (f"{one.cpu:.1f}", "")
        cells = (
            SIDE_NAMES[side],
            f"{shard_size:,}",
            f"{size:,}",
            f"{one.seconds:.1f}",
            more,
            own[0],
            f"{one.driver:.0f}",
            own[1],
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

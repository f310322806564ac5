"""A model of a large night: which stage is the slowest, how long it takes, how many requests S3 gets, what it costs.

    python tests/benchmarks/night_model.py [--queries 100_000_000] [--gpus 64] [--cores 512] [--check RUN RUN]

A night is as fast as its slowest stage: seconds = start + queries * max(seconds of a query in a stage / workers of the stage),
since stages of different shards work side by side. GPUs are divided between rewriting and reranking so that both are as fast.
Rates of models on GPUs are published ones (an H100; 8B model, four rewrites a query in one call; bge-reranker-v2-m3); those of
stages on CPUs (over a small local index), the driver's seconds and the requests of a shard are of runs of this project, and are
said in the section. `--check SMALL LARGE` takes the seconds of a query from a finished run and predicts another one of the same
config, to see what the model is worth. Without other sizes it writes its section of RESULTS.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from results import put_section, table

QUERIES, GPUS = 100_000_000, 64
REWRITING, PAIRS = 85.0, 1_569.0  # queries and pairs a second of one H100
SEARCHES = 5  # of a query: the original and four rewrites
SEARCH_SECONDS = 0.00047  # of a text in the retrieving worker, with local BM25 on a core (20,000 documents)
OTHER_SECONDS = 0.00035  # of a query in reading, fusing, ordering and writing, on a core
GPU_HOUR, CORE_HOUR = 2.69, 0.05  # USD
PUT_PRICE, GET_PRICE = 0.005 / 1_000, 0.0004 / 1_000  # USD, of S3; lists cost what puts do


class Night(NamedTuple):
    """A night: its pairs of a query, the share of queries that the store lacks, and a word for it."""

    words: str
    pairs: float = 50.0
    new: float = 1.0
    faster: float = 1.0  # of the reranker, beside bge-reranker-v2-m3


NIGHTS = (
    Night("50 pairs a query"),
    Night("20 pairs a query", pairs=20),
    Night("50 pairs, a reranker of 150M (2.06 times as fast)", faster=3_237 / 1_569),
    Night("50 pairs, 24 % of the queries are new", new=0.24),
)


class Predicted(NamedTuple):
    """What the model says of a night."""

    slowest: str
    hours: float
    gpus: tuple[int, int]  # for rewriting, for reranking
    usd: float
    puts: float
    gets: float


def seconds(queries: float, of_query: dict[str, float], start: float) -> tuple[str, float]:
    """Returns the slowest stage, and the seconds of a run; `of_query`: stage -> seconds of a query / workers."""
    slowest = max(of_query, key=lambda stage: of_query[stage])
    return slowest, start + queries * of_query[slowest]


def predicted(night: Night, options: argparse.Namespace) -> Predicted:
    """Returns what a night takes and costs."""
    rewriting, reranking = 1 / REWRITING, night.pairs / (PAIRS * night.faster)  # seconds of a GPU
    mine = min(options.gpus - 1, max(1, round(options.gpus * rewriting / (rewriting + reranking))))
    shards = options.queries / options.shard_size
    of_query = {
        "rewrite": night.new * rewriting / mine,
        "rerank": night.new * reranking / (options.gpus - mine),
        "retrieve and others, on cores": (night.new * SEARCHES * SEARCH_SECONDS + OTHER_SECONDS) / options.cores,
        "driver": options.driver_seconds / options.shard_size,
    }
    slowest, whole = seconds(options.queries, of_query, options.start)
    puts, gets = shards * options.puts, shards * options.gets
    usd = whole / 3600 * (options.gpus * GPU_HOUR + options.cores * CORE_HOUR) + puts * PUT_PRICE + gets * GET_PRICE
    return Predicted(slowest, whole / 3600, (mine, options.gpus - mine), usd, puts, gets)


def check(small: str, large: str) -> str:
    """Returns the seconds of a run, beside those that the stages of another one predict."""
    from jobs.runs.folder import open_run

    one, other = open_run(small), open_run(large)
    (start,), (whole,) = one.record["starts"], other.record["starts"]
    workers = {name: pool["workers"] for name, pool in start["pools"].items()}
    of_query = {stage: busy / one.counts["queries"] / workers.get(stage, 1) for stage, busy in start["busy"].items()}
    times = one.record["node_time"][0]["stages"].items()
    up = max(float(of.get("start_up", 0)) / workers.get(stage, 1) for stage, of in times)
    slowest, told = seconds(other.counts["queries"], of_query, up)
    return (
        f"Checked: by the stages of a run of {one.counts['queries']:,} queries one of {other.counts['queries']:,} takes "
        f"{told:.1f} s, with {slowest} the slowest; it took {whole['wall_seconds']:.1f} s ({told / whole['wall_seconds']:.2f})."
    )


def main() -> None:
    """Prints the table, and writes its section of RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=QUERIES)
    parser.add_argument("--gpus", type=int, default=GPUS)
    parser.add_argument("--cores", type=int, default=512)
    parser.add_argument("--shard-size", type=int, default=1_000)
    parser.add_argument("--start", type=float, default=900.0, help="seconds until all workers work")
    parser.add_argument("--driver-seconds", type=float, default=0.029, help="of the driver's CPU for a shard, on Ray")
    parser.add_argument("--puts", type=float, default=8.0, help="and lists, for a shard")
    parser.add_argument("--gets", type=float, default=10.0, help="for a shard")
    parser.add_argument("--check", nargs=2, metavar="RUN")
    options = parser.parse_args()
    if options.gpus < 2:
        parser.error("--gpus: one to rewrite and one to rerank at least")
    rows = []
    for night in NIGHTS:
        one = predicted(night, options)
        rows.append(
            [night.words, one.slowest, f"{one.hours:.1f}", f"{one.gpus[0]} + {one.gpus[1]}", f"{one.usd:,.0f}",
             f"{one.usd / options.queries * 1e6:.1f}", f"{one.puts / 1e6:.2f}", f"{one.gets / 1e6:.2f}"]
        )  # fmt: skip
    columns = ("night", "slowest", "hours", "GPUs to rewrite + rerank", "USD", "USD of a million", "puts, M", "gets, M")
    body = (
        f"`python tests/benchmarks/night_model.py`: {options.queries:,} queries, {options.gpus} GPUs, {options.cores} cores, "
        f"shards of {options.shard_size:,}, {options.driver_seconds:g} s of the driver, {options.puts:g} puts and lists and "
        f"{options.gets:g} gets a shard.\n"
        f"Of one GPU {REWRITING:g} queries and {PAIRS:,g} pairs a second; on a core {SEARCH_SECONDS * 1000:g} ms for a search "
        f"and {OTHER_SECONDS * 1000:g} ms for the rest of a query; USD {GPU_HOUR:g} an hour of a GPU, {CORE_HOUR:g} of a core\n"
        f"A computation, no measurement.\n\n{table(columns, rows)}"
    )
    if options.check:
        body += f"\n\n{check(*options.check)}"
    print(body)
    if (options.queries, options.gpus) == (QUERIES, GPUS):
        put_section("A model of 100 million queries", body)


if __name__ == "__main__":
    main()

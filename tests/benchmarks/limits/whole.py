"""A whole `dmqr run` without Ray beside its slowest stage alone, rewriting, which waits 200 ms for each answer.

Both are processes, timed from their start to their end: the whole plans, reads, searches, fuses, writes, commits and reports
beside its rewriting. CPU seconds are not compared, since the whole does more.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from small_jobs import configure, prepare, serving, timed

from limits.rounds import Row, Spent, alternated

QUERIES, PLACES, SHARD_SIZE = 5000, 64, 250
ALONE = Path(__file__).with_name("rewrite_alone.py")


def measure(quick: bool) -> list[Row]:
    """Returns one row."""
    queries, numbers = 500 if quick else QUERIES, iter(range(1000))
    options = argparse.Namespace(in_flight=PLACES, shard_size=SHARD_SIZE)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, [queries])
        with serving() as address:

            def whole() -> Spent:
                config = configure(folder, address, options, "none", queries, next(numbers))
                return spent([sys.executable, "-m", "jobs", "run", config.name])

            def alone() -> Spent:
                places = [f"log-{queries}.parquet", address, str(PLACES), str(SHARD_SIZE)]
                return spent([sys.executable, str(ALONE), *places])

            def spent(command: list[str]) -> Spent:
                return Spent(timed(command, folder, "none").seconds, None)

            config = configure(folder, address, options, "none", queries, next(numbers))
            spent([sys.executable, "-m", "jobs", "index", config.name, "--corpus", "corpus.parquet"])
            sides: dict[str, Callable[[], Spent]] = {"whole": whole, "alone": alone}
            took = alternated(sides, 1 if quick else 3)
    what = f"a whole run, {queries:,} queries, 200 ms an answer"
    return [Row(what, "its rewriting alone", queries, "queries", took["whole"], took["alone"])]

"""Speed and memory of reading a log of User Behavior Insights: dedup from JSON lines and from Parquet, and `clicks`.

    python tests/benchmarks/ubi_speed.py [--searches 1000000] [--files 4] [--rounds 3]

Invented: query n of 100,000 is asked in proportion to 1 / (n + 10) ** 0.85, each search shows ten of the thirty documents of
its query and has a third of a click. The same rows lie as JSON lines (some 300 bytes each) and as Parquet; what reads them runs
in turns, each time in a new process, which tells the seconds, its CPU seconds and its peak memory. Exits with 1 where peak
memory is over 2 GB.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import duckdb  # noqa: E402

from cluster.storage import open_storage  # noqa: E402
from jobs.clicks.clicks import click_judgements  # noqa: E402
from jobs.clicks.export import EventChoice  # noqa: E402
from jobs.clicks.grades import Grading  # noqa: E402
from jobs.config.config import Config  # noqa: E402
from jobs.log.check import LogColumns  # noqa: E402
from jobs.log.dedup import dedup  # noqa: E402
from jobs.log.files import log_files  # noqa: E402

CONTENDERS = ("dedup parquet", "dedup json", "clicks parquet", "clicks json")
MOST_BYTES = 2 << 30
SEARCHES = """
CREATE TABLE searches AS
SELECT 'search-' || n AS query_id, 'client-' || (n % 50000) AS client_id,
    'invented query number ' || query AS user_query,
    list_transform(range(10), lambda place: 'document-' || query || '-' || ((place * 7 + n * 11) % 30))
        AS query_response_hit_ids,
    strftime(TIMESTAMP '2026-11-23 00:00:00' + INTERVAL 1 SECOND * (n // 20), '%Y-%m-%dT%H:%M:%SZ') AS timestamp
FROM (SELECT n, least(99999, floor(10 * (pow(1 + random() * 3, 6.6) - 1)))::BIGINT AS query FROM range({searches}) AS t(n))
"""
EVENTS = """
CREATE TABLE events AS
SELECT 'click' AS action_name, query_id, client_id, timestamp, {'object': {'object_id': query_response_hit_ids[place]},
    'position': {'ordinal': place}} AS event_attributes
FROM (SELECT *, 1 + floor(10 * pow(random(), 2))::BIGINT AS place FROM searches WHERE random() < 0.33)
"""


def make(folder: Path, searches: int, files: int) -> None:
    """Writes the log in both forms."""
    connection = duckdb.connect()
    connection.execute("SELECT setseed(0.17)").fetchall()
    connection.execute(SEARCHES.format(searches=searches))
    connection.execute(EVENTS)
    for ending, form in (("parquet", "parquet"), ("json", "json")):
        for number in range(files):
            for table, name in (("searches", "ubi_queries"), ("events", "ubi_events")):
                path = folder / ending / f"{name}-{number}.{ending}"
                path.parent.mkdir(parents=True, exist_ok=True)
                rows = f"SELECT * FROM {table} WHERE hash(query_id) % {files} = {number}"
                connection.execute(f"COPY ({rows}) TO '{path}' (FORMAT {form})")


def work(contender: str, folder: Path) -> dict[str, float]:
    """Does a contender's work in this process; returns what it took."""
    verb, form = contender.split()
    config = Config.model_validate(
        {"name": "ubi", "log": {"path": str(folder / form), "format": "ubi"}, "rewrite": {"strategies": []},
         "retrieve": {"retrievers": {"bm25": {"kind": "local", "index": "none"}}}, "output": "none"}
    )  # fmt: skip
    start, cpu = perf_counter(), process_time()
    if verb == "dedup":
        with tempfile.TemporaryDirectory() as out:
            summary = dedup(log_files(config.log), LogColumns("user_query", "query_id"), open_storage(out), 1000)
            done = summary.queries
    else:
        found = click_judgements(config, EventChoice(), "pbm", Grading())
        done = found.graded.pairs.num_rows
    seconds, cpu = perf_counter() - start, process_time() - cpu
    return {"seconds": seconds, "cpu": cpu, "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10, "done": done}


def main() -> int:
    """Prints the medians of all contenders; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        print(json.dumps(work(options.work[0], Path(options.work[1]))))
        return 0
    taken: dict[str, list[dict[str, float]]] = {one: [] for one in CONTENDERS}
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), options.searches, options.files)
        for form in ("parquet", "json"):
            print(f"{form}: {sum(one.stat().st_size for one in Path(folder, form).iterdir()) / 1e6:,.0f} MB")
        for _ in range(options.rounds):
            for one in CONTENDERS:
                command = [sys.executable, __file__, "--work", one, folder]
                said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                taken[one].append(json.loads(said.splitlines()[-1]))
    most = 0.0
    for one, found in taken.items():
        middle = {name: median(run[name] for run in found) for name in found[0]}
        most = max(most, middle["bytes"])
        words = f"{middle['seconds']:6.1f} s {middle['cpu']:6.1f} CPU s {middle['bytes'] / 1e6:6,.0f} MB"
        print(f"{one:15} {words}   {middle['done']:,.0f} {'queries' if 'dedup' in one else 'pairs'}")
    return int(most > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())

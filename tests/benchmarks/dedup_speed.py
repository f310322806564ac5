"""Speed and memory of dedup beside DuckDB's own GROUP BY, and the same log on simulated nodes.

    DMQR_SHARED=<folder with logs/> python tests/benchmarks/dedup_speed.py [--rows 5000000] [--files 20] [--rounds 3]

The log is made of the terabyte log's words: query n of the ranks comes in proportion to 1 / (n + 10) ** 0.85, as in a web log
(5 million rows: 1.4 million distinct queries in 1.6 million forms), 6 % begin with a capital letter, 2 % end with a space,
0.5 % are empty. `GROUP BY`: DuckDB groups lower-cased, trimmed texts with their white space collapsed, and does no more.
`whole in SQL`: DuckDB hashes, too, and stores queries and query_map, sorted and compressed as dedup's are, without dedup's
other work (Unicode, texts too long or not UTF-8, `errors`, limits of memory). All read the same files with the same CPUs in
turns, each time in a new process, which tells the seconds, its CPU seconds and its peak memory. `--nodes` (0: not at all) are
those of a Ray of their own on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import duckdb  # noqa: E402
import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.compute as pc  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from results import peak_mib  # noqa: E402

from cluster.storage import open_storage  # noqa: E402
from jobs.log.check import LogColumns, check_log  # noqa: E402
from jobs.log.dedup import dedup  # noqa: E402
from jobs.log.files import find_log_files  # noqa: E402

GROUP_BY = r"SELECT trim(regexp_replace(lower(query), '\s+', ' ', 'g')) AS q, count(*) AS n FROM read_parquet($log) GROUP BY q"
WHOLE = r"""
CREATE TEMP TABLE log AS
SELECT filename || '#' || file_row_number AS log_id, query, trim(regexp_replace(lower(query), '\s+', ' ', 'g')) AS normalised
FROM read_parquet($log, filename = true, file_row_number = true);
CREATE TEMP TABLE ids AS
SELECT normalised, sha256(normalised)[:32] AS query_id FROM log WHERE normalised <> '' GROUP BY normalised;
COPY (
    SELECT query_id, first(query ORDER BY n DESC, query) AS query, any_value(normalised) AS normalised,
        sum(n)::BIGINT AS log_count
    FROM (SELECT normalised, query, count(*) AS n FROM log GROUP BY normalised, query) JOIN ids USING (normalised)
    GROUP BY query_id ORDER BY query_id
) TO $queries (FORMAT parquet, COMPRESSION zstd);
COPY (SELECT log_id, query_id FROM log LEFT JOIN ids USING (normalised)) TO $query_map (FORMAT parquet, COMPRESSION zstd);
"""
CONTENT = """
SELECT (SELECT [count(*), bit_xor(hash(query_id, query, normalised, log_count))] FROM read_parquet($queries)) AS queries,
(SELECT [count(*), bit_xor(hash(log_id, query_id))] FROM read_parquet($query_map)) AS query_map
"""
WHOLE_NAME = "whole in SQL"
RANKS, MOST_WORDS = 4_000_000, 6


def words() -> pa.StringArray:
    """The terabyte log's words, the frequent ones first."""
    log = pq.read_table(Path(os.environ["DMQR_SHARED"], "logs", "terabyte05_50k", "log.parquet"), columns=["query"])
    found = pa.Table.from_struct_array(
        pc.value_counts(pc.list_flatten(pc.utf8_split_whitespace(log["query"].combine_chunks())))
    )
    return found.sort_by([("counts", "descending")]).column("values").combine_chunks()


def texts(known: pa.StringArray, rows: int, seed: int) -> pa.StringArray:
    """Rows of a log; a rank has the same words in every file."""
    rng = np.random.default_rng(seed)
    chance = 1.0 / np.arange(10, RANKS + 10) ** 0.85
    ranks = np.searchsorted(np.cumsum(chance) / chance.sum(), rng.random(rows)).astype(np.uint64)
    lengths = 1 + ranks * np.uint64(2654435761) % np.uint64(1000003) % np.uint64(MOST_WORDS)
    columns = []
    for place in range(MOST_WORDS):
        mixed = ranks * np.uint64(0x9E3779B97F4A7C15) + np.uint64(place * 0x85EBCA6B)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        share = ((mixed ^ (mixed >> np.uint64(32))) >> np.uint64(11)).astype(float) / 2**53
        chosen = known.take(pa.array((len(known) * share**3).astype(np.int64)))
        columns.append(pc.if_else(pa.array(lengths > place), chosen, pa.scalar(None, pa.string())))
    plain = pc.binary_join_element_wise(*columns, " ", null_handling="skip")
    form = rng.random(rows)
    capital = pc.if_else(pa.array(form < 0.06), pc.utf8_capitalize(plain), plain)
    spaced = pc.if_else(pa.array(form > 0.98), pc.binary_join_element_wise(capital, "", " "), capital)
    return pc.if_else(pa.array((form > 0.5) & (form < 0.505)), "", spaced)


def write_log(folder: Path, rows: int, files: int) -> None:
    """A log of so many rows."""
    known = words()
    for number in range(files):
        pq.write_table(pa.table({"query": texts(known, rows // files, number)}), folder / f"part-{number:03d}.parquet")


def measured(what: str, log: str, nodes: int) -> dict[str, Any]:
    """Do it once, in this process."""
    if what == "GROUP BY":
        with duckdb.connect(config={"threads": len(os.sched_getaffinity(0))}) as connection:
            connection.execute("SET enable_progress_bar = false")
            started, spent = perf_counter(), process_time()
            rows = len(connection.sql(GROUP_BY, params={"log": f"{log}/*.parquet"}).to_arrow_table())
            return told(started, spent) | {"content": rows}
    if what == WHOLE_NAME:
        with duckdb.connect() as connection, tempfile.TemporaryDirectory(prefix="dmqr-dedup-speed-") as out:
            connection.execute("SET enable_progress_bar = false")
            started, spent = perf_counter(), process_time()
            places = {"log": f"{log}/*.parquet", "queries": f"{out}/queries.parquet", "query_map": f"{out}/query_map.parquet"}
            for statement in WHOLE.split(";")[:-1]:
                used = {name: place for name, place in places.items() if f"${name}" in statement}
                connection.execute(statement, used)
            return told(started, spent) | {"content": pq.read_metadata(places["queries"]).num_rows}
    with simulated(nodes), tempfile.TemporaryDirectory(prefix="dmqr-dedup-speed-") as out:
        started, spent = perf_counter(), process_time()
        files, columns = find_log_files(log), LogColumns("query")
        check_log(files, columns)
        storage = open_storage(out)
        summary = dedup(files, columns, storage, 1000, local=not nodes)
        result = told(started, spent)
        tables = {name: [storage.url(file.key) for file in summary.tables[name]] for name in ("queries", "query_map")}
        with duckdb.connect() as connection:
            return result | {"content": connection.execute(CONTENT, tables).fetchone()}


@contextmanager
def simulated(nodes: int) -> Iterator[None]:
    """A Ray of so many nodes of two CPUs each, all on this machine; none of 0."""
    if not nodes:
        yield
        return
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    for _ in range(nodes - 1):
        cluster.add_node(num_cpus=2)
    ray.init(cluster.address, log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


def told(started: float, spent: float) -> dict[str, Any]:
    """Seconds, CPU seconds (of this process and, where it has any, not of Ray's) and peak memory in MB so far."""
    return {"seconds": perf_counter() - started, "cpu": process_time() - spent, "peak": int(peak_mib())}


def apart(what: str, log: Path, nodes: int = 0) -> dict[str, Any]:
    """Do it once, in a new process; with Ray's processes, CPU seconds are theirs, too."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    environment |= {"RAY_DATA_DISABLE_PROGRESS_BARS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, __file__, "--once", what, str(log), "--nodes", str(nodes)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    whole = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"{what:20} {found['seconds']:6.2f} s, {found['cpu']:6.2f} CPU s (process {whole:.2f}), peak {found['peak']} MB",
        flush=True,
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--once", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        print(json.dumps(measured(*options.once, options.nodes)))
        return
    with tempfile.TemporaryDirectory(prefix="dmqr-dedup-log-") as name:
        write_log(Path(name), options.rows, options.files)
        rounds = [{what: apart(what, Path(name)) for what in ("GROUP BY", WHOLE_NAME, "dedup")} for _ in range(options.rounds)]
        for unit in ("seconds", "cpu"):
            times = {what: median(one[what][unit] for one in rounds) for what in rounds[0]}
            for what in ("GROUP BY", WHOLE_NAME):
                share = times[what] / times["dedup"]
                print(f"{unit}: {what} {times[what]:.2f}, dedup {times['dedup']:.2f}: {share:.2f} of its speed (goal: 0.5)")
        if options.nodes:
            spread = apart(f"dedup, {options.nodes} nodes", Path(name), options.nodes)
            print(
                "the same tables" if spread["content"] == rounds[0]["dedup"]["content"] else "OTHER TABLES", spread["content"]
            )


if __name__ == "__main__":
    main()

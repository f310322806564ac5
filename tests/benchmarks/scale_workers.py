"""1, 2, 4, 8 workers of rewriting and of retrieval on simulated nodes: whether more workers do more.

    python tests/benchmarks/scale_workers.py [--workers 1,2,4,8] [--nodes 3] [--in-flight 4] [--a-worker 1200]

Nodes are raylets on this machine, so that what grows here is what waits: a server answers each request after 200 ms; a worker
has `--in-flight` requests at a time. Each run has `--a-worker` queries for each of its workers, in shards of 50, so that all
should take as long. The rate is of the second half of the shards, by the times of their manifests: in the first one workers
still start, each for seconds of a core. The ideal is workers x in flight / 200 ms. Writes its section of RESULTS.md where
nothing is given.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from results import measured_on, put_section, table
from small_jobs import REPOSITORY, SECONDS, prepare, serving, timed, write_config

SHARD = 50
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "PYTHONPATH": str(REPOSITORY)}


def configured(folder: Path, address: str, workers: int, in_flight: int, queries: int) -> Path:
    """Writes the config of a run; returns its path."""
    engine = {"kind": "openai", "base_url": address, "model": "tiny", "max_in_flight": in_flight}
    pool = {"workers": workers, "cpus": 0.1}
    cluster = {"address": "auto", "shard_size": SHARD, "rewrite": pool, "retrieve": pool}
    return write_config(folder, f"of-{workers}", queries, engine, cluster)


def rate(folder: Path, name: str) -> float:
    """Returns queries a second of the second half of the commits."""
    manifests = list(folder.glob(f"runs/{name}-*/commits/*.json"))
    ordered = sorted((path.stat().st_mtime, json.loads(path.read_text())["counts"]["queries"]) for path in manifests)
    half = ordered[len(ordered) // 2 :]
    return sum(queries for _, queries in half[1:]) / (half[-1][0] - half[0][0])


def main() -> None:
    """Prints each rate as it comes, then the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,2,4,8")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--in-flight", type=int, default=4)
    parser.add_argument("--a-worker", type=int, default=1200)
    options = parser.parse_args()
    from ray.cluster_utils import Cluster

    where, python = measured_on(("ray", "bm25s", "aiohttp")), [sys.executable, "-m", "jobs"]
    each = sorted(int(one) for one in options.workers.split(","))
    rows, first = list[list[str]](), 0.0
    with tempfile.TemporaryDirectory() as name, serving() as server:
        folder = Path(name)
        prepare(folder, [workers * options.a_worker for workers in each])
        config = configured(folder, server, each[0], options.in_flight, each[0] * options.a_worker)
        timed([*python, "index", config.name, "--corpus", "corpus.parquet"], folder, "index")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
        try:
            for _ in range(options.nodes - 1):
                cluster.add_node(num_cpus=4)
            os.environ["RAY_ADDRESS"] = cluster.address
            for workers in each:
                config = configured(folder, server, workers, options.in_flight, workers * options.a_worker)
                took = timed([*python, "run", config.name], folder, config.stem)
                found, ideal = rate(folder, config.stem), workers * options.in_flight / SECONDS
                first = first or found / workers
                cells = (f"{workers}", f"{workers * options.a_worker:,}", f"{took.seconds:.1f}", f"{took.first_commit:.1f}")
                rows.append([*cells, f"{found:.1f}", f"{ideal:.0f}", f"{found / ideal:.2f}", f"{found / workers / first:.2f}"])
                print(" | ".join(rows[-1]), flush=True)
        finally:
            cluster.shutdown()
    titles = ("workers", "queries", "seconds", "first commit", "queries/s", "ideal", "of it", "a worker, of the first row's")
    body = f"`python tests/benchmarks/scale_workers.py`, {options.nodes} simulated nodes,\n{where}\n\n{table(titles, rows)}"
    print(f"\n{body}")
    if len(sys.argv) == 1:
        put_section("More workers", body)


if __name__ == "__main__":
    main()

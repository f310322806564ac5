"""The need of a run's driver for its shards alone: seconds of each phase, and its peak memory, with stages that do nothing.

    python tests/benchmarks/scale_driver.py [--shards 1000 10000 100000] [--address none cluster] [--in-flight 64]

A job of one query a shard, planned, begun, committed and closed by the run's own code. Its three stages are of the job's shape
(one without a pool, one with, one that commits) and pass rows through; the last one stores small files of five tables and a
manifest of the size of one with three strategies, two retrievers and a reranker. Then, each in a process of its own: the same
command for the closed run; for a run of which all but `_SUCCESS.json` is there; and the run opened as the report opens it.
Peak is VmHWM of the process, CPU its seconds of a processor; `none` runs the stages in it, `local` on a Ray of its own,
`cluster` on three simulated nodes of 8 logical CPUs.
"""

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from results import peak_mib

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from cluster.costs import QUANTITIES, STORAGE  # noqa: E402
from cluster.run.pool_sizes import PoolRequest  # noqa: E402
from cluster.run.shards import SUCCESS, File, Manifest, commit, read_plan  # noqa: E402
from cluster.run.stage import Stage, link  # noqa: E402
from cluster.storage import open_storage  # noqa: E402
from jobs.config.load import load_config  # noqa: E402
from jobs.job.prepare import prepare  # noqa: E402
from jobs.run.job import Job, run_of  # noqa: E402
from jobs.run.run import run  # noqa: E402
from jobs.runs.folder import open_run  # noqa: E402
from jobs.runs.starts import node_time  # noqa: E402
from jobs.runs.tally import tally_of  # noqa: E402
from jobs.tables import COMMITTED, SHARD  # noqa: E402
from jobs.terminal.log_files import logged  # noqa: E402

CORPUS = ROOT / "configs" / "sample" / "corpus.parquet"
STAGES = ("read", "rewrite", "retrieve", "fuse", "score", "order", "write")
COMPONENTS = {"rewrite": ("dmqr@model", "general@"), "retrieve": ("bm25@", "dense@encoder"), "score": ("rerank@reranker",)}
TABLES = ("rewrites", "results", "tails", "costs", "scores")


class Through:
    """A worker that passes rows through."""

    NEEDS, ADDS = ("shard",), ()

    def __call__(self, table: pa.Table) -> pa.Table:
        return table


class Commit:
    """A worker that commits a shard of one query, with a small file of each table."""

    NEEDS, GIVES = ("shard",), COMMITTED

    def __init__(self, run: str, start: int) -> None:
        self._storage, self._folder, self._start = open_storage(run), Path(run), start
        for table in TABLES:
            (self._folder / table).mkdir(exist_ok=True)

    def __call__(self, table: pa.Table) -> pa.Table:
        shard = table.column("shard")[0].as_py()
        files = {}
        for number, name in enumerate(TABLES):
            key = f"{name}/shard-{shard:06d}-{shard * 5 + number:012x}.parquet"
            (self._folder / key).write_bytes(b"PAR1")  # not made durable: workers are not what is measured
            files[name] = [File(key, 3 if name == "rewrites" else 1, 4)]
        seconds = {"attributed": 1.25, "start_up": 0.0}
        sums = {"seconds": 0.25, "device_seconds": 0.125, **dict.fromkeys(QUANTITIES, 7)}
        manifest = Manifest(
            shard,
            self._start,
            files,
            {"queries": 1, "log_rows": 1, "rewrites": 3, "further_texts": 3, "queries_with_results": 1, "results": 1}
            | {f"count/{number}": 1 for number in range(20)},
            {stage: {one: dict(sums) for one in of} for stage, of in COMPONENTS.items()},
            dict.fromkeys(STAGES, 0.01),
            {str(self._start): {stage: dict(seconds) for stage in STAGES}},
            {stage: dict.fromkeys(STORAGE, 1.0) for stage in ("read", "retrieve", "write")},
        )
        committed = commit(self._storage, manifest)
        row = {"shard": [shard], "manifest": [json.dumps(asdict(committed))], "traffic": ["{}"]}
        return pa.table(row, schema=COMMITTED)


class Empty(Job):
    """A job whose stages do nothing, `in_flight` shards at a time."""

    in_flight = 64

    @property
    def pools(self) -> dict[str, PoolRequest]:
        return {"through": PoolRequest(workers=1, cpus=1)}

    def stages(self, pools: Any, start: int, *_: Any) -> list[Stage]:
        found = [
            Stage("begin", Through, {}),
            Stage("through", Through, {}, pool=pools["through"], concurrent_blocks=self.in_flight),
            Stage("write", Commit, {"run": self.prepared.storage.root, "start": start}),
        ]
        return link(found, SHARD)


def job(folder: Path) -> Job:
    path = str(folder / "config.yaml")
    checked = run_of(prepare(load_config(path, []), path))
    return Empty(checked.prepared, checked.compiled)


def ran(folder: Path) -> dict[str, float]:
    """Runs the job to its end; returns the seconds of each phase, from the log of the run."""
    began, work = time.time(), job(folder)
    finished = work.prepared.storage.stat(SUCCESS) is not None
    with logged("run", work.prepared.run_id) as (progress, log):
        called = time.time()
        run(work, progress, log=log)
        ended = time.time()
    if finished:  # it has no log of its own
        return {"preparing": called - began, "sums": ended - called}
    lines = max(Path(work.prepared.storage.root, "logs").glob("*.jsonl"), default=None, key=lambda path: path.stat().st_mtime)
    events = [json.loads(line) for line in lines.read_text().splitlines()] if lines else []
    at = [(datetime.fromisoformat(one["time"]).timestamp(), one) for one in events]
    commits = [when for when, one in at if one["event"] == "commit"]
    begins: dict[str, float] = {}
    for when, one in at:
        if one["event"] == "phase":
            begins.setdefault(one["phase"], when)
    begins |= {"before": called} | ({"committing": commits[0]} if commits else {})
    begins.pop("working", None)
    ordered = sorted(begins.items(), key=lambda pair: pair[1])
    ends = [when for _, when in ordered[1:]] + [ended]
    return {"preparing": called - began} | {name: end - when for (name, when), end in zip(ordered, ends, strict=True)}


def opened(folder: Path) -> dict[str, float]:
    """Opens the run as the report does; returns seconds."""
    root = str(Path(json.loads((folder / "runs/scale/latest.json").read_text())["path"]))
    seconds = {}
    for name, work in {
        "plan": lambda: read_plan(open_storage(root)),
        "tally": lambda: tally_of(open_storage(root)),
    }.items():
        began = time.perf_counter()
        work()
        seconds[name] = time.perf_counter() - began
    began = time.perf_counter()
    found = open_run(root)
    seconds["open"] = time.perf_counter() - began
    began = time.perf_counter()
    _ = found.counts, found.spent, found.tables, node_time(found.starts, found.tally.by_start)
    return seconds | {"sums": time.perf_counter() - began}


def again(folder: Path) -> dict[str, float]:
    """Closes the run once more, as after a kill right before its end."""
    Path(job(folder).prepared.storage.root, SUCCESS).unlink()
    return ran(folder)


WORK = {"run": ran, "finished": ran, "closed again": again, "opened": opened}


@contextlib.contextmanager
def nodes(address: str) -> Iterator[str]:
    """Yields the address of the config; for `cluster` that of three nodes, which end with the body."""
    if address != "cluster":
        yield address
        return
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 8, "include_dashboard": False})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=8)
        os.environ["RAY_ADDRESS"] = cluster.address
        yield "auto"
    finally:
        cluster.shutdown()


def measured(address: str, shards: int, in_flight: int) -> None:
    """Prints the seconds of the phases, and the peak and CPU seconds of each process."""
    with tempfile.TemporaryDirectory(prefix="dmqr-scale-") as name, nodes(address) as to:
        folder = Path(name)
        pq.write_table(pa.table({"query": [f"query number {number}" for number in range(shards)]}), folder / "log.parquet")
        config = {
            "name": "scale",
            "log": {"path": str(folder / "log.parquet"), "query_column": "query"},
            "rewrite": {"strategies": []},
            "retrieve": {"retrievers": {"bm25": {"kind": "local", "index": str(folder / "index")}}},
            "rerank": {"kind": "none"},
            "output": str(folder / "runs"),
            "cluster": {"shard_size": 1, "address": to},
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        environment = os.environ | {"PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"}
        index = [sys.executable, "-m", "jobs", "index", str(folder / "config.yaml"), "--corpus", str(CORPUS)]
        subprocess.run(index, env=environment, check=True, capture_output=True)
        for what in WORK:
            began = time.monotonic()
            command = [sys.executable, __file__, "--child", what, name, "--in-flight", str(in_flight)]
            said = subprocess.run(
                command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            ).stdout
            found = json.loads(said.splitlines()[-1])
            phases = ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in found["seconds"].items())
            whole = time.monotonic() - began
            used = f"{found['cpu']:.1f} of CPU, peak {found['peak']:,} MB"
            print(f"{address}, {shards:,} shards, {what}: {whole:.1f} s, {used} ({phases})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--address", nargs="+", default=["none", "cluster"], choices=["none", "local", "cluster"])
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    Empty.in_flight = options.in_flight
    if options.child:
        what, folder = options.child
        seconds, used = WORK[what](Path(folder)), resource.getrusage(resource.RUSAGE_SELF)
        print(json.dumps({"seconds": seconds, "peak": int(peak_mib()), "cpu": used.ru_utime + used.ru_stime}))
        return
    for address in options.address:
        for shards in options.shards:
            measured(address, shards, options.in_flight)


if __name__ == "__main__":
    main()

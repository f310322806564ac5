"""Kill whole runs with SIGKILL at random moments, and count at the server how many requests are sent again.

    python tests/benchmarks/kill_costs.py [--kills 20] [--in-flight 128] [--seconds 0.2] [--queries 4000]

Each round starts a run of one shard per 1,000 queries against a server that answers after `--seconds`, kills every process of
it at a random moment after its first requests, runs the same command to its end, and compares what the server has seen with
the run's `costs/`. Sent again may be at most those in flight and those of one second. The costs must have every request that
the server has seen; those that were on their way to it when the run was killed are there, too, as lost.
Ends with exit code 1 where it is not so.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))
from tests.support.rewriters.fake_server import FakeServer  # noqa: E402


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and all below it at once."""
    family = psutil.Process(process.pid)
    for one in [family, *family.children(recursive=True)]:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--in-flight", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--queries", type=int, default=4000)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/dmqr-kill-costs"))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance, folder = random.Random(options.seed), options.folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"query": [f"question number {n}" for n in range(options.queries)]}), folder / "log.parquet")
    pq.write_table(pa.table({"doc_id": ["d"], "title": [""], "text": ["question and answer"]}), folder / "corpus.parquet")
    bad = 0
    allowed = options.in_flight + options.in_flight / options.seconds
    for number in range(options.kills):
        with FakeServer(seconds=options.seconds) as server:
            engine = {"kind": "openai", "model": "tiny", "base_url": server.address, "max_in_flight": options.in_flight}
            config = {
                "name": f"kill-{number}", "log": {"path": str(folder / "log.parquet"), "query_column": "query"},
                "rewrite": {"engine": engine, "strategies": ["keyword"], "calls": "separate"},
                "retrieve": {"retrievers": {"bm25": {"kind": "local", "index": str(folder / "index")}}},
                "rerank": {"kind": "none"}, "output": str(folder / "runs"), "limits": {"error_rate": 1},
                "cluster": {"shard_size": 1000},
            }  # fmt: skip
            path = folder / "config.yaml"
            path.write_text(yaml.safe_dump(config))
            command = [sys.executable, "-m", "jobs"]
            environment = os.environ | {"RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0"}
            quiet = {"cwd": REPOSITORY, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            corpus = ["--corpus", str(folder / "corpus.parquet")]
            if not number:
                subprocess.run([*command, "index", str(path), *corpus], check=True, **quiet)  # type: ignore[call-overload]
            running = subprocess.Popen([*command, "run", str(path)], **quiet)  # type: ignore[call-overload]
            moment = chance.randrange(1, int(options.queries * 0.9))
            while sum(server.sends.values()) < moment and running.poll() is None:
                time.sleep(0.001)
            kill_all(running)
            time.sleep(0.5)
            before = sum(server.sends.values())
            ended = subprocess.run([*command, "run", str(path)], check=True, **quiet)  # type: ignore[call-overload]
            sent = sum(server.sends.values())
        run = ended.stdout.decode().splitlines()[-1]
        requests, lost = duckdb.sql(
            f"select sum(requests), coalesce(sum(requests) filter (error = 'lost'), 0) from '{run}/costs/*.parquet' "
            "where stage = 'rewrite'"
        ).fetchall()[0]
        again = sent - options.queries
        good = again <= allowed and 0 <= requests - sent <= options.in_flight and requests - lost == options.queries
        bad += not good
        print(
            f"kill {number + 1:2} at {before:5,} sends: {again:4} sent again (at most {allowed:,.0f}); "
            f"the server saw {sent:,}, costs/ has {requests:,}, {lost} of them lost  {'good' if good else 'BAD'}",
            flush=True,
        )
    print(f"{options.kills - bad} of {options.kills} good")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()

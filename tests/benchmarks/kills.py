"""Kill a run with SIGKILL at random moments, start it again, and compare with an undisturbed run.

    python tests/benchmarks/kills.py [--rounds 5] [--folder /tmp/kills]
    python tests/benchmarks/kills.py --config configs/vllm-cpu.yaml --set rewrite.engine.model=FOLDER --victim WORKER

WORKER is the title of a process, such as "ray::MapWorker(MapBatches(Rewrite))".

Rounds alternate: the driver, then one worker process (with --victim: that one only); every second kill comes right when a
manifest appears. Shown per
round: what was killed when, whether the rows of queries, rewrites, runs, scores and results equal the undisturbed run's, rows
that are there twice, and how many completions were made again although they had been stored.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb

REPOSITORY = Path(__file__).resolve().parents[2]
TABLES = ("queries", "query_map", "rewrites", "runs", "scores", "results")


CONFIG, SETS = "configs/quickstart.yaml", ["cluster.shard_size=8", "cluster.address=local"]


def command(verb: str, folder: Path, name: str, *more: str) -> list[str]:
    """The job in small shards, with index and output in `folder`."""
    sets = [*SETS, f"output={folder}/runs", f"name={name}", f"store={folder}/stores/{name}"]  # what no other round has made
    sets += [f"retrieve.retrievers.{retriever}.index={folder}/index" for retriever in ("bm25", "dense")]
    flags = [word for setting in sets for word in ("--set", setting)]
    return [sys.executable, "-m", "jobs", verb, CONFIG, *flags, *more]


def start(folder: Path, name: str) -> subprocess.Popen[str]:
    """Start a run of its own process group."""
    environment = os.environ | {"RAY_AUTH_MODE": "disabled"}
    with (folder / f"{name}.log").open("a") as log:
        return subprocess.Popen(
            command("run", folder, name), cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        )


def run_folder(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / "runs").glob(f"{name}-*") if path.is_dir()), None)


def rows(run: Path, table: str) -> list[tuple[object, ...]]:
    """All rows of a table, sorted, as a plain folder read finds them."""
    if not (run / table).exists():  # not of this config
        return []
    return sorted(duckdb.sql(f"SELECT * FROM read_parquet('{run}/{table}/*.parquet')").fetchall(), key=repr)


def commits(run: Path | None) -> int:
    return len(list((run / "commits").glob("[0-9]*.json"))) if run else 0


def workers_of(driver: int, kind: str) -> list[int]:
    """The Ray worker processes below the driver whose title begins so."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
    below: set[int] = {driver}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    found = []
    for pid in below:
        try:
            name = Path(f"/proc/{pid}/cmdline").read_bytes()
            if name.startswith(kind.encode()) and not name.startswith((b"ray::IDLE", b"ray::DashboardAgent")):
                found.append(pid)
        except OSError:
            continue
    return found


def main() -> int:
    global CONFIG, SETS
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/dmqr-kills"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--config", default=CONFIG)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--victim", help="begins the title of the worker to kill; the driver is let alone then")
    options = parser.parse_args()
    CONFIG, SETS = options.config, SETS + options.set
    folder, chance = options.folder, random.Random(options.seed)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    subprocess.run(command("index", folder, "x", "--corpus", "configs/sample/corpus.parquet"), cwd=REPOSITORY, check=True)
    began = time.monotonic()
    assert start(folder, "calm").wait() == 0
    length = time.monotonic() - began
    calm = run_folder(folder, "calm")
    assert calm is not None
    expected = {table: rows(calm, table) for table in TABLES}
    total = commits(calm)
    bad = 0
    for number in range(2 * options.rounds):
        what = "worker" if options.victim else ("driver", "worker")[number % 2]
        at_commit = (number // 2) % 2 == 1
        name = f"round{number}"
        process = start(folder, name)
        if at_commit:
            wanted = chance.randrange(1, total)
            while commits(run_folder(folder, name)) < wanted and process.poll() is None:
                time.sleep(0.001)
            moment = f"at commit {wanted} of {total}"
        else:
            delay = chance.uniform(0.2, 0.95) * length
            time.sleep(delay)
            moment = f"after {delay:.1f} s of {length:.1f}"
        alive = process.poll() is None
        victims = [process.pid] if what == "driver" else workers_of(process.pid, options.victim or "ray::")
        victim = chance.choice(victims) if victims else 0
        title = Path(f"/proc/{victim}/cmdline").read_bytes().split(b"\0")[0].decode() if victim and alive else "nothing"
        if victim and alive:
            os.kill(victim, signal.SIGKILL)
        code = process.wait()
        again = ""
        if what == "driver" or code != 0:
            code = start(folder, name).wait()
            again = ", started again"
        run = run_folder(folder, name)
        assert run is not None
        different = [table for table in TABLES if rows(run, table) != expected[table]]
        ((made, distinct, later),) = duckdb.sql(
            "SELECT count(*), count(DISTINCT (query_id, request)), count(*) FILTER (start > 1) "
            f"FROM read_parquet('{run}/completions/*/*.parquet')"
        ).fetchall()
        good = code == 0 and not different
        bad += not good
        print(
            f"{'ok ' if good else 'BAD'} {title if what == 'worker' else what} killed {moment}{again}: "
            f"exit {code}, tables that differ: {different or 'none'}; completions {distinct}, made by the second start "
            f"{later}, made twice {made - distinct}",
            flush=True,
        )
    print(f"{2 * options.rounds - bad} passed, {bad} failed")
    return bad


if __name__ == "__main__":
    sys.exit(main())

"""The whole job through real Ray on the sample: its balances from the files, and the same rows whatever is killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from jobs.tables import ELAPSED
from tests.support.jobs.whole_runs import (
    Done,
    below,
    check_files,
    check_same_rows,
    committed,
    finish,
    flags,
    rows,
    rows_of_shard,
    sample_shards,
    start,
    wait_for_commits,
)

pytestmark = pytest.mark.slow

SHARD_SIZE = 20
SHARDS = sample_shards(SHARD_SIZE)
STRATEGIES = {"general", "keyword", "pseudo_answer", "core_content"}


def command(verb: str, folder: Path, output: Path, *more: str) -> list[str]:
    """The quickstart in small shards, with its index in `folder`."""
    settings = flags(folder, **{"cluster.shard_size": SHARD_SIZE, "output": output})
    return [sys.executable, "-m", "jobs", verb, "configs/quickstart.yaml", *settings, *more]


@pytest.fixture(scope="module")
def calm(sample_place: Path) -> Done:
    """The undisturbed run."""
    done = finish(start(command("run", sample_place, sample_place / "runs", "--log", "json")))
    assert done.code == 0, done.err
    return done


# ---------------------------------------------------------------- what a person sees


def test_standard_error_has_the_events_and_the_log_too(calm: Done) -> None:
    (log,) = (calm.folder / "logs").glob("*.jsonl")
    assert log.read_text() == calm.err
    assert "Traceback" not in calm.err
    lines = [json.loads(line) for line in calm.err.splitlines()]
    assert {line["level"] for line in lines} == {"info"}
    assert not [line for line in lines if "ray::" in line["message"] or len(line["message"]) > 400]
    assert len(lines) < 30 + SHARDS
    events = [line["event"] for line in lines if line["event"] not in ("phase", "progress", "failures")]
    assert events == ["start", "log", "plan", *["commit"] * SHARDS, "end"]
    (closing,) = [line["message"] for line in lines if line["message"].startswith("checking and closing: ")]
    assert closing.startswith("checking and closing: 176/176 queries; errors 3 queries")
    assert "; errors 3 queries: truncated 3; cost $" in closing


# ---------------------------------------------------------------- the balances, from the files


def test_costs_reconcile_from_the_rows_up_to_the_record(calm: Done) -> None:
    queries = {row["query_id"] for row in rows(calm.folder, "queries")}
    record = json.loads((calm.folder / "run.json").read_text())
    seconds: Counter[str] = Counter()
    searches = 0
    costs = rows(calm.folder, "costs")
    assert sorted(row["query_id"] for row in costs if row["stage"] == ELAPSED) == sorted(queries)
    for row in costs:
        if row["stage"] == ELAPSED:  # of which the record has no sum
            continue
        seconds[row["stage"]] += row["seconds"]
        searches += row["searches"]
        assert (row["query_id"] is None) == (row["component"] == "start_up")
        assert row["query_id"] is None or row["query_id"] in queries
    totals = {stage: sum(one.get("seconds", 0) for one in parts.values()) for stage, parts in record["costs"].items()}
    apart = {stage: totals.pop(stage) for stage in [*totals] if stage not in seconds}  # caused by no row
    assert apart["write"] > 0
    assert totals == pytest.approx(dict(seconds))
    assert seconds.keys() == {"rewrite", "retrieve", "fuse"}
    assert 0 < searches <= len(queries) * (1 + len(STRATEGIES)) * 2
    (node,) = record["node_time"]
    assert node["attributed"] + node["start_up"] + node["idle"] + node["lost"] == pytest.approx(node["worker_seconds"])
    assert node["attributed"] + node["start_up"] == pytest.approx(sum(seconds.values()) + sum(apart.values()))
    assert node["idle"] > 0
    assert record["status"] == "finished"
    (first,) = record["starts"]
    assert first["start"] == 1
    assert first["node_seconds"].keys() <= {"cpu", "gpu"}
    assert first["queued"].keys() == first["busy"].keys() >= {"read", "rewrite", "retrieve", "write"}
    assert sum(first["queued"].values()) > 0  # between two processes, if nowhere else


def test_success_names_every_file_and_nothing_else_lies_there(calm: Done) -> None:
    check_files(calm.folder, SHARDS)
    shards = json.loads((calm.folder / "shards.json").read_text())["shards"]
    assert len(shards) == SHARDS
    assert [of for *_, of in shards] == [20, 6, *[20] * 7, 10]


# ---------------------------------------------------------------- again


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file but the logs of the starts: when it was written, and its size."""
    files = [path for path in folder.rglob("*") if path.is_file() and "logs" not in path.relative_to(folder).parts]
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.stat().st_size) for path in files}


def test_a_run_that_lost_its_last_word_and_two_commits_is_completed(calm: Done, sample_place: Path) -> None:
    output = sample_place / "resumed"
    folder = shutil.copytree(calm.folder, output / calm.folder.name)
    (folder / "_SUCCESS.json").unlink()
    for shard in (1, 4):
        (folder / "commits" / f"{shard:06d}.json").unlink()
    completions = snapshot(folder / "completions")
    redone = {row["query_id"] for shard in (1, 4) for row in rows_of_shard(folder, shard)}
    done = finish(start(command("run", sample_place, output)))
    assert done.folder == folder
    assert f"resuming: {SHARDS - 2} of {SHARDS} shards are committed" in done.err
    check_same_rows(folder, calm.folder)
    check_files(folder, SHARDS)
    assert snapshot(folder / "completions") == completions
    starts = {
        stage: {(row["query_id"] in redone, row["start"]) for row in rows(folder, "costs")
                if row["stage"] == stage and row["query_id"] and not row["error"]}
        for stage in ("rewrite", "retrieve")
    }  # fmt: skip
    assert starts["retrieve"] == {(False, 1), (True, 2)}
    assert starts["rewrite"] == {(False, 1), (True, 1)}  # the first start had paid for them
    record = json.loads((folder / "run.json").read_text())
    assert [one["status"] for one in record["starts"]] == ["finished", "finished"]


# ---------------------------------------------------------------- killed


def test_a_driver_is_killed_and_then_a_worker_and_the_rows_are_the_same(calm: Done, sample_place: Path) -> None:
    output = sample_place / "killed"
    first = start(command("run", sample_place, output))
    wait_for_commits(first, output, 0)
    os.kill(first.pid, signal.SIGKILL)
    assert finish(first).code == -signal.SIGKILL
    (folder,) = output.glob("quickstart-*")
    left = committed(output)
    assert 0 < left < SHARDS, "the driver was not killed in the middle"
    assert not (folder / "_SUCCESS.json").exists()

    second = start(command("run", sample_place, output))
    at = wait_for_commits(second, output, left)
    (worker,) = below(second, "ray::MapWorker(MapBatches(Retrieve))")
    worker.kill()
    assert at < SHARDS, "the worker was not killed in the middle"
    done = finish(second)

    assert done.folder == folder
    (went_on,) = re.findall(rf"resuming: (\d+) of {SHARDS} shards are committed", done.err)
    assert left <= int(went_on) < SHARDS  # workers may commit after their driver's death
    check_same_rows(folder, calm.folder)
    check_files(folder, SHARDS)
    starts_up = [row["start"] for row in rows(folder, "costs") if row["stage"] == "retrieve" and row["query_id"] is None]
    assert starts_up.count(2) == 2, "the killed worker did not come back"
    once, again = json.loads((folder / "run.json").read_text())["node_time"]
    assert (once["start"], again["start"]) == (1, 2)
    assert min(once["attributed"], again["attributed"]) > 0
    assert min(once["lost"], once["idle"]) >= 0 == again["lost"]
    for one in (once, again):
        assert one["attributed"] + one["start_up"] + one["lost"] + one["idle"] == pytest.approx(one["worker_seconds"])
    assert [one["status"] for one in json.loads((folder / "run.json").read_text())["starts"]] == ["killed", "finished"]


def test_a_driver_that_is_asked_to_stop_commits_what_is_under_way(sample_place: Path) -> None:
    output = sample_place / "asked"
    process = start([*command("run", sample_place, output), "--set", "cluster.shard_size=4"])  # 45 shards: some must be left
    wait_for_commits(process, output, 0)
    process.terminate()
    done = finish(process)
    assert (done.code, done.out) == (143, "")
    (folder,) = output.glob("quickstart-*")
    left = committed(output)
    assert 0 < left < 45
    said, _, again = done.err.splitlines()[-1].partition("; resume with: ")
    assert re.fullmatch(rf"dmqr run: interrupted: {left} of 45 shards are committed, \d+\.\d % of the traffic", said)
    program, _, arguments = again.partition(" -m jobs run ")
    assert shutil.which(program) is not None  # it can be typed as it stands
    assert arguments.startswith("configs/quickstart.yaml --set ")
    assert again.endswith(" --set cluster.shard_size=4 [interrupted]")
    assert json.loads((folder / "run.json").read_text())["status"] == "interrupted"
    assert len(list((folder / "results").iterdir())) == left  # no file without its manifest

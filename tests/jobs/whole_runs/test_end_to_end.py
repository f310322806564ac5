"""The whole job through real Ray on the sample: its balances from the files, and the same rows whatever is killed."""

import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.jobs.whole_runs import (
    ROOT,
    Done,
    Row,
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


@pytest.fixture(scope="module")
def sample() -> list[Row]:
    found: list[Row] = pq.read_table(ROOT / "configs" / "sample" / "log.parquet").to_pylist()
    return found


# ---------------------------------------------------------------- what a person sees


# ---------------------------------------------------------------- the balances, from the files


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
    assert f"going on: {SHARDS - 2} of {SHARDS} shards are committed" in done.err
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
    (went_on,) = re.findall(rf"going on: (\d+) of {SHARDS} shards are committed", done.err)
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

"""The chain with a run's own times: figures computed apart, words and drawing by them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.chain.stages.retrieve import Retrieve
from jobs.pages.waiting import slowest, stage_times, waiting
from jobs.runs.folder import RunFolder, open_run
from tests.support.jobs.in_process_runs import job_in_process, prepared_work, run_in_process
from tests.support.jobs.report_runs import Make, RunMaker

POOLS = {
    "rewrite": {"workers": 2, "cpus": 1, "gpus": 0.0, "most": None},
    "rewrite_2": {"workers": 1, "cpus": 1, "gpus": 0.0, "most": None},
    "retrieve": {"workers": 1, "cpus": 1, "gpus": 0.0, "most": None},
}
# Of the maker's three shards: 1.5 s of rewriting each, 4 s of start-up once, 2.25 s of retrieval each.
REWRITE, RETRIEVE, UP = 3 * 1.5, 3 * 2.25, 4.0


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return RunMaker(tmp_path)


def with_starts(run: RunFolder, *starts: dict[str, Any]) -> RunFolder:
    """The run with its start, or several, by other keys."""
    (first,) = run.record["starts"]
    run.record["starts"] = [first | {"pools": POOLS, "start": n} | one for n, one in enumerate(starts, start=1)]
    return run


def test_workers_worked_started_and_waited_all_of_their_time(make: Make) -> None:
    times = {one.name: one for one in stage_times(with_starts(make(), {"wall_seconds": 10.0}))}
    rewrite, retrieve = times["rewrite"], times["retrieve"]
    assert (rewrite.workers, rewrite.total) == (3, pytest.approx(30.0))  # of both engines
    assert (rewrite.attributed, rewrite.start_up, rewrite.lost) == pytest.approx((REWRITE, UP, 0.0))
    assert rewrite.idle == pytest.approx(30.0 - REWRITE - UP)
    assert (retrieve.attributed, retrieve.idle) == pytest.approx((RETRIEVE, 10.0 - RETRIEVE))
    assert rewrite.busy == pytest.approx(REWRITE / (30.0 - UP))
    assert retrieve.busy == pytest.approx(RETRIEVE / 10.0)
    assert times["fuse"].workers == 0
    assert list(times) == [name for name in ("read", "rewrite", "retrieve", "fuse", "order", "write") if name in times]


def test_several_starts_add_up_and_what_a_killed_one_left_behind_is_lost(make: Make) -> None:
    killed = {"status": "killed", "wall_seconds": 4.0, "busy": {"retrieve": 3.0}, "queued": {"retrieve": 1.5}}
    second = {"wall_seconds": 10.0, "queued": {"retrieve": 2.0, "rewrite": 0.5}}
    found = {one.name: one for one in stage_times(with_starts(make(), killed, second))}
    # The manifests say that start 1 has done what is committed: retrieval beyond its 4 s is over, and not lost.
    assert found["retrieve"].lost == 0.0
    assert found["retrieve"].idle == pytest.approx(10.0)
    assert (found["retrieve"].queued, found["retrieve"].each) == pytest.approx((3.5, 3.5 / 3))
    assert found["rewrite"].queued == pytest.approx(0.5)
    assert found["fuse"].queued == 0.0


def test_the_recorded_times_count_where_there_are_some(make: Make) -> None:
    run = with_starts(make(), {})
    of = {"attributed": 6.0, "start_up": 1.0, "lost": 2.0, "idle": 1.0}
    run.record["node_time"] = [{"start": 1, "stages": {"retrieve": of}}, {"start": 2, "stages": {"retrieve": of}}]
    (retrieve,) = stage_times(run)
    assert (retrieve.attributed, retrieve.start_up, retrieve.lost, retrieve.idle) == (12.0, 2.0, 4.0, 2.0)
    assert retrieve.busy == pytest.approx(16 / 18)


def test_the_busiest_stage_is_what_the_others_wait_for_if_it_works_more_than_half_of_its_time(
    make: Make, tmp_path: Path
) -> None:
    run = with_starts(make(), {"wall_seconds": 10.0, "queued": {"rewrite": 0.25, "retrieve": 5.0}})
    found = waiting(run)
    assert found is not None
    assert slowest(found.stages) == "retrieve"
    busy = "Of their time, workers worked: retrieve 67.5 %, rewrite 17.3 %."  # 6.75 of 10 s; 4.5 of 3 x 10 - 4
    assert found.words == f"The others wait for retrieve. {busy} Shards waited longest before retrieve: 5.0 s in all."
    idle = waiting(with_starts(RunMaker(tmp_path / "longer")(), {"wall_seconds": 20.0, "queued": {}}))
    assert idle is not None
    assert slowest(idle.stages) is None
    assert idle.words.startswith("No stage holds up the others. Of their time, workers worked: retrieve ")
    assert "Shards waited" not in idle.words


def test_a_run_without_a_commit_has_no_picture(tmp_path: Path) -> None:
    assert waiting(RunMaker(tmp_path / "empty")(commit=0, finished=False)) is None


@pytest.mark.slow
@pytest.mark.overlapping
@pytest.mark.parametrize("ablate", [None, {"arms": {"shallow": {"retrieve.depth": 3}}}], ids=["run", "ablation"])
def test_shards_wait_before_what_is_slow(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch, ablate: dict[str, Any] | None,
) -> None:  # fmt: skip
    asleep = 0.6
    usual = Retrieve.__call__

    def slow(self: Retrieve, block: pa.Table) -> pa.Table:
        time.sleep(asleep)
        return usual(self, block)

    monkeypatch.setattr(Retrieve, "__call__", slow)
    monkeypatch.chdir(tmp_path)
    path = job_in_process(tmp_path, values, bm25, config_file)
    folder = run_in_process(prepared_work(path, ["cluster.shard_size=1"], ablate))
    (start,) = json.loads((folder / "run.json").read_text())["starts"]
    assert start["queued"].keys() == start["busy"].keys()
    assert all(seconds >= 0 for seconds in start["queued"].values())
    assert max(start["queued"], key=start["queued"].get) == "retrieve"
    # Six shards; the first finds a free worker, and others are rewritten while it sleeps.
    assert start["queued"]["retrieve"] > 2 * asleep
    found = waiting(open_run(str(folder)))
    assert found is not None
    retrieve = next(one for one in found.stages if one.name == "retrieve")
    assert (retrieve.queued, retrieve.each) == pytest.approx((start["queued"]["retrieve"], start["queued"]["retrieve"] / 6))
    assert retrieve.attributed >= 6 * asleep
    assert "Shards waited longest before retrieve: " in found.words

"""The chain with a run's own times: figures computed apart, words and drawing by them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.chain.stages.retrieve import Retrieve
from jobs.pages.report import report
from jobs.pages.waiting import LEFT, WIDE, slowest, stage_times, waiting
from jobs.runs.folder import RunFolder, open_run
from tests.support.jobs.in_process_runs import job_in_process, prepared_work, run_in_process
from tests.support.jobs.report_ablations import ablation_at
from tests.support.jobs.report_runs import Make, Page, RunMaker

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


def test_a_run_of_before_has_no_queues_and_one_without_a_commit_no_picture(make: Make, tmp_path: Path) -> None:
    found = waiting(with_starts(make(), {}))
    assert found is not None
    assert {one.queued for one in found.stages} == {None}
    assert "shard waited" not in found.svg
    assert "shards waited" not in found.svg
    assert waiting(RunMaker(tmp_path / "empty")(commit=0, finished=False)) is None


def test_the_bars_have_the_shares_of_the_time(make: Make) -> None:
    run = with_starts(make(), {"wall_seconds": 10.0, "queued": {"retrieve": 6.0, "fuse": 3.0}})
    found = waiting(run)
    assert found is not None
    worked = [float(width) for width in re.findall(r'class="attributed"[^>]* width="([\d.]+)"', found.svg)]
    assert worked == pytest.approx([WIDE * REWRITE / 30, WIDE * RETRIEVE / 10], abs=0.05)
    lines = [float(x) for x in re.findall(r"M([\d.]+) ", re.findall(r'class="start_up" d="([^"]*)"', found.svg)[0])]
    first, last = LEFT + WIDE * REWRITE / 30, LEFT + WIDE * (REWRITE + UP) / 30
    assert lines[0] == pytest.approx(first, abs=0.05)
    assert last - 5.1 <= lines[-1] <= last + 0.05
    queues = [float(width) for width in re.findall(r'class="queue"[^>]* width="([\d.]+)"', found.svg)]
    assert queues == pytest.approx([WIDE / 2, WIDE / 4])
    assert found.svg.count('class="box slowest"') == 1
    assert found.svg.count('class="arrow"') == len(found.stages) - 1


def test_it_can_be_read_without_seeing_it_or_its_colours(make: Make) -> None:
    run = with_starts(make(), {"wall_seconds": 10.0, "queued": {"retrieve": 5.0}})
    html = report(run, None, None)
    page = Page(html)
    drawing = next(attributes for tag, attributes in page.tags if tag == "svg" and attributes.get("class") == "waiting")
    assert drawing["role"] == "img"
    ids = str(drawing["aria-labelledby"]).split()
    assert [tag for tag, attributes in page.tags if attributes.get("id") in ids] == ["title", "desc"]
    assert "The others wait for retrieve." in re.search(r"<desc[^>]*>(.*?)</desc>", html)[1]  # type: ignore[index]
    words = page.sections["waiting"]
    assert "worked 4.5 s, started up 4.0 s, waited 22 s: 17.3 % busy" in words
    assert "1 worker, the slowest" in words
    assert "shards waited 5.0 s, 1.7 s each" in words
    assert page.row("waiting", "retrieve") == ["1", "6.8 s", "–", "–", "3.2 s", "67.5 %", "5.0 s", "1.7 s"]
    assert page.row("waiting", "rewrite")[:5] == ["3", "4.5 s", "4.0 s", "–", "22 s"]


def test_an_ablation_has_it_too(tmp_path: Path) -> None:
    folder = ablation_at(tmp_path)
    folder.record["node_time"] = None
    folder.record["starts"] = [
        folder.record["starts"][0]
        | {"start": 1, "pools": POOLS, "wall_seconds": 8.0, "status": "finished", "queued": {"rewrite": 1.0}}
    ]
    folder.tally.by_start[1] = {"rewrite": {"attributed": 18.0, "start_up": 2.0}}
    found = waiting(folder)
    assert found is not None
    assert [(one.name, one.workers, one.idle, one.queued) for one in found.stages] == [
        ("rewrite", 3, 4.0, 1.0),
        ("retrieve", 1, 8.0, 0.0),
    ]
    assert found.words.startswith("The others wait for rewrite. Of their time, workers worked: rewrite 81.8 %, retrieve 0.0 %.")


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

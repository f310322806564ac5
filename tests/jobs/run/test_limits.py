"""Ends of runs: the share of failed queries, money, signals, and what a stop leaves undone."""

import io
import json
import os
import signal
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from cluster.storage.files import FileStorage
from jobs.config.settings import LimitSettings
from jobs.pages.summary import closing_table
from jobs.run.job import Job
from jobs.run.limits import Signals, Stall, Stopped, limit
from jobs.runs.folder import open_run
from jobs.runs.tally import Tally
from jobs.terminal.live_display import LiveDisplay
from tests.support.jobs.in_process_runs import QUERIES, full_disk, prepared_job, run_in_process
from tests.support.jobs.nights import log
from tests.support.jobs.run_folders import page


def stop(done: int, failed: int, shards: int = 2, committed: int = 1, halted: bool = False, **limits: Any) -> str:
    """Message of the driver; "" where it goes on."""
    config = SimpleNamespace(limits=LimitSettings(**limits))
    prepared: Any = SimpleNamespace(config=config, storage=FileStorage("/runs/r"))
    plan: Any = SimpleNamespace(shards=list(range(shards)), counts={"queries": done if committed == shards else 200 * shards})
    counts = Counter({"queries": done, "failed_queries": failed, "error/rewrite/keyword/truncated": failed})
    counts["error/fuse//no_hits"] = 1000  # a note, not a failure
    state, snapshot = SimpleNamespace(usd=2.0), SimpleNamespace(halted=int(halted))
    watch: Any = SimpleNamespace(judged=done, counts=counts, state=state, snapshot=snapshot)
    return str(limit(prepared, plan, Tally(set(range(committed)), counts), watch, 0.5, "dmqr run night.yaml --set a=1") or "")


@pytest.mark.parametrize(
    ("done", "failed", "committed", "stops"),
    [
        (1000, 10, 1, False),  # at the limit
        (1000, 11, 1, True),
        (30, 10, 1, True),
        (117, 9, 2, False),  # too few failed to stop a run by
        (5, 4, 1, False),
        (5, 2, 2, False),
        (5, 3, 2, True),  # at the end half of all have failed
    ],
)
def test_the_share_of_failed_queries(done: int, failed: int, committed: int, stops: bool) -> None:
    assert bool(stop(done, failed, committed=committed, error_rate=0.01)) == stops
    assert bool(stop(done, failed, committed=committed, error_rate=0)) == (failed > 0)


def test_the_message_names_the_failure_and_the_way_on() -> None:
    said = stop(200, 10, error_rate=0.01)
    assert "10 of 200 queries have errors (5.0%, limits.error_rate is 1.0%), most often rewrite/keyword/truncated (10)" in said
    assert said.endswith("; to accept them, resume with: dmqr run night.yaml --set a=1 --set limits.error_rate=0.06")
    assert "\n" not in said


def test_money() -> None:
    assert not stop(200, 0, max_cost_usd=2.5)
    assert stop(200, 0, max_cost_usd=1.5) == (
        "$2.00 are spent, limits.max_cost_usd is $1.50; 1 of 2 shards are committed; to pay for all shards, resume with: "
        "dmqr run night.yaml --set a=1 --set limits.max_cost_usd=4.40"
    )
    short = stop(200, 0, halted=True, max_cost_usd=2.05)
    assert short.startswith("$2.00 are spent, limits.max_cost_usd is $2.05 and does not pay for another request; 1 of 2 shards")
    assert not stop(200, 0, committed=2, max_cost_usd=1.5)  # all is done: nothing left to stop


class Quiet:
    """A runner whose workers are not heard of."""

    def seconds_since_heartbeat(self) -> float:
        return 1e9


def test_a_run_that_stalls_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    stall = Stall(Quiet(), 2, "dmqr run night.yaml")
    now[0] += 119
    stall.check()
    now[0] += 32
    with pytest.raises(Stopped) as stopped:
        stall.check()
    assert "limits.stall_minutes" in str(stopped.value)
    assert str(stopped.value).endswith("committed shards are kept; resume with: dmqr run night.yaml")


def test_a_second_signal_ends_at_once_and_says_how_to_go_on() -> None:
    progress = LiveDisplay(io.StringIO())
    with Signals(progress, "dmqr run night.yaml") as signals:
        signals.working = True
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received == signal.SIGINT
        assert progress.state.phase == "stopping"
        with pytest.raises(Stopped) as stopped:
            os.kill(os.getpid(), signal.SIGTERM)
    assert str(stopped.value) == "interrupted; committed shards are kept; resume with: dmqr run night.yaml"
    assert (stopped.value.exit_code, stopped.value.graceful) == (143, False)


@pytest.mark.parametrize(
    ("number", "grace", "ends"), [(signal.SIGTERM, 25.0, True), (signal.SIGTERM, None, False), (signal.SIGINT, 25.0, False)]
)
def test_after_sigterm_shards_in_flight_have_the_grace_and_no_longer(
    monkeypatch: pytest.MonkeyPatch, number: int, grace: float | None, ends: bool
) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with Signals(LiveDisplay(io.StringIO()), "dmqr run night.yaml", grace) as signals:
        signals.working = True
        signals.check_grace("nothing is")
        os.kill(os.getpid(), number)
        now[0] += 25
        signals.check_grace("2 shards in flight (9 queries) are")
        now[0] += 1
        if not ends:
            signals.check_grace("2 shards in flight (9 queries) are")
            return
        with pytest.raises(Stopped) as stopped:
            signals.check_grace("2 shards in flight (9 queries) are")
    assert str(stopped.value) == (
        "interrupted: after 25 s (cluster.grace_seconds) 2 shards in flight (9 queries) are left to the next start; "
        "committed shards are kept; resume with: dmqr run night.yaml"
    )
    assert (stopped.value.exit_code, stopped.value.graceful) == (143, False)


ASKED = dict(zip(QUERIES, (9, 1, 5, 1, 2, 1), strict=True))  # 19 in all
HEAD = {"why does bread rise", "moon and tides"}  # 14: one alone is not half


@pytest.fixture
def job(bm25_job: str) -> str:
    log([query for query, count in ASKED.items() for _ in range(count)])
    return bm25_job


def committed(job: Job) -> set[str]:
    """The queries of the committed shards."""
    storage, found = job.prepared.storage, set[str]()
    shards = json.loads(storage.get("shards.json") or b"")["shards"]
    for entry in storage.list("commits"):
        _, key, group, _ = shards[json.loads(storage.get(entry.key) or b"")["shard"]]
        with storage.open(key) as file:
            found |= set(pq.ParquetFile(file).read_row_group(group).column("query").to_pylist())
    return found


def test_a_run_that_ends_early_leaves_what_is_asked_least(job: str) -> None:
    ended = prepared_job(job, "cluster.shard_size=2")
    with full_disk():
        run_in_process(ended)
    assert committed(ended) == HEAD
    folder = open_run(ended.prepared.storage.root)
    assert folder.state == "failed: 1 of 3 shards are committed, 73.7 % of the traffic"
    assert "6 distinct; 2 committed, 73.7 % of the traffic" in shown(folder)
    assert "73.7 % of the traffic" in " ".join(" ".join(page(folder).sections.values()).split())


def shown(folder: Any) -> str:
    table = closing_table(folder, None).renderables[0]  # type: ignore[attr-defined]
    return "\n".join(str(cell) for cell in table.columns[1].cells)

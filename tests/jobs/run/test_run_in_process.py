"""Whole runs with `cluster.address: none`, in this process: to the end, stopped, failed in the middle, and gone on with."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from cluster.run.lease import holder
from cluster.run.stage import shard_of
from jobs.chain.stages.retrieve import Retrieve
from jobs.chain.stages.write import Write
from jobs.config.load import load_config
from jobs.job.prepare import Prepared, prepare
from jobs.run.limits import Stopped
from tests.support.jobs.in_process_runs import record, run_in_process
from tests.support.jobs.nights import log
from tests.support.jobs.whole_runs import ROOT, check_same_rows, rows, rows_of_shard
from tests.support.rewriters.fake_server import FakeServer

pytestmark = pytest.mark.overlapping
QUERIES = [
    "why does bread rise", "lamp of a lighthouse", "moon and tides", "spring tide", "yeast", "rye", "zzz", "faint galaxies",
    "beer", "how far does a lens throw light", "harbour", "linen bag",
]  # fmt: skip
SHARDS = 5  # of three queries: two of the four that are asked most often, and three of the others
Make = Callable[..., Prepared]


@pytest.fixture
def make(small_job: Callable[..., str]) -> Make:
    """A small job, with settings; one query has no recorded answer, one no hits."""
    path = small_job(rewrite={"strategies": ["general", "keyword"]})
    asked = [query for place, query in enumerate(QUERIES) for _ in range(1 + place % 3)]
    log([*asked, " ", None])
    answers = {query: {"general": f"about {query}", "keyword": " ".join(query.split()[:2])} for query in QUERIES[1:]}
    record({query: {"dmqr": json.dumps(answer)} for query, answer in answers.items()})
    return lambda *settings: prepare(load_config(path, list(settings)), path)


@pytest.fixture
def calm(make: Make) -> Path:
    """The folder of an undisturbed run, beside those of the others."""
    return done(make("output=calm"))


def done(prepared: Prepared) -> Path:
    return run_in_process(prepared)


def stopped(prepared: Prepared) -> Stopped:
    with pytest.raises(Stopped) as ended:
        run_in_process(prepared)
    return ended.value


def commits(prepared: Prepared) -> int:
    return len(list(prepared.storage.list("commits")))


def status(prepared: Prepared) -> list[str]:
    record = json.loads(prepared.storage.get("run.json") or b"")
    return [one["status"] for one in record["starts"]]


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], object]], None]:
    """Has something done in the ordering stage of a shard, the first time that it comes there."""

    def before(shard: int, act: Callable[[], object]) -> None:
        order, left = Write.__call__, [act]

        def ordered(self: Write, table: pa.Table) -> pa.Table:
            if left and shard_of(table) == shard:
                left.pop()()
            return order(self, table)

        monkeypatch.setattr(Write, "__call__", ordered)

    return before


# ---------------------------------------------------------------- to the end


def test_a_limit_that_holds_no_more_when_all_is_committed_stops_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    # before the work, at the first commit, at the last, at the end
    found = [None, None, Stopped("stopped-errors", "too many errors"), None]
    monkeypatch.setattr("jobs.run.run.limit", lambda *_: found.pop(0))
    prepared = make("cluster.shard_size=50")
    done(prepared)
    assert (found, status(prepared)) == ([], ["finished"])


def test_requests_of_several_shards_are_in_flight_at_a_time(make: Make) -> None:
    with FakeServer(["m"], text=lambda _: json.dumps({"general": "light", "keyword": "lamp"})) as server:
        server.together = 4  # a shard has three queries
        done(make(f"rewrite.engine={{kind: openai, model: m, base_url: '{server.address}'}}"))
        assert (server.listings, len(server.bodies)) == (1, len(QUERIES))


def test_ray_is_not_started(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    if "ray" in sys.modules:
        monkeypatch.setattr("ray.init", lambda *_, **__: pytest.fail("Ray was started"))
    else:
        monkeypatch.setitem(sys.modules, "ray", None)  # an import raises
    done(make())


def test_a_finished_run_is_not_touched(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    folder = done(make())
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    caplog.set_level("INFO", "dmqr")
    run_in_process(make())
    assert "finished already" in caplog.text
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 50])
def test_rows_do_not_depend_on_the_shards(make: Make, calm: Path, size: int) -> None:
    check_same_rows(done(make("output=other", f"cluster.shard_size={size}")), calm)


# ---------------------------------------------------------------- stopped, and gone on with


@pytest.mark.slow
def test_too_many_errors_stop_a_run_that_is_closed_once_they_are_accepted(make: Make, calm: Path) -> None:
    prepared = make("limits.error_rate=0", "cluster.shard_size=50")  # of the tail there is one: it stops at the end alone
    assert "1 of 12 queries have errors (8.3%, limits.error_rate is 0.0%), most often" in str(stopped(prepared))
    assert (commits(prepared), prepared.storage.get("_SUCCESS.json")) == (2, None)
    check_same_rows(done(make("limits.error_rate=0.1")), calm)


def covered(prepared: Prepared) -> str:
    """The share of the log's 24 usable rows whose queries are committed, in words."""
    manifests = [json.loads(prepared.storage.get(one.key) or b"") for one in prepared.storage.list("commits")]
    asked = sum(row["log_count"] for one in manifests for row in rows_of_shard(Path(prepared.storage.root), one["shard"]))
    return f"{100 * asked / 24:.1f} % of the traffic"


@pytest.mark.slow
def test_a_signal_lets_the_shard_under_way_be_committed(
    make: Make, calm: Path, fail: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dmqr")
    fail(1, lambda: os.kill(os.getpid(), signal.SIGTERM))
    prepared = make()
    said = stopped(prepared)
    left = commits(prepared)
    assert 2 <= left < SHARDS
    words = f"interrupted: {left} of {SHARDS} shards are committed, {covered(prepared)}; resume with: the same command"
    assert str(said) == words
    assert (said.exit_code, status(prepared)) == (143, ["interrupted"])
    ended = json.loads(prepared.storage.get("progress.json") or b"")
    assert (ended["state"], ended["reason"], ended["shards"]) == (
        "interrupted",
        str(said),
        {"committed": left, "planned": SHARDS},
    )
    (words,) = [record.getMessage() for record in caplog.records if record.event == "interrupt"]  # type: ignore[attr-defined]
    in_flight = r"(1 shard in flight \(\d quer(y|ies)\) is|[23] shards in flight \(\d queries\) are) being committed"
    assert re.fullmatch(rf"signal 15: no more shards are admitted; {in_flight}; a second signal ends at once", words)
    assert len(list(Path(prepared.storage.root, "results").iterdir())) == left  # no file without its manifest
    check_same_rows(done(make()), calm)


@pytest.mark.slow
def test_a_shard_that_outlasts_the_grace_is_left_to_the_next_start_which_goes_on_at_once(
    make: Make, calm: Path, fail: Callable[..., None]
) -> None:
    ended = threading.Event()

    def act() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        ended.wait(600)
        raise SystemExit  # ends the thread that works: this stands for the end of the process

    fail(1, act)
    prepared = make("cluster.grace_seconds=0.2")
    said = stopped(prepared)
    try:
        assert re.fullmatch(
            r"interrupted: after 0\.2 s \(cluster\.grace_seconds\) (1 shard in flight \(\d quer(y|ies)\) is|"
            r"[23] shards in flight \(\d queries\) are) left to the next start; committed shards are kept; "
            "resume with: the same command",
            str(said),
        )
        assert (said.exit_code, status(prepared), commits(prepared)) == (143, ["interrupted"], 1)
        last = holder(prepared.storage, time.time())
        assert last is not None
        assert last.released
        (node,) = json.loads(prepared.storage.get("run.json") or b"")["node_time"]
        assert node["lost"] > 0  # the work on the shard, which is done once more
    finally:
        ended.set()
    folder = done(make())
    assert status(prepared) == ["interrupted", "finished"]
    check_same_rows(folder, calm)


@pytest.mark.slow
def test_a_query_that_a_worker_fails_on_costs_no_other_its_results(
    make: Make, calm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    retrieve = Retrieve.__call__

    def retrieved(self: Retrieve, table: pa.Table) -> pa.Table:
        if "rye" in table.column("query").to_pylist():
            raise ValueError("cannot be searched")
        return retrieve(self, table)

    monkeypatch.setattr(Retrieve, "__call__", retrieved)
    folder = done(make())
    (rye,) = (row["query_id"] for row in rows(folder, "queries") if row["query"] == "rye")
    for table in ("rewrites", "runs", "results"):
        others = [row for row in rows(calm, table) if table == "rewrites" or row["query_id"] != rye]
        assert sorted(map(repr, rows(folder, table))) == sorted(map(repr, others))
    said = {(row["stage"], row["reason"]) for row in rows(folder, "errors") if row["query_id"] == rye}
    assert said == {("retrieve", "failed"), ("fuse", "no_hits")}


MODEL_AT_WORK = """
import threading, time, torch
from dmqr import command_line as program
from jobs.run import stream

def work():
    a = torch.rand(300, 300)
    while True:
        a = (a @ a).clamp(0, 1)

def stopped():
    threading.Thread(target=work, name=stream._THREAD, daemon=True).start()
    time.sleep(0.5)
    return 1

program.main = stopped
program.entry_point()
"""


@pytest.mark.slow
def test_a_stop_beside_a_model_at_work_keeps_its_exit_code() -> None:
    done = subprocess.run([sys.executable, "-c", MODEL_AT_WORK], cwd=ROOT, capture_output=True, timeout=400, check=False)
    assert (done.returncode, done.stderr) == (1, b"")

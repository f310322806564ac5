"""`progress.json` and `dmqr runs RUN`: what another process learns of a run, in every state."""

import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import UnavailableError
from cluster.outages import Outage
from cluster.run.lease import STALE_SECONDS, Lease
from cluster.run.shards import Plan, Shard, put_plan
from cluster.storage import Storage
from cluster.storage.files import FileStorage
from jobs.__main__ import main
from jobs.run import progress
from jobs.run.limits import Stopped
from jobs.run.progress import progress_file
from jobs.runs.starts import PROGRESS
from jobs.terminal.state import StageState, State
from tests.support.waits import until

RUN = "night-0123456789ab"


def working() -> State:
    stages = [StageState("rewrite", 40, 10, 5, 3.5, 0.9, 2, 1), StageState("write", 20)]
    return State(
        "working", 20, 100, errors=1, usd=0.5, began=time.monotonic() - 10, stages=stages, reasons={"truncated": 1},
        quantities={"requests": 40}, shards=2, planned=10,
    )  # fmt: skip


def published(storage: Storage, number: int = 1, **changes: Any) -> None:
    """A progress.json as a driver puts it."""
    body = {"start": number, "state": "running", "reason": None, "written": 0.0} | working().values(time.monotonic())
    storage.put(PROGRESS, json.dumps(body | changes).encode())


def leased(storage: Storage, number: int = 1, **changes: Any) -> None:
    """A lease as a driver on another machine writes it."""
    now = time.time()
    body = {"host": "far", "machine": "other", "pid": 4711, "pid_began": "1", "began": now - 200, "beat": now - 3}
    storage.put(f"lease/{number:06d}.json", json.dumps(body | {"released": False} | changes).encode())


@pytest.fixture
def folder(tmp_path: Path) -> FileStorage:
    """A run on which a driver elsewhere works: two shards are committed."""
    storage = FileStorage(str(tmp_path / "runs" / RUN))
    leased(storage)
    published(storage)
    for shard in range(2):
        storage.put(f"commits/{shard:06d}.json", b"{}")
    return storage


@pytest.fixture
def status(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Returns what `dmqr runs RUN` prints."""

    def shown(path: str, *options: str) -> str:
        assert main(["runs", path, *options]) == 0
        printed = capfd.readouterr()
        assert printed.err == ""
        return printed.out

    return shown


def line(page: str, name: str) -> str:
    (found,) = [one for one in page.splitlines() if one.split(maxsplit=1)[:1] == [name]]
    return " ".join(found.split()[1:])


# ---------------------------------------------------------------- each state


def test_a_run_at_work(folder: FileStorage, status: Callable[..., str]) -> None:
    page = status(folder.root)
    assert page.splitlines()[0] == folder.root
    state = r"running on far \(process 4711\) for 3 min \d\d s, last heartbeat \d+ s ago"  # a busy machine takes seconds
    assert re.fullmatch(state, line(page, "state"))
    assert line(page, "phase") == "working"
    assert line(page, "shards") == "2 of 10 committed"
    assert line(page, "queries") == "20 of 100 committed, 2.0/s, ETA 40 s"
    assert line(page, "rewrite") == "40 3.5/s 5 10 90% 1 of 2 workers"
    assert line(page, "errors") == "1 query: truncated 1"
    assert line(page, "cost") == "$0.500, 40 requests"


Put = Callable[[FileStorage], object]
STATES: list[tuple[str, Put, str]] = [
    ("clock ahead", lambda run: leased(run, began=time.time() + 40, beat=time.time() + 60),
     "running on far (process 4711) for 0 s, last heartbeat 0 s ago"),
    ("gone", lambda run: leased(run, beat=time.time() - STALE_SECONDS - 10),
     "stale: last heartbeat 2 min 40 s ago, far (process 4711) is gone; run it again"),
    ("stopped", lambda run: (leased(run, released=True), published(run, state="stopped", reason="interrupted: 2 of 10")),
     "stopped: interrupted: 2 of 10"),
    ("the last progress could not be put",
     lambda run: (leased(run, released=True), run.put("run.json", b'{"status": "failed"}')), "failed"),
    ("finished", lambda run: (leased(run, released=True), run.put("_SUCCESS.json", b"{}")), "finished"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "state"), [case[1:] for case in STATES], ids=[case[0] for case in STATES])
def test_other_states(folder: FileStorage, status: Callable[..., str], change: Put, state: str) -> None:
    change(folder)
    before = {path: path.stat().st_mtime_ns for path in Path(folder.root).rglob("*")}
    page = status(folder.root)
    assert line(page, "state") == state
    assert line(page, "errors") == "1 query: truncated 1"
    assert ("ETA" in page) == ("phase" in page) == state.startswith("running")
    assert {path: path.stat().st_mtime_ns for path in Path(folder.root).rglob("*")} == before  # nothing is written


@pytest.mark.parametrize("released", [True, False])
def test_queries_are_those_of_the_committed_shards(folder: FileStorage, status: Callable[..., str], released: bool) -> None:
    """The progress is of the last heartbeat: a shard was committed after it."""
    put_plan(folder, Plan([], {"queries": 100}, 10, {}, [Shard(number, "q", number, 10) for number in range(10)]))
    folder.put("commits/000002.json", b"{}")
    leased(folder, beat=time.time() - STALE_SECONDS - 10, released=released)
    published(folder, state="running", written=time.time() - 100)
    page = status(folder.root)
    assert line(page, "shards") == "3 of 10 committed"
    assert line(page, "queries") == "30 of 100 committed"
    assert "as of 1 min 40 s ago, with 20 queries committed and others under way: the rows below" in " ".join(page.split())
    values = json.loads(status(folder.root, "--json"))
    assert (values["queries"]["committed"], values["as_of"]["queries"]) == (30, 20)


def test_traffic_is_told_where_the_driver_knows_it(folder: FileStorage, status: Callable[..., str]) -> None:
    assert not [one for one in status(folder.root).splitlines() if one.startswith("traffic")]
    assert json.loads(status(folder.root, "--json"))["traffic_covered"] is None
    published(folder, traffic_covered=0.61)
    assert line(status(folder.root), "traffic") == "61.0 % covered"


def test_a_run_that_waits_has_no_eta(folder: FileStorage, status: Callable[..., str]) -> None:
    state = working()
    state.outages = [Outage("S3 at host:9000", "no route", time.time() - 60, 600)]
    folder.put(PROGRESS, json.dumps({"start": 1, "state": "running", "written": 0.0} | state.values(time.monotonic())).encode())
    assert line(status(folder.root), "queries") == "20 of 100 committed, 2.0/s, ETA waiting"
    assert state.pace(time.monotonic()).endswith("ETA waiting")
    assert json.loads(status(folder.root, "--json"))["queries"]["eta_seconds"] is None


def test_what_an_earlier_start_has_put_is_not_this_ones_progress(folder: FileStorage, status: Callable[..., str]) -> None:
    leased(folder, 2)
    page = status(folder.root)
    assert line(page, "state").startswith("running on far")
    assert line(page, "shards") == "2 of a number not known yet committed"
    assert "queries" not in page


# ---------------------------------------------------------------- what the driver puts


def body(storage: Storage) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(storage.get(PROGRESS) or b"{}")
    return values


def test_the_driver_puts_its_progress_while_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PUT_SECONDS", 0.02)
    storage, state, called = FileStorage(str(tmp_path)), working(), threading.Event()
    lease = Lease.acquire(storage)
    with progress_file(storage, lease, state, called.set):
        until(lambda: body(storage).get("queries", {}).get("committed") == 20)
        state.done = 60
        until(lambda: body(storage)["queries"]["committed"] == 60)
        assert (body(storage)["state"], body(storage)["start"]) == ("running", 1)
        state.done = 100
    lease.release()
    assert called.is_set()
    assert (body(storage)["state"], body(storage)["queries"]["committed"]) == ("finished", 100)


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (Stopped("stopped-cost", "a limit"), "stopped"),
        (Stopped("stopped-stall", "a stall", graceful=False), "failed"),
        (ZeroDivisionError("a bug"), "failed"),
    ],
)
def test_the_end_has_its_reason(tmp_path: Path, error: Exception, state: str) -> None:
    storage = FileStorage(str(tmp_path))
    lease = Lease.acquire(storage)
    with pytest.raises(type(error)), progress_file(storage, lease, State(), lambda: None):
        raise error
    lease.release()
    assert (body(storage)["state"], body(storage)["reason"]) == (state, str(error))


def test_no_error_ends_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(progress, "PUT_SECONDS", 0.02)
    storage, state = FileStorage(str(tmp_path)), working()
    lease, put, away = Lease.acquire(storage), storage.put, [UnavailableError(5, "away"), OSError(5, "away")]
    failures, ends = [ZeroDivisionError("of the state")] * 3, [KeyError("of the log")]

    def failing(key: str, data: bytes) -> None:
        if key == PROGRESS and away:
            raise away.pop()
        put(key, data)

    def spent() -> dict[str, Any]:
        if failures:
            raise failures.pop()
        return {"words": "cut: \ud83d"}

    def after_write() -> None:
        if ends:
            raise ends.pop()

    monkeypatch.setattr(storage, "put", failing)
    with progress_file(storage, lease, state, after_write, spent):
        until(lambda: body(storage).get("words") == "cut: ?")
    lease.release()
    assert body(storage)["state"] == "finished"
    assert caplog.text.count("the progress of the run cannot be written: of the state") == 1
    assert "the run goes on" in caplog.text


def test_progress_does_not_wait_for_a_log_that_is_put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PUT_SECONDS", 0.02)
    storage, state, putting, ended = FileStorage(str(tmp_path)), working(), threading.Event(), threading.Event()
    lease = Lease.acquire(storage)

    def put_log() -> None:
        putting.set()
        ended.wait(300)

    try:
        with progress_file(storage, lease, state, put_log):
            assert putting.wait(300)
            state.done = 77
            until(lambda: body(storage).get("queries", {}).get("committed") == 77)
        assert body(storage)["state"] == "finished"
    finally:
        ended.set()
    lease.release()


def test_a_driver_that_has_lost_the_run_puts_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FileStorage(str(tmp_path))
    lease = Lease.acquire(storage)
    monkeypatch.setattr(lease, "lost", lambda: True)
    with progress_file(storage, lease, State(), lambda: None):
        pass
    lease.release()
    assert storage.get(PROGRESS) is None

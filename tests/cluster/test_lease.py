"""The lease: one driver per run, told who holds it, and taken over from the dead."""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from cluster.errors import ClusterError
from cluster.run import lease
from cluster.run.lease import STALE_SECONDS, Lease, check_free, holder, lease_times
from cluster.storage import Storage
from tests.support.cluster.clock import Clock
from tests.support.processes import check_killed
from tests.support.waits import PATIENCE, until

DYING = """
import os, signal, sys
from cluster.run.lease import Lease
from cluster.storage import open_storage
Lease.acquire(open_storage(sys.argv[1]))
os.kill(os.getpid(), signal.SIGKILL)
"""


@contextmanager
def held(storage: Storage) -> Iterator[Lease]:
    mine = Lease.acquire(storage)
    try:
        yield mine
    finally:
        mine.release()


def body(storage: Storage, number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(storage.get(f"lease/{number:06d}.json") or b"null")
    return found


def put_body(storage: Storage, number: int, **changes: Any) -> dict[str, Any]:
    """A lease as somebody else would have written it."""
    now = time.time()
    values = {"host": "far", "machine": "other", "pid": 4711, "pid_began": "1", "began": now, "beat": now, "released": False}
    values |= changes
    storage.put(f"lease/{number:06d}.json", json.dumps(values).encode())
    return values


def test_a_second_driver_is_refused_and_told_who_holds_the_run(storage: Storage) -> None:
    with held(storage), pytest.raises(ClusterError) as refused:
        Lease.acquire(storage)
    text = str(refused.value)
    assert storage.root in text
    assert f"process {os.getpid()} on {socket.gethostname()}" in text
    assert "\n" not in text


def test_a_driver_that_comes_second_by_a_moment_is_refused(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "put_if_absent", lambda key, data: False)
    with pytest.raises(ClusterError, match="another driver has just started on this run; wait for it"):
        Lease.acquire(storage)


def test_a_released_run_is_free_at_once_and_a_temporary_that_a_kill_left_is_no_lease(storage: Storage) -> None:
    storage.put("lease/.000007.json.0123.tmp", b'{"ha')
    with held(storage) as first:
        assert first.number == 1
    with held(storage) as second:
        assert second.number == 2
    assert body(storage, 2)["released"]


def test_a_process_that_is_dead_on_this_machine_loses_the_run_at_once(storage: Storage) -> None:
    check_killed(DYING, storage.root)
    assert not body(storage, 1)["released"]
    with held(storage) as mine:
        assert mine.number == 2


def test_another_process_that_got_the_same_number_does_not_hold_the_run(storage: Storage) -> None:
    with held(storage):
        mine = body(storage, 1)
    put_body(storage, 1, **(mine | {"released": False, "pid_began": "12"}))
    with held(storage) as next_one:
        assert next_one.number == 2


def test_a_driver_on_another_machine_is_taken_for_dead_only_when_its_heart_has_stopped(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat = put_body(storage, 1)["beat"]
    with pytest.raises(ClusterError, match="process 4711 on far, last heartbeat 149 s ago"):
        check_free(storage, beat + STALE_SECONDS - 1)
    check_free(storage, beat + STALE_SECONDS + 1)
    monkeypatch.setattr(lease, "OBSERVED_SECONDS", 0.01)
    later = Lease.acquire(storage, now=lambda: beat + STALE_SECONDS + 1)
    later.release()
    assert later.number == 2


@pytest.mark.parametrize("ahead", [0.0, 3600.0])
def test_a_driver_that_died_on_another_machine_is_waited_for_and_not_refused(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    clock, told = Clock(), list[str]()
    monkeypatch.setattr(lease, "time", clock)
    now, began = clock.time(), clock.now
    put_body(storage, 1, began=now, beat=now + ahead)
    before = lease.wait_until_free(storage, now, on_wait=told.append)
    assert clock.now - began == pytest.approx(STALE_SECONDS)
    assert [words.split("; ")[0] for words in told] == [f"{storage.root}: process 4711 on far has not released this run"]
    mine = Lease.acquire(storage, now=clock.time, before=before)
    mine.release()
    assert clock.now - began == pytest.approx(STALE_SECONDS)  # and not once more
    assert mine.number == 2


@pytest.mark.parametrize("ahead", [0.0, STALE_SECONDS + 1])
def test_a_driver_on_another_machine_that_is_heard_of_keeps_the_run_whatever_this_clock_says(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(lease, "OBSERVED_SECONDS", 60.0)  # the first heartbeat ends it
    with held(storage), monkeypatch.context() as patch:
        patch.setattr(lease, "_machine", lambda: "another")
        with pytest.raises(ClusterError, match=r"works on this run: process \d+ on .*, last seen just now; wait for it"):
            Lease.acquire(storage, now=lambda: time.time() + ahead)


def test_a_heartbeat_by_a_clock_that_is_ahead_is_told_as_that(storage: Storage) -> None:
    now = time.time()
    put_body(storage, 1, beat=now + 3600)
    with pytest.raises(ClusterError, match="last heartbeat 3600 s ahead of this machine's clock; wait for it"):
        check_free(storage, now)


def test_of_drivers_that_start_together_one_gets_the_run(storage: Storage) -> None:
    def attempt(_: int) -> Lease | str:
        try:
            return Lease.acquire(storage)
        except ClusterError as error:
            return str(error)

    with ThreadPoolExecutor(8) as pool:
        ends = list(pool.map(attempt, range(8)))
    leases = [end for end in ends if isinstance(end, Lease)]
    for mine in leases:
        mine.release()
    assert len(leases) == 1
    assert all("another driver" in end for end in ends if isinstance(end, str))


def test_the_heart_beats(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.02)
    with held(storage) as mine:
        first = body(storage, 1)["beat"]
        until(lambda: body(storage, 1)["beat"] > first)
        assert not mine.lost()
        assert not body(storage, 1)["released"]


def test_a_holder_that_was_taken_over_knows_it_and_leaves_the_run_alone(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.02)
    with held(storage) as mine:
        theirs = put_body(storage, 2)
        until(mine.lost)
    assert body(storage, 2) == theirs
    with pytest.raises(ClusterError, match="process 4711 on far"):
        check_free(storage, theirs["beat"])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_heart_goes_on_after_a_write_that_failed(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network mount that is away for a moment must not end the heart for good: the run would be taken over unnoticed."""
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.02)
    failures = [OSError(5, "Input/output error"), ClusterError("storage-refused", "the credentials have expired")]
    failed: list[Exception] = []
    put = storage.put

    def away(key: str, data: bytes) -> None:
        if threading.current_thread().name == "lease" and failures:
            failed.append(failures.pop())
            raise failed[-1]
        put(key, data)

    with held(storage):
        monkeypatch.setattr(storage, "put", away)
        until(lambda: failed)
        after = time.time()
        until(lambda: body(storage, 1)["beat"] > after)


def test_the_holder_as_others_see_it(storage: Storage) -> None:
    assert holder(storage, time.time()) is None
    with held(storage):
        mine = holder(storage, time.time())
    assert mine is not None
    assert (mine.number, mine.host, mine.pid, mine.alive, mine.released) == (1, socket.gethostname(), os.getpid(), True, False)
    after = holder(storage, time.time())
    assert after is not None
    assert (after.alive, after.released) == (False, True)
    beat = put_body(storage, 2)["beat"]
    assert [holder(storage, beat + wait).alive for wait in (STALE_SECONDS - 1, STALE_SECONDS + 1)] == [True, False]  # type: ignore[union-attr]


def test_durations_of_every_start(storage: Storage) -> None:
    put_body(storage, 1, began=100.0, beat=130.0)
    put_body(storage, 2, began=200.0, beat=201.5, released=True)
    storage.put("lease/.000003.json.0123.tmp", b"{")
    assert [beat - began for began, beat in lease_times(storage)] == [30.0, 1.5]


def test_a_store_that_hangs_loses_the_run_in_time_and_holds_up_nobody(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", 0.02)
    monkeypatch.setattr(lease, "STALE_SECONDS", 0.5)
    monkeypatch.setattr(lease, "_RELEASE_SECONDS", 0.2)
    mine = Lease.acquire(storage)
    free = threading.Event()
    monkeypatch.setattr(storage, "get", lambda key: free.wait(4 * PATIENCE))
    began = time.monotonic()
    until(mine.lost)
    assert not mine.taken_over
    mine.release()
    assert time.monotonic() - began < 2 * PATIENCE
    free.set()


@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), ClusterError("storage-refused", "the credentials have expired")]
)
def test_a_lease_that_cannot_be_given_back_is_no_failure(
    storage: Storage, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Lease.acquire(storage)

    def away(*_: object) -> None:
        raise error

    monkeypatch.setattr(storage, "put", away)
    mine.release()
    assert not body(storage, 1)["released"]

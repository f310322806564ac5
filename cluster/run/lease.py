"""One driver per run: a lease with a heartbeat, built on put-if-absent alone.

Leases are numbered objects `lease/000001.json`, each created by one driver only; the driver with the highest number holds
the run. It rewrites its object every `HEARTBEAT_SECONDS`. Another driver may take the run over, by creating the next number,
once the holder's process on this machine has ended or its last heartbeat is `STALE_SECONDS` old. Clocks differ, so a holder
on another machine is watched, too: who is heard of meanwhile is alive, and the driver is refused; who is not, is waited for. A
holder that finds a higher number stops. Until then two drivers may work; manifests are create-only, so each shard is
committed once.
"""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from cluster.errors import ClusterError, HeldError
from cluster.storage import Storage

HEARTBEAT_SECONDS = 5.0
STALE_SECONDS = 150.0  # longer than requests to storage are retried (s3_client.py)
OBSERVED_SECONDS = 12.0  # two heartbeats
_RELEASE_SECONDS = 10.0  # timeout for a heartbeat in flight


class Holder(NamedTuple):
    """The driver that took the last lease of a run."""

    number: int
    host: str
    pid: int
    began: float  # seconds since the epoch by the driver's clock, as `heartbeat`
    heartbeat: float  # the last one
    released: bool
    here: bool  # this machine knows its process
    alive: bool  # not released, and its process lives or its last heartbeat is not stale

    @property
    def elsewhere(self) -> bool:
        """Returns True if it has not released the run, and only its heartbeat tells whether it lives."""
        return not self.released and not self.here


class Watched(NamedTuple):
    """The driver that took the last lease, and since when nothing was heard of it, by the monotonic clock."""

    last: Holder | None
    since: float


class Lease:
    """A run's lease, held from `acquire` to `release`."""

    def __init__(self, storage: Storage, number: int, body: dict[str, Any]) -> None:
        self.number = number
        self._storage, self._body = storage, body
        self._last_heartbeat = time.monotonic()  # when the last stored heartbeat was sent
        self._stop = threading.Event()
        self.taken_over = False
        """True once a lease with a higher number was found."""
        self._thread = threading.Thread(target=self._send_heartbeats, name="lease", daemon=True)
        self._thread.start()

    @classmethod
    def acquire(cls, storage: Storage, now: Callable[[], float] = time.time, before: Watched | None = None) -> Self:
        """Returns a new lease of the run, once the holder before is surely dead; raises HeldError if another driver has it."""
        seen = wait_until_free(storage, now(), before)
        if seen.last is not None and seen.last.elsewhere:
            _watch(storage, seen, OBSERVED_SECONDS)  # this machine's clock may be ahead
        pid = os.getpid()
        process = {"host": socket.gethostname(), "machine": _machine(), "pid": pid, "pid_began": _pid_began(pid)}
        body = {**process, "began": now(), "beat": now(), "released": False}
        number = 1 if seen.last is None else seen.last.number + 1
        if not storage.put_if_absent(_key(number), json.dumps(body).encode()):
            raise HeldError("run-held", f"{storage.root}: another driver has just started on this run; wait for it")
        return cls(storage, number, body)

    def lost(self) -> bool:
        """Returns True if another driver has taken over, or may have: the last stored heartbeat is `STALE_SECONDS` old.

        The monotonic clock counts, so the age grows while the heartbeat thread waits for storage.
        """
        return self.taken_over or time.monotonic() - self._last_heartbeat > STALE_SECONDS

    def release(self) -> None:
        """Marks the lease as released, so that the next driver need not wait; no error if that cannot be stored."""
        self._stop.set()
        self._thread.join(_RELEASE_SECONDS)
        if not self._thread.is_alive():  # else storage does not answer
            with contextlib.suppress(OSError, ClusterError):
                self._put(released=True)

    def _send_heartbeats(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            with contextlib.suppress(OSError, ClusterError):  # storage is unavailable: try again at the next heartbeat
                if self._storage.get(_key(self.number + 1)) is not None:
                    self.taken_over = True
                    return
                sent = time.monotonic()
                self._put(released=False)
                self._last_heartbeat = sent

    def _put(self, *, released: bool) -> None:
        body = self._body | {"beat": time.time(), "released": released}
        self._storage.put(_key(self.number), json.dumps(body).encode())


def check_free(storage: Storage, now: float) -> None:
    """Raises HeldError if the driver of the last lease still works on the run."""
    last = holder(storage, now)
    if last is not None and last.alive:
        ago = round(now - last.heartbeat)
        when = f"{ago} s ago" if ago > -OBSERVED_SECONDS else f"{-ago} s ahead of this machine's clock"
        raise _held(storage, f"process {last.pid} on {last.host}, last heartbeat {when}")


def holder(storage: Storage, now: float) -> Holder | None:
    """Returns the driver that took the last lease, None if there is no lease; `now` is in seconds since the epoch."""
    keys = [entry.key for entry in storage.list("lease") if entry.key.endswith(".json")]
    body = json.loads(storage.get(keys[-1]) or b"null") if keys else None
    if body is None:
        return None
    here = bool(body["machine"]) and body["machine"] == _machine()
    lives = _pid_began(body["pid"]) == body["pid_began"] if here else now - body["beat"] < STALE_SECONDS
    alive, number = not body["released"] and lives, int(Path(keys[-1]).stem)
    return Holder(number, body["host"], body["pid"], body["began"], body["beat"], body["released"], here, alive)


def _held(storage: Storage, by: str) -> HeldError:
    what = f"another driver works on this run: {by}; wait for it, or stop it and start again"
    return HeldError("run-held", f"{storage.root}: {what}")


def wait_until_free(
    storage: Storage, now: float, before: Watched | None = None, on_wait: Callable[[str], object] = lambda _words: None
) -> Watched:
    """Waits until the last driver, on another machine and heard of lately, is taken for dead; returns its lease.

    Raises HeldError if that driver lives.
    """
    last = holder(storage, now)
    seen = before if before is not None and not _heard(before, last) else Watched(last, time.monotonic())
    if last is None or not last.elsewhere:
        check_free(storage, now)
        return seen
    age = max(0.0, now - last.heartbeat)  # of a clock that is ahead nobody knows how old it is
    if age < STALE_SECONDS and time.monotonic() - seen.since < STALE_SECONDS - age:
        on_wait(
            f"{storage.root}: process {last.pid} on {last.host} has not released this run; waiting for a heartbeat, "
            f"{STALE_SECONDS - age:.0f} s at most"
        )
        _watch(storage, seen, STALE_SECONDS - age)
    return seen


def _watch(storage: Storage, seen: Watched, seconds: float) -> None:
    """Waits so long from the time when a lease was first seen; raises HeldError if its driver sends a heartbeat."""
    while (left := seen.since + seconds - time.monotonic()) > 0:
        time.sleep(min(left, HEARTBEAT_SECONDS))
        last = holder(storage, time.time())
        if last is not None and not last.released and _heard(seen, last):
            skewed = abs(time.time() - last.heartbeat) > OBSERVED_SECONDS
            clock = ", whose clock is not this machine's" if skewed else ""
            raise _held(storage, f"process {last.pid} on {last.host}{clock}, last seen just now")


def _heard(before: Watched, last: Holder | None) -> bool:
    """Returns True if the driver, or another one, has written to its lease since it was watched."""
    first, latest = (one and (one.number, one.heartbeat, one.released) for one in (before.last, last))
    return first != latest


def lease_times(storage: Storage) -> Iterator[tuple[float, float]]:
    """Yields begin and last heartbeat of every lease, by its driver's clock, in the order of their numbers."""
    for entry in storage.list("lease"):
        if entry.key.endswith(".json") and (data := storage.get(entry.key)):
            body = json.loads(data)
            yield body["began"], body["beat"]


def _key(number: int) -> str:
    return f"lease/{number:06d}.json"


def _machine() -> str:
    """Returns the ids of this boot and of the process namespace, within which a process id is unique; "" if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _pid_began(pid: int) -> str | None:
    """Returns the process's start (clock ticks since boot; unlike the id it is never used again); None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] in "ZX" else fields[19]  # a zombie has ended, its parent has not waited for it yet

"""One driver per run: a lease with a heartbeat, built on put-if-absent alone.

Leases are numbered objects `lease/000001.json`, each created by one driver only; the highest number holds the run. The
holder rewrites its own object every `BEAT_SECONDS`. A driver that is gone (its process on this machine no longer lives,
or its heart has not beaten for `STALE_SECONDS`) loses the run to whoever creates the next number first. A holder that
sees a higher number stops. Create-only manifests keep harmless what two drivers may do in between.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster import ClusterError
from cluster.storage import Storage

BEAT_SECONDS = 5.0
STALE_SECONDS = 150.0  # longer than a store that is away is waited for (s3_client.py)
WATCHED_SECONDS = 12.0  # two beats
_GOODBYE = 10.0  # for a beat that is on its way


class HeldError(ClusterError):
    """Somebody else has it."""


class Lease:
    """Held from `acquire` to `release`; `lost()` says whether another driver has taken the run over."""

    def __init__(self, storage: Storage, number: int, body: dict[str, Any]) -> None:
        self.number = number
        self._storage, self._body = storage, body
        self._heard = time.monotonic()  # when the last beat that was stored was sent
        self._stop, self._taken = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)
        self._thread.start()

    @classmethod
    def acquire(cls, storage: Storage, now: Callable[[], float] = time.time) -> Lease:
        """Take the run, or HeldError naming the driver that holds it."""
        number = check_free(storage, now())
        _watch(storage)
        body = {**_me(), "began": now(), "beat": now(), "released": False}
        if not storage.put_if_absent(_key(number + 1), json.dumps(body).encode()):
            raise HeldError(f"{storage.root}: another driver has just started on this run; wait for it")
        return cls(storage, number + 1, body)

    def taken(self) -> bool:
        """Whether a driver with a higher number has been seen."""
        return self._taken.is_set()

    def lost(self) -> bool:
        """Whether one has taken over, or may have: no beat was stored for `STALE_SECONDS`, by this process's own clock,
        whatever the heart is waiting for."""
        return self.taken() or time.monotonic() - self._heard > STALE_SECONDS

    def release(self) -> None:
        """Give the run back: the next driver need not wait. It waits where that cannot be stored, which is no failure."""
        self._stop.set()
        self._thread.join(_GOODBYE)
        if not self._thread.is_alive():  # else the store does not answer
            with contextlib.suppress(OSError, ClusterError):
                self._put(released=True)

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            with contextlib.suppress(OSError, ClusterError):  # storage is away for a moment
                if self._storage.get(_key(self.number + 1)) is not None:
                    self._taken.set()
                    return
                sent = time.monotonic()
                self._put(released=False)
                self._heard = sent

    def _put(self, *, released: bool) -> None:
        body = self._body | {"beat": time.time(), "released": released}
        self._storage.put(_key(self.number), json.dumps(body).encode())


def check_free(storage: Storage, now: float) -> int:
    """The number of the last lease; HeldError naming the driver if that one still works on the run."""
    number, holder = _latest(storage)
    if holder is not None and not holder["released"] and _alive(holder, now):
        ago = max(0, round(now - holder["beat"]))
        raise HeldError(
            f"{storage.root}: another driver works on this run: process {holder['pid']} on {holder['host']}, "
            f"last heard of {ago} s ago; wait for it, or stop it and start again"
        )
    return number


def _watch(storage: Storage) -> None:
    """HeldError if a heart of another machine beats that is still by this machine's clock, which may be ahead."""
    number, holder = _latest(storage)
    if holder is None or holder["released"] or holder["machine"] == _machine():
        return
    time.sleep(WATCHED_SECONDS)
    if _latest(storage) != (number, holder):
        raise HeldError(
            f"{storage.root}: another driver works on this run: process {holder['pid']} on {holder['host']}, whose clock is "
            "not this machine's; wait for it, or stop it and start again"
        )


def past_seconds(storage: Storage) -> list[float]:
    """Seconds from the beginning to the last heartbeat of every lease so far, by number."""
    bodies = (json.loads(storage.get(entry.key) or b"{}") for entry in storage.list("lease") if entry.key.endswith(".json"))
    return [body["beat"] - body["began"] for body in bodies if body]


def _key(number: int) -> str:
    return f"lease/{number:06d}.json"


def _latest(storage: Storage) -> tuple[int, dict[str, Any] | None]:
    keys = [entry.key for entry in storage.list("lease") if entry.key.endswith(".json")]
    if not keys:
        return 0, None
    return int(Path(keys[-1]).stem), json.loads(storage.get(keys[-1]) or b"null")


def _me() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "machine": _machine(),
        "pid": os.getpid(),
        "pid_began": _pid_began(os.getpid()),
    }


def _machine() -> str:
    """This boot of this machine, and its process namespace: within one, a process id means one process."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _pid_began(pid: int) -> str | None:
    """When the process began (clock ticks since boot), which tells it from a later one of the same number; None: dead."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] in "ZX" else fields[19]  # a zombie was killed and awaits its parent only


def _alive(holder: dict[str, Any], now: float) -> bool:
    if holder["machine"] and holder["machine"] == _machine():
        return bool(_pid_began(holder["pid"]) == holder["pid_began"])
    return bool(now - holder["beat"] < STALE_SECONDS)

"""`progress.json`: the progress of a run, for other processes; the driver writes it every few seconds."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from cluster.errors import ClusterError
from cluster.run.lease import HEARTBEAT_SECONDS, Lease
from cluster.storage import Storage
from jobs.run.stopping import outcome
from jobs.runs.starts import PROGRESS
from jobs.terminal.state import State

_log = logging.getLogger(f"dmqr.{__name__}")

PUT_SECONDS = HEARTBEAT_SECONDS  # on S3 a small PUT each
_JOIN_SECONDS = 10.0  # seconds that a run's end waits for the last write


class ProgressFile:
    """Writes the progress of a run to its folder while the `with` block runs, and the outcome at its end.

    A thread of its own writes, so that unavailable storage delays neither the run nor the lease's heartbeat.
    """

    def __init__(
        self,
        storage: Storage,
        lease: Lease,
        state: State,
        after_write: Callable[[], None],
        spent: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """Starts nothing yet.

        Args:
            storage: the run's folder.
            lease: of this driver; nothing is written after it is lost.
            state: the progress, updated by others.
            after_write: called after each write but the last.
            spent: returns what the record of a start needs, should the driver be killed.
        """
        self._storage, self._lease, self._state, self._after_write = storage, lease, state, after_write
        self._spent = spent
        self._outcome: tuple[str, str | None] = ("running", None)
        self._ended = threading.Event()
        self._told: set[type[Exception]] = set()
        self._thread = threading.Thread(target=self._write_periodically, name="progress", daemon=True)

    def __enter__(self) -> ProgressFile:
        """Starts the thread."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Writes the outcome and stops the thread."""
        self._outcome = ("finished", None) if error is None else (outcome(error), str(error) or type(error).__name__)
        self._ended.set()
        self._thread.join(_JOIN_SECONDS)

    def _write_periodically(self) -> None:
        last = False
        while not last:
            last = self._ended.is_set()
            self._try(self._write)
            if not last:
                self._try(self._after_write)
                self._ended.wait(PUT_SECONDS)

    def _write(self) -> None:
        if not self._lease.lost():
            self._storage.put(PROGRESS, json.dumps(self._body(), ensure_ascii=False).encode("utf-8", "replace"))

    def _try(self, step: Callable[[], None]) -> None:
        """Takes a step; whatever it raises is logged once, and the next one may succeed."""
        try:
            step()
        except Exception as error:
            away = isinstance(error, OSError | ClusterError)  # storage that is away is told of elsewhere
            if not away and type(error) not in self._told:
                self._told.add(type(error))
                _log.warning("the progress of the run cannot be written: %s; the run goes on", error, exc_info=error)

    def _body(self) -> dict[str, Any]:
        now, reason = self._outcome
        first = {"start": self._lease.number, "state": now, "reason": reason, "written": time.time()}
        return first | self._state.values(time.monotonic()) | self._spent()

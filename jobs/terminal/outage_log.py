"""Tells of outages while they last, on the display and in the log, and keeps them for the run's record."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from cluster.outages import Outage, merged
from jobs.terminal.formats import clock
from jobs.terminal.logs import event
from jobs.terminal.state import State


class OutageLog:
    """The outages of a run: those that its workers and its driver wait out. Threads may share it."""

    def __init__(self, state: State) -> None:
        """Knows of none. Changes `state.outages` and `state.given_up`."""
        self._state, self._lock = state, threading.Lock()
        self._by_source: dict[str, list[Outage]] = {}
        self._open: dict[str, tuple[Outage, dict[str, Any]]] = {}  # service -> the outage, and its entry in `past`
        self.past: list[dict[str, Any]] = []
        """All outages so far, as JSON-able values: service, reason, began (seconds since the epoch), seconds."""

    def update(self, source: str, outages: list[Outage]) -> None:
        """Replaces the outages that `source` knows of ("driver" or "workers")."""
        with self._lock:
            self._by_source[source] = outages
            known = [outage for found in self._by_source.values() for outage in found]
            now = merged([outage for outage in known if (outage.service, outage.since) not in self._state.given_up])
            self._state.outages = now
            current = {outage.service: outage for outage in now}
            for service, outage in current.items():
                if service not in self._open:
                    entry = {"service": service, "reason": outage.reason, "began": outage.since, "seconds": 0.0}
                    self.past.append(entry)
                    self._open[service] = outage, entry
                    words = f"waiting for {service}: {outage.reason}; gives up after {clock(outage.patience)}"
                    event(
                        "outage", words, logging.WARNING,
                        service=service, reason=outage.reason, since=outage.since, patience_seconds=outage.patience,
                    )  # fmt: skip
                self._open[service][1]["seconds"] = round(time.time() - outage.since, 1)
            for service in self._open.keys() - current.keys():
                outage, entry = self._open.pop(service)
                seconds = entry["seconds"] = round(time.time() - outage.since, 1)
                words = f"{service} answers again, after {clock(seconds)}"
                event("recovery", words, service=service, since=outage.since, seconds=seconds)

    def end(self) -> None:
        """Ends the outages that last without a recovery: nobody waits any more, and no service has answered."""
        with self._lock:
            self._state.given_up |= {(outage.service, outage.since) for outage, _ in self._open.values()}
            self._open.clear()
            self._state.outages = []

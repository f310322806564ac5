"""The metrics that the driver of a run exports: shards, money, outages, lease, begin and end."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Protocol

from cluster.metrics.exporter import Exporter
from cluster.metrics.tracked import LOOK_SECONDS, TrackedMetrics
from jobs.chain.metric_samples import exports_metrics
from jobs.job.prepare import Prepared
from jobs.terminal.state import State


class Holding(Protocol):
    """A lease."""

    def lost(self) -> bool:
        """Returns whether the run may belong to another driver."""
        ...


def tracked_metrics(prepared: Prepared) -> TrackedMetrics | None:
    """Returns the metrics of a run's blocks, for the process that tracks them; None without metrics."""
    return TrackedMetrics(_exporter(prepared)) if exports_metrics(prepared.config) else None


def _exporter(prepared: Prepared) -> Exporter:
    return Exporter(prepared.config.name, prepared.run_id)


class DriverGauges:
    """Sets the gauges of the driver while the `with` block runs, in the driver's own process.

    A thread of its own does so, since Ray forgets a gauge that was not set for 20 s, and unavailable storage may hold the
    other threads.
    """

    def __init__(self, prepared: Prepared, lease: Holding, state: State) -> None:
        """Starts nothing yet.

        Args:
            prepared: the job.
            lease: of this driver.
            state: the progress, updated by others.
        """
        self._lease, self._state, self._began = lease, state, time.time()
        self._limit = prepared.config.limits.max_cost_usd
        self._exporter = _exporter(prepared) if exports_metrics(prepared.config) else None
        self._away: set[str] = set()  # services that have not answered
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._set_periodically, name="metrics", daemon=True)

    def __enter__(self) -> None:
        """Starts the thread, if metrics are exported."""
        if self._exporter is not None:
            self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stops the thread and sets all gauges once more; without an error the run has just been finished."""
        if self._exporter is None:
            return
        self._ended.set()
        self._thread.join()
        self._set_all(self._exporter)
        if error is None:
            self._exporter.set("dmqr_finished_timestamp_seconds", time.time())

    def _set_periodically(self) -> None:
        while self._exporter is not None and not self._ended.is_set():
            self._set_all(self._exporter)
            self._ended.wait(LOOK_SECONDS)

    def _set_all(self, exporter: Exporter) -> None:
        state = self._state
        exporter.set("dmqr_started_timestamp_seconds", self._began)
        exporter.set("dmqr_shards_planned", state.planned)
        exporter.set("dmqr_shards_committed", state.shards)
        exporter.set("dmqr_lease_lost", float(self._lease.lost()))
        if state.usd is not None:
            exporter.set("dmqr_cost_usd", state.usd)
        if self._limit is not None:
            exporter.set("dmqr_cost_limit_usd", self._limit)
        waited = {outage.service: time.time() - outage.since for outage in state.outages}
        self._away |= waited.keys()
        for service in self._away:
            exporter.set("dmqr_outage_seconds", waited.get(service, 0.0), service=service)

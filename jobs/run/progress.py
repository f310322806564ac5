"""Tells others of a driver's progress while it runs: `progress.json` for other processes, and the metrics that are its own."""

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from cluster.errors import ClusterError
from cluster.metrics.exporter import LOOK_SECONDS, Exporter
from cluster.run.lease import HEARTBEAT_SECONDS, Lease
from cluster.run.pulse import periodically
from cluster.run.session import IN_PROCESS
from cluster.storage import Storage
from jobs.job.prepare import Prepared
from jobs.run.limits import outcome
from jobs.runs.starts import PROGRESS
from jobs.terminal.state import State

_log = logging.getLogger(f"dmqr.{__name__}")

PUT_SECONDS = HEARTBEAT_SECONDS  # on S3 a small PUT each
_JOIN_SECONDS = 10.0  # seconds that a run's end waits for the last write


@contextmanager
def progress_file(
    storage: Storage, lease: Lease, state: State, after_write: Callable[[], None], spent: Callable[[], dict[str, Any]] = dict
) -> Iterator[None]:
    """Writes the progress of a run to its folder while the `with` block runs, and the outcome at its end."""
    ended: dict[str, Any] = {}
    told: set[type[Exception]] = set()

    def write() -> None:
        if not lease.lost():
            first = {"start": lease.number, "state": "running", "reason": None, "written": time.time()} | ended
            body = first | state.values(time.monotonic()) | spent()
            storage.put(PROGRESS, json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"))

    def step(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # is logged once, and the next one may succeed
            away = isinstance(error, OSError | ClusterError)  # storage that is away is told of elsewhere
            if not away and type(error) not in told:
                told.add(type(error))
                _log.warning("the progress of the run cannot be written: %s; the run goes on", error, exc_info=error)

    def log() -> None:
        if not ended:  # the log is put when it ends
            after_write()

    with (
        periodically("log", partial(step, log), PUT_SECONDS, 0.0),
        periodically("progress", partial(step, write), PUT_SECONDS, _JOIN_SECONDS),
    ):
        try:
            yield
        except BaseException as error:
            ended |= {"state": outcome(error), "reason": str(error) or type(error).__name__}
            raise
        ended |= {"state": "finished"}


def exporter_of(prepared: Prepared) -> Exporter | None:
    """Returns the exporter of a run's metrics; None without metrics."""
    config = prepared.config
    exports = config.cluster.metrics and config.cluster.address != IN_PROCESS
    return Exporter(config.name, prepared.run_id) if exports else None


@contextmanager
def driver_gauges(prepared: Prepared, lease: Lease, state: State) -> Iterator[None]:
    """Sets the gauges of the driver while the `with` block runs, if metrics are exported: Ray forgets one after 20 s."""
    if (exporter := exporter_of(prepared)) is None:
        yield
        return
    limit, began = prepared.config.limits.max_cost_usd, time.time()
    away: set[str] = set()  # services that have not answered

    def set_all() -> None:
        exporter.record("dmqr_started_timestamp_seconds", began)
        exporter.record("dmqr_shards_planned", state.planned)
        exporter.record("dmqr_shards_committed", state.shards)
        exporter.record("dmqr_lease_lost", float(lease.lost()))
        if state.usd is not None:
            exporter.record("dmqr_cost_usd", state.usd)
        if limit is not None:
            exporter.record("dmqr_cost_limit_usd", limit)
        waited = {outage.service: time.time() - outage.since for outage in state.outages}
        away.update(waited)
        for service in away:
            exporter.record("dmqr_outage_seconds", waited.get(service, 0.0), service=service)

    with periodically("metrics", set_all, LOOK_SECONDS):
        yield
    exporter.record("dmqr_finished_timestamp_seconds", time.time())

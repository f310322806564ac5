"""What storage says of a job's runs, if it answers within seconds: how long its kind takes, and whether its driver is gone."""

from __future__ import annotations

import time

from cluster.errors import DmqrError
from cluster.run.job_server import SubmittedJob
from cluster.run.lease import holder
from cluster.storage import open_storage
from cluster.storage.prefetch import PATIENCE_SECONDS, within
from jobs.runs.folder import find_runs
from jobs.submit.ids import run_of


def lost_run(job: SubmittedJob, patience: float = PATIENCE_SECONDS) -> str | None:
    """Returns the folder of a job's run whose lease is stale, though the server says that it works.

    None: there is none, or it cannot be seen from here within `patience` seconds.
    """

    def find() -> str | None:
        try:
            return next(iter(_lost_runs(job)), None)
        except (DmqrError, OSError, ValueError, KeyError):
            return None  # the output is not for this machine to read: what the server says counts

    return within(patience, find, None)


def _lost_runs(job: SubmittedJob) -> list[str]:
    name, label, place = run_of(job)
    if not name or not place:
        return []
    output, now, found = open_storage(place), time.time(), []
    for folder, _ in find_runs(output, name, label):
        last = holder(open_storage(output.url(folder)), now)
        # a head that was started anew gives ids once more: a lease from before this job is not its own
        if last is None or last.job != job.id or last.began < job.started:
            continue
        if last.alive or last.released:
            return []
        found.append(output.url(folder))
    return found

"""What storage says of a job's runs, if it answers within seconds: how long its kind takes, and whether its driver is gone."""

from __future__ import annotations

import time
from dataclasses import dataclass

from cluster.cause import one_line
from cluster.costs import stage_sums
from cluster.errors import DmqrError
from cluster.run.job_server import SubmittedJob
from cluster.run.lease import holder
from cluster.storage import open_storage
from cluster.storage.prefetch import PATIENCE_SECONDS, within
from jobs.config.config import Config
from jobs.job.keys import identity, settings_fingerprint
from jobs.job.pools import with_precisions
from jobs.log.files import log_files
from jobs.runs.folder import find_runs, open_run
from jobs.runs.starts import waited_seconds
from jobs.submit.ids import run_of
from jobs.terminal.formats import clock


@dataclass(frozen=True)
class Expected:
    """The busy time of all workers together; None: no estimate can be had, or not soon."""

    seconds: float | None
    reason: str
    """By what it is known, or why it is not."""


def expected(config: Config, patience: float = PATIENCE_SECONDS) -> Expected:
    """Returns the busy time of the last finished run of this name and these settings, by the size of tonight's log.

    Models and indexes behind the same names may be others than those of that run; they are not looked up. It is given up after
    `patience` seconds.
    """

    def find() -> Expected:
        try:
            return _by_last_run(config)
        except (DmqrError, OSError, ValueError) as error:
            return Expected(None, one_line(error, None))

    return within(patience, find, Expected(None, f"the output or the log does not answer within {patience:g} s"))


def _by_last_run(config: Config) -> Expected:
    output = open_storage(config.output)
    if output.get(f"{config.name}/latest.json") is None:
        return Expected(None, f"no run of the name {config.name} has finished")
    run = open_run(output.url(config.name))
    name = run.storage.root.rstrip("/").rpartition("/")[2]
    known = {"config": run.record.get("identity", {}).get("config", {})}
    if run.is_ablation or settings_fingerprint(known) != settings_fingerprint(_settings(config)):
        return Expected(None, f"the last run, {name}, had other settings")
    then = sum(file["size"] for file in run.plan.inputs)
    now = sum(file.size for file in log_files(config.log))
    if not then:
        return Expected(None, f"the log of the last run, {name}, was empty")
    away = waited_seconds(run.starts)
    waited = f", with the {clock(away)} that it waited for services" if away else ""
    return Expected(stage_sums(run.spent).get("seconds", 0.0) * now / then, f"by {name} and the size of the log{waited}")


def _settings(config: Config) -> dict[str, object]:
    """Returns the part of the job's identity that its config decides, as it is resolved on a cluster."""
    there = config.model_copy(update={"cluster": config.cluster.model_copy(update={"address": "auto"})})
    return {"config": identity(with_precisions(there), {}, {}, {})["config"]}


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

"""Jobs on a Ray cluster: submitted, followed, stopped."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from cluster.errors import ConfigError
from dmqr.face import Face, caller
from dmqr.previews import config_or_none
from dmqr.results import Folder, Result
from dmqr.whole_jobs import Settings, configured

if TYPE_CHECKING:
    from cluster.run.job_server import JobServer, SubmittedJob


def submit(
    config: Folder,
    /,
    *,
    address: str | None = None,
    date: str | None = None,
    label: str | None = None,
    as_ablation: bool = False,
    detach: bool = False,
    pip: Sequence[str] | None = None,
    uv: Sequence[str] | None = None,
    render: bool = False,
    **settings: Any,
) -> Result | str:
    """Submits run or ablate to a Ray cluster and follows it.

    A job that is submitted twice is followed, or goes on.

    Args:
        config: a YAML file, e.g. configs/quickstart.yaml
        address: of the cluster's job server, like http://HEAD:8265 (default: RAY_API_SERVER_ADDRESS)
        as_ablation: the job is `ablate CONFIG` (default: `run CONFIG`)
        detach: print the job's id and leave it to work (default: follow it)
        pip: packages that the nodes install for this job with pip: requirements, or files of them
        uv: packages that the nodes install for this job with uv: requirements, or files of them
        render: print a RayJob for Kubernetes, with the config in a ConfigMap, in place of submitting

    Example:
        dmqr submit configs/quickstart.yaml --address http://127.0.0.1:8265
    """
    from cluster.run.job_server import JobServer
    from jobs.submit.render import rendered
    from jobs.submit.submit import package_lists, submission
    from jobs.submit.submit import submit as send

    face = caller()
    verb: Literal["run", "ablate"] = "ablate" if as_ablation else "run"
    if render:
        for name, value in (("detach", detach), ("json", face.as_json), ("pip", pip), ("uv", uv)):
            if value:
                raise ConfigError("argument", f"{name}: is not rendered; leave it out, or submit with --address")
        return rendered(*configured(config, settings, date, label), verb)
    address = _address(address, "; or render")
    again, packages = face.again("submit", config, settings, address), package_lists(pip, uv)
    job = submission(*configured(config, settings, date, label), verb, again, packages)
    server = JobServer(address)
    job_id, is_new = send(server, job)
    face.note(f"job {job_id} {'submitted' if is_new else 'is working already'} at {server.address}")
    if detach:
        values = {"job": job_id, "address": server.address, "submitted": is_new}
        return Result(values, None, job_id, notes=face.notes)
    return _followed(face, server, job_id)


def _followed(face: Face, server: JobServer, job_id: str) -> Result:
    """Follows a job to its end; returns how it ended."""
    from jobs.submit.follow import FollowedLog, follow

    streams = (io.StringIO(), io.StringIO()) if face.write is None else (sys.stderr if face.as_json else None, None)
    log = FollowedLog(*streams)
    try:
        job = follow(server, job_id, log.write, note=face.note)
    except KeyboardInterrupt:
        at = f"{job_id} --address {server.address}"
        ways = f"follow it with: {face.program} logs {at}; stop it with: {face.program} stop {at}"
        raise KeyboardInterrupt(f"the job {job_id} works on; {ways}") from None
    log.close()
    values = {"job": job.id, "address": server.address, "status": job.status, "code": job.code}
    result = Result(values | {"folder": log.last if job.code == 0 else None}, notes=face.notes)
    if job.code:
        why = " ".join(job.message.split("last available logs")[0].split())[:300].rstrip(" ,")
        ways = "the same command submits it again and goes on" if job.code != 2 else "correct what the line above names"
        result.code = job.code
        result.failure = f"job {job.id}: {job.status.lower()}: {why or 'no reason given'}; {ways}"
    return result


def logs(
    job: Folder,
    /,
    *,
    address: str | None = None,
    date: str | None = None,
    label: str | None = None,
    no_follow: bool = False,
    **settings: Any,
) -> str:
    """Prints what a submitted job prints, to its end.

    Args:
        job: a config, a run's folder, <output>/<name>, or the id that `submit` prints
        label: with a config: that it was submitted with
        no_follow: print what is there, and end

    Example:
        dmqr logs configs/quickstart.yaml --address http://127.0.0.1:8265
    """
    from jobs.submit.follow import follow

    face, (server, attempt) = caller(), _newest_attempt(os.fspath(job), settings, address, date, label)
    if no_follow:
        return server.log(attempt.id)
    text: list[str] = []
    try:
        follow(server, attempt.id, face.write or text.append, note=face.note)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"the job {attempt.id} works on") from None
    return "".join(text)


def stop(
    job: Folder, /, *, address: str | None = None, date: str | None = None, label: str | None = None, **settings: Any
) -> Result:
    """Stops a submitted job; shards under way are committed.

    Example:
        dmqr stop configs/quickstart.yaml --address http://127.0.0.1:8265
    """
    from jobs.submit.follow import follow

    face, (server, attempt) = caller(), _newest_attempt(os.fspath(job), settings, address, date, label)
    worked = not attempt.ended
    if worked:
        face.note(f"job {attempt.id} is told to stop; it commits the shards under way")
        server.stop(attempt.id)
        attempt = follow(server, attempt.id, lambda text: None)
    values = {"job": attempt.id, "status": attempt.status, "worked": worked}
    line = f"{attempt.id}: {'' if worked else 'had ended before: '}{attempt.status.lower()}"
    return Result(values, None, line, notes=face.notes)


def _newest_attempt(
    job: str, settings: Settings, address: str | None, date: str | None, label: str | None
) -> tuple[JobServer, SubmittedJob]:
    """Returns the job server, and the newest attempt of the job that is named."""
    from cluster.run.job_server import JobServer
    from jobs.submit.ids import VERBS, find_job
    from jobs.submit.submit import submission

    address, config = _address(address), config_or_none(job, settings, date, label)
    targets = [job] if config is None else [submission(*config, verb, "", {}).base for verb in VERBS]
    server = JobServer(address)
    return server, find_job(server.jobs(), *targets)


def _address(given: str | None, otherwise: str = "") -> str:
    address = given or os.environ.get("RAY_API_SERVER_ADDRESS")
    if not address:
        missing = "is missing: of the cluster's job server, like http://HEAD:8265"
        raise ConfigError("argument", f"address {missing}{otherwise}")
    return address

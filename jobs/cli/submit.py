"""The verb submit: a job to a cluster, followed to its end."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import TYPE_CHECKING

from cluster.errors import ConfigError
from jobs.cli.command_line.arguments import program
from jobs.cli.log_verbs import command_words, load
from jobs.cli.printing import print_json
from jobs.cli.refusal import say

if TYPE_CHECKING:
    from cluster.run.job_server import JobServer


def submit(options: argparse.Namespace) -> int:
    """Submits a job and follows it; returns its exit code."""
    if options.render:
        return _render(options)
    from cluster.run.job_server import JobServer
    from jobs.submit.submit import package_lists, submission
    from jobs.submit.submit import submit as send

    if not options.address:
        raise ConfigError("argument", "--address is missing: of the cluster's job server, like http://HEAD:8265; or --render")
    packages = package_lists(options.pip, options.uv)
    job = submission(load(options), options.config, "ablate" if options.ablate else "run", _command(options), packages)
    server = JobServer(options.address)
    sent = send(server, job)
    if sent.lost is not None:
        lost = f"{sent.lost[0]} is said to run, but its driver is gone: the lease of {sent.lost[1]} is stale"
        print(f"dmqr submit: {lost}", file=sys.stderr)
    found = "submitted" if sent.is_new else "is working already"
    print(f"dmqr submit: job {sent.job_id} {found} at {server.address}", file=sys.stderr)
    if not options.detach:
        return follow(server, sent.job_id, "submit", json=options.json)
    if options.json:
        print_json({"job": sent.job_id, "address": server.address, "submitted": sent.is_new})
    else:
        print(sent.job_id)
    return 0


def follow(server: JobServer, job_id: str, verb: str, *, json: bool = False) -> int:
    """Follows a job to its end; returns its exit code. With `json` one JSON object stands for the job's closing table."""
    from jobs.submit.follow import FollowedLog
    from jobs.submit.follow import follow as follow_job

    log = FollowedLog(output=sys.stderr if json else None)
    try:
        job = follow_job(server, job_id, log.write, note=lambda words: print(f"dmqr {verb}: {words}", file=sys.stderr))
    except KeyboardInterrupt:
        words = f"the job {job_id} works on; follow it with: {program()} logs {job_id} --address {server.address}"
        return say(verb, f"{words}; stop it with: {program()} stop {job_id} --address {server.address}", 130)
    log.close()
    if json:
        values = {"job": job.id, "address": server.address, "status": job.status, "code": job.code}
        print_json(values | {"folder": log.last if job.code == 0 else None})
    if job.code:
        first = " ".join(job.message.split("last available logs")[0].split())[:300].rstrip(" ,")
        ways = "the same command submits it again and goes on" if job.code != 2 else "correct what the line above names"
        return say(verb, f"job {job.id}: {job.status.lower()}: {first or 'no reason given'}; {ways}", job.code)
    return 0


def _command(options: argparse.Namespace) -> str:
    """Returns the command that submits the job again, also tomorrow."""
    words = command_words(options, "submit", "--address", options.address)
    words += ["--ablate"] if options.ablate else []
    for name in ("pip", "uv"):
        words += [f"--{name}", *given] if (given := getattr(options, name)) else []
    return shlex.join(words)


def _render(options: argparse.Namespace) -> int:
    """Prints a manifest for Kubernetes; nothing is sent."""
    from jobs.submit.render import rendered

    for flag in ("detach", "json", "pip", "uv"):
        if getattr(options, flag):
            raise ConfigError("argument", f"--{flag}: is not rendered; leave it out, or submit with --address")
    print(rendered(load(options), options.config, "ablate" if options.ablate else "run"), end="")
    return 0

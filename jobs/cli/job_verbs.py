"""The verbs logs and stop, and the job that they name: by its config, its run's folder, or its id."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from cluster.errors import ConfigError
from jobs.cli.inputs import check_nothing_set, named_config
from jobs.cli.log_verbs import load
from jobs.cli.printing import print_json
from jobs.cli.refusal import say

if TYPE_CHECKING:
    from cluster.run.job_server import JobServer, SubmittedJob


def logs(options: argparse.Namespace) -> int:
    """Prints the log of a submitted job, and follows it to its end; returns 0, whatever its end, 1 if it is lost."""
    from jobs.submit.follow import follow

    server, job = _found_job(options)
    if options.no_follow:
        print(server.log(job.id), end="")
        return 0
    try:
        follow(
            server,
            job.id,
            lambda text: print(text, end="", flush=True),
            note=lambda words: print(f"dmqr logs: {words}", file=sys.stderr),
        )
    except KeyboardInterrupt:
        return say("logs", f"the job {job.id} works on", 130)
    return 0


def stop(options: argparse.Namespace) -> int:
    """Has a submitted job admit no more shards and commit those under way, and waits for its end."""
    from jobs.submit.follow import follow

    server, job = _found_job(options)
    worked = not job.ended
    if worked:
        print(f"dmqr stop: job {job.id} is told to stop; it commits the shards under way", file=sys.stderr)
        server.stop(job.id)
        job = follow(server, job.id, lambda text: None)
    if options.json:
        print_json({"job": job.id, "status": job.status, "worked": worked})
    else:
        print(f"{job.id}: {job.status.lower()}" if worked else f"{job.id}: had ended before: {job.status.lower()}")
    return 0


def _found_job(options: argparse.Namespace) -> tuple[JobServer, SubmittedJob]:
    """Returns the job server, and the newest attempt of the job that the arguments name.

    Raises:
        ConfigError: there is no such job.
        ClusterError: no job server answers.
    """
    from cluster.run.job_server import JobServer
    from jobs.submit.ids import VERBS, find_job
    from jobs.submit.submit import submission

    if not options.address:
        raise ConfigError("argument", "--address is missing: of the cluster's job server, like http://HEAD:8265")
    targets = [options.run]
    if named_config(options.run):
        config = load(argparse.Namespace(**vars(options) | {"config": options.run}))
        targets = [submission(config, options.run, verb, "", {}).base for verb in VERBS]
    else:
        check_nothing_set(options, options.run)
    server = JobServer(options.address)
    return server, find_job(server.jobs(), *targets)

"""The verb logs: what a submitted job prints."""

from __future__ import annotations

import argparse

from jobs.cli.refusal import say
from jobs.cli.submitted import found_job


def logs(options: argparse.Namespace) -> int:
    """Prints the log of a submitted job, and follows it to its end; returns 0, whatever its end."""
    server, job = found_job(options)
    if options.no_follow:
        print(server.log(job.id), end="")
        return 0
    try:
        server.follow(job.id, lambda text: print(text, end="", flush=True))
    except KeyboardInterrupt:
        return say("logs", f"the job {job.id} works on", 130)
    return 0

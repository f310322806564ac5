"""The verb logs: what a submitted job prints."""

from __future__ import annotations

import argparse
import sys

from jobs.cli.refusal import say
from jobs.cli.submitted import found_job


def logs(options: argparse.Namespace) -> int:
    """Prints the log of a submitted job, and follows it to its end; returns 0, whatever its end, 1 if it is lost."""
    from jobs.submit.follow import follow

    server, job = found_job(options)
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

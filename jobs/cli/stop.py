"""The verb stop: a submitted job, in order."""

from __future__ import annotations

import argparse
import sys

from jobs.cli.printing import print_json
from jobs.cli.submitted import found_job


def stop(options: argparse.Namespace) -> int:
    """Has a submitted job admit no more shards and commit those under way, and waits for its end."""
    from jobs.submit.follow import follow

    server, job = found_job(options)
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

"""The arguments of the verbs that speak with a cluster's job server."""

from __future__ import annotations

import argparse
import os

import shtab

HEAD = "http://127.0.0.1:8265"  # the job server of a Ray on this machine


def add_submission(one: argparse.ArgumentParser) -> None:
    """Adds how a job is submitted."""
    add_address(one)
    one.add_argument("--ablate", action="store_true", help="the job is `ablate CONFIG` (default: `run CONFIG`)")
    one.add_argument("--detach", action="store_true", help="print the job's id and leave it to work (default: follow it)")
    for name in ("pip", "uv"):
        words = f"packages that the nodes install for this job with {name}: requirements, or files of them"
        action = one.add_argument(f"--{name}", nargs="+", action="extend", metavar="FILE|SPEC", help=words)
        action.complete = shtab.FILE  # type: ignore[attr-defined]
    words = "print manifests for Kubernetes in place of submitting: a RayJob, one for Kueue, or a CronJob that creates it"
    one.add_argument("--render", choices=("kuberay", "kueue", "cron"), help=words)


def add_job(one: argparse.ArgumentParser) -> None:
    """Adds which job is meant."""
    words = "a config, a run's folder, <output>/<name>, or the id that `submit` prints"
    action = one.add_argument("run", metavar="RUN|CONFIG|ID", help=words)
    action.complete = shtab.FILE  # type: ignore[attr-defined]
    add_address(one)


def add_address(one: argparse.ArgumentParser) -> None:
    """Adds where the job server is."""
    words = "of the cluster's job server, like http://HEAD:8265 (default: RAY_API_SERVER_ADDRESS)"
    one.add_argument("--address", metavar="URL", default=os.environ.get("RAY_API_SERVER_ADDRESS"), help=words)

"""The arguments of the verbs that speak with a cluster's job server."""

from __future__ import annotations

import argparse
import os
from typing import Any

import shtab

FILES = {"FILE", "FILE|SPEC", "PATH", "QRELS", "RUN", "CONFIG", "RUN|CONFIG", "RUN|CONFIG|ID", "CONFIG|OUTPUT", "CONFIG|STORE"}
HEAD = "http://127.0.0.1:8265"  # the job server of a Ray on this machine


def add(one: argparse.ArgumentParser, *names: str, **more: Any) -> None:
    """Adds an argument as argparse does; where its metavar is one of `FILES`, shells complete it by files."""
    action = one.add_argument(*names, **more)
    if more.get("metavar") in FILES:
        action.complete = shtab.FILE  # type: ignore[attr-defined]


def add_submission(one: argparse.ArgumentParser) -> None:
    """Adds how a job is submitted."""
    add_address(one)
    add(one, "--ablate", action="store_true", help="the job is `ablate CONFIG` (default: `run CONFIG`)")
    add(one, "--detach", action="store_true", help="print the job's id and leave it to work (default: follow it)")
    for name in ("pip", "uv"):
        words = f"packages that the nodes install for this job with {name}: requirements, or files of them"
        add(one, f"--{name}", nargs="+", action="extend", metavar="FILE|SPEC", help=words)
    words = "print a RayJob for Kubernetes, with the config in a ConfigMap, in place of submitting"
    add(one, "--render", action="store_true", help=words)


def add_job(one: argparse.ArgumentParser) -> None:
    """Adds which job is meant."""
    words = "a config, a run's folder, <output>/<name>, or the id that `submit` prints"
    add(one, "run", metavar="RUN|CONFIG|ID", help=words)
    add_address(one)


def add_address(one: argparse.ArgumentParser) -> None:
    """Adds where the job server is."""
    words = "of the cluster's job server, like http://HEAD:8265 (default: RAY_API_SERVER_ADDRESS)"
    add(one, "--address", metavar="URL", default=os.environ.get("RAY_API_SERVER_ADDRESS"), help=words)

"""The job that `logs`, `stop` and `status` name: by its config, its run's folder, or its id."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cluster.errors import ConfigError
from jobs.cli.driving import load

if TYPE_CHECKING:
    from cluster.run.job_server import JobServer, SubmittedJob


def found_job(options: argparse.Namespace) -> tuple[JobServer, SubmittedJob]:
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
    if is_config(options):
        config = load(with_config(options))
        targets = [submission(config, options.run, verb, "", {}).base for verb in VERBS]
    server = JobServer(options.address)
    return server, find_job(server.jobs(), *targets)


def is_config(options: argparse.Namespace) -> bool:
    """Returns whether a config was given; refuses what would change one, where none was given."""
    named = named_config(options)
    for flag in ("set", "date"):
        if not named and getattr(options, flag):
            raise ConfigError("argument", f"--{flag}: {options.run} is no config, which it would change; leave it out")
    return named


def named_config(options: argparse.Namespace) -> bool:
    """Returns whether RUN is named as a config is."""
    return str(options.run).endswith((".yaml", ".yml"))


def with_config(options: argparse.Namespace) -> argparse.Namespace:
    """Returns the options with RUN as `config`, for `load`."""
    return argparse.Namespace(**vars(options) | {"config": options.run})

"""Submits a job: checks what this machine can check, sends it, or finds the job of the same night that works already."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.errors import ConfigError
from cluster.run.job_server import JobServer
from cluster.storage.copies import work_folder
from jobs.chain.arms.arms import arms_of
from jobs.config.config import Config
from jobs.job.prepare import read_prices
from jobs.job.rewrite import read_rewriting
from jobs.job.steps import read_steps
from jobs.log.judgements import local_qrels, read_answers, read_qrels
from jobs.submit.ids import DRIVER_LOG, Verb, attempts, metadata, next_id, submission_id
from jobs.submit.sent_config import SentConfig, sent_config, write_package

_TRIES = 5  # at an id of its own, while others submit the same job
_LOGIN = re.compile(r"://[^/\s@]+@")  # user or password in an address


def check_sent(config: Config, config_path: str, verb: Verb) -> SentConfig:
    """Returns the parts of a job that are sent, after the checks that this machine can make: config, files, prices."""
    read_prices(config, config_path)
    if verb == "ablate":
        arms_of(config)  # imports the plug-ins that arms name, which are sent
    sent, truth = sent_config(config), config.evaluate
    if not sent.names_remote:
        read_rewriting(config)
        read_steps(config)
    if truth.qrels and local_qrels(truth.qrels):
        read_qrels(truth.qrels, key=truth.key)
    if truth.answers and Path(truth.answers).is_file():
        read_answers(truth.answers, truth.key)
    return sent


def submit(
    server: JobServer,
    config: Config,
    config_path: str,
    verb: Verb,
    sent: SentConfig,
    command: str,
    packages: Mapping[str, Sequence[str]],
) -> tuple[str, bool]:
    """Sends a job, unless one of its attempts works already; returns its id, and whether it is new.

    `sent` is by `check_sent`; `command` submits the job again; `packages` are by `package_lists`.
    """
    base, path = submission_id(config, sent, verb), Path(config_path)
    for _ in range(_TRIES):
        jobs = server.jobs()
        working = next((attempt for attempt in reversed(attempts(jobs, base)) if not attempt.ended), None)
        if working is not None:
            return working.id, False
        job_id = next_id(jobs, base)
        with work_folder() as folder:
            config_file = write_package(folder, sent, path.name, path.with_name("prices.yaml"))
            environment = {"working_dir": str(folder), **{name: list(listed) for name, listed in packages.items()}}
            entrypoint = shlex.join(["python", "-m", "jobs", verb, config_file, *DRIVER_LOG])
            if server.submit(job_id, entrypoint, environment, metadata(config, sent, command)):
                return job_id, True
    raise ConfigError("run-held", f"{base}: another process is submitting this job; follow it with: dmqr logs {base}")


def package_lists(pip: Sequence[str] | None, uv: Sequence[str] | None) -> dict[str, list[str]]:
    """Returns `pip` or `uv` -> packages, for Ray's runtime environment, of files of requirements, or requirements."""
    if pip and uv:
        raise ConfigError("argument", "--pip, --uv: one of them installs the packages of a job; give one")
    name, given = ("pip", pip) if pip else ("uv", uv)
    lines = [line for requirement in given or () for line in _requirements(f"--{name}", requirement)]
    if any(_LOGIN.search(line) for line in lines):
        what = "an address with a user or a password would be shown to all who list jobs"
        remedy = "set PIP_INDEX_URL on the nodes, or have the packages in their image"
        raise ConfigError("argument", f"--{name}: {what}; {remedy}")
    return {name: lines} if given else {}


def _requirements(option: str, given: str) -> list[str]:
    """Returns the lines of a file of requirements, whose name ends with .txt, or the requirement itself."""
    if not given.endswith(".txt"):
        return [given]
    try:
        lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in Path(given).read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("argument", f"{option} {given}: cannot be read: {error}; give a text file in UTF-8") from error
    if any(re.match(r"(-r|--requirement|-c|--constraint|-e|--editable)\b", line) for line in lines):
        raise ConfigError("argument", f"{option} {given}: names other files, which are not sent; list all packages in this one")
    return [line for line in lines if line]

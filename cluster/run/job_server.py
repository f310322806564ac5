"""A cluster's job server, by Ray's client: submits, lists and stops jobs, reads logs. Only HTTP goes to the head, port 8265.

Token and certificate are read from the environment: RAY_AUTH_MODE=token with RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH, and
SSL_CERT_FILE for an `https://` address whose authority is not among the system's.
"""

import functools
import json
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from cluster.cause import one_line
from cluster.errors import ClusterError, ConfigError

ANSWER_SECONDS = (10.0, 120.0)  # to connect, and for an answer: without a limit, a machine that is gone is waited for
STOPPED_CODE = 143  # of a job that was stopped: as a driver says that has received SIGTERM
COMMAND = "dmqr_command"  # key of a submitted job's metadata: the command that submits it again
_OWN_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # so named by ray/_private/runtime_env/constants.py
_WORKING = {"PENDING", "RUNNING"}
_QUIET = ("dashboard.modules.dashboard_sdk", "dashboard.modules.job.sdk", "_private.runtime_env.packaging")  # below ray


class SubmittedJob(NamedTuple):
    """A job as its server tells of it."""

    id: str
    status: str  # PENDING, RUNNING, SUCCEEDED, FAILED, STOPPED
    metadata: Mapping[str, str]
    message: str
    exit_code: int | None  # of the entrypoint; None: it has not ended, or not by itself
    started: float  # seconds since the epoch; 0: not yet

    @property
    def ended(self) -> bool:
        return self.status not in _WORKING

    @property
    def code(self) -> int:
        """Returns the exit code that stands for the end of the job.

        That of the entrypoint; 128 + N after signal N; 143 where the job was stopped; 1 where it failed before its entrypoint
        (a package could not be installed) or with its machine.
        """
        if self.status == "SUCCEEDED":
            return 0
        if self.status == "STOPPED":
            return STOPPED_CODE
        code = self.exit_code or 1
        return 128 - code if code < 0 else code


class JobServer:
    """The job server at an address."""

    def __init__(self, address: str) -> None:
        """Connects to http://HOST:8265, or https://.

        Raises ConfigError for an invalid address or a missing package, ClusterError where none answers, or refuses the token.
        """
        self.address = _checked(address)
        # Ray lets these two override the address that it is given.
        os.environ["RAY_API_SERVER_ADDRESS"] = self.address
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            from ray.job_submission import JobSubmissionClient
        except ImportError as error:
            raise _missing(error) from error
        for name in _QUIET:
            logging.getLogger(f"ray.{name}").setLevel(logging.WARNING)
        authority = os.environ.get("SSL_CERT_FILE") if self.address.startswith("https:") else None
        self._client = self._asked(JobSubmissionClient, self.address, verify=authority or True)
        self._client._do_request = functools.partial(self._client._do_request, timeout=ANSWER_SECONDS)

    def jobs(self) -> list[SubmittedJob]:
        """Returns the submitted jobs that the server knows, the oldest first."""
        listed = self._asked(self._client.list_jobs)
        return sorted((_job(one) for one in listed if one.submission_id), key=lambda job: (job.started or float("inf"), job.id))

    def job(self, job_id: str) -> SubmittedJob:
        return _job(self._asked(self._client.get_job_info, job_id))

    def submit(self, job_id: str, entrypoint: str, environment: Mapping[str, Any], metadata: Mapping[str, str]) -> bool:
        """Submits a job; returns False where the server has one of that id already."""
        values = {"submission_id": job_id, "runtime_env": dict(environment), "metadata": dict(metadata)}
        try:
            self._asked(self._client.submit_job, entrypoint=entrypoint, **values)
        except ClusterError:
            if any(job.id == job_id for job in self.jobs()):
                return False
            raise
        return True

    def stop(self, job_id: str) -> None:
        """Has a job's driver receive SIGTERM; the server sends SIGKILL after RAY_JOB_STOP_WAIT_TIME_S of its environment."""
        self._asked(self._client.stop_job, job_id)

    def log(self, job_id: str) -> str:
        """Returns the output of a job so far."""
        return str(self._asked(self._client.get_job_logs, job_id))

    def _asked(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        from ray.exceptions import AuthenticationError

        try:
            return function(*arguments, **options)
        except AuthenticationError as error:
            problem = _token_problem(str(error).splitlines()[0])
            remedy = "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to that of the cluster"
            raise ClusterError("cluster-away", f"--address {self.address}: {problem}; {remedy}") from error
        except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
            if "ray[default]" in str(error):
                raise _missing(error) from error
            remedy = "give the address of the head's job server, like http://HEAD:8265 (the head needs ray[default])"
            raise ClusterError("cluster-away", f"--address {self.address}: {_reason(error)}; {remedy}") from error


def _own_job() -> dict[str, Any]:
    """Returns `runtime_env` and `metadata` of the submitted job that this process drives; {}: it was started by hand."""
    try:
        values = json.loads(os.environ.get(_OWN_JOB, ""))
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


def submitting_command() -> str | None:
    """Returns the command that submits this process's job again; None: no `dmqr submit` has submitted it."""
    return (_own_job().get("metadata") or {}).get(COMMAND)


def working_folder_has(modules: Sequence[str]) -> bool:
    """Returns True if the `working_dir` of this job's submission has these packages (folders, as this process imports them)."""
    shipped = bool((_own_job().get("runtime_env") or {}).get("working_dir"))
    return shipped and {Path(module).resolve().parent for module in modules} == {Path.cwd().resolve()}


def _job(details: Any) -> SubmittedJob:
    return SubmittedJob(
        details.submission_id,
        str(getattr(details.status, "value", details.status)),
        details.metadata or {},
        details.message or "",
        details.driver_exit_code,
        (details.start_time or 0) / 1000,
    )


def _checked(address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        shown = repr(address) if "@" not in address else "what is given"
        raise ConfigError("argument", f"--address: {shown} is not the address of a job server; give it like http://HEAD:8265")
    if parts.username or parts.password:
        remedy = "leave it out, and set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
        raise ConfigError("argument", f"--address: holds a user or a password; {remedy}")
    return address.rstrip("/")


def _missing(error: BaseException) -> ConfigError:
    why = getattr(error, "name", None) or "Ray's job client"
    return ConfigError("package-missing", f'submit: {why} is not installed; run: pip install "dmqr[ray]"')


def _token_problem(line: str) -> str:
    """Returns the message of Ray's client on a token, which it looks for here before it asks the server."""
    if "couldn't find" in line or "cannot be opened" in line:
        return "RAY_AUTH_MODE is token, and no token is found here"
    return f"the job server {'asks for a token' if 'required' in line else 'refuses the token'}"


def _reason(error: BaseException) -> str:
    """Returns the reason why Ray's client failed, in one line: the innermost cause for TLS, else its own message."""
    cause: BaseException | None = error
    while cause is not None:
        if "SSL" in type(cause).__name__ or "certificate" in str(cause).lower():
            match = re.search(r"certificate verify failed[^()]*|CERTIFICATE_[A-Z_]+|WRONG_VERSION_NUMBER", str(cause))
            return f"TLS failed ({match[0].strip(' :') if match else type(cause).__name__})"
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, ConnectionError):
        return "no job server answers"
    return f"the job server's answer is not understood ({one_line(error)})"

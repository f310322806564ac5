"""Follows a job to its end: asks for its log, then for the job, which may be lost or be another one meanwhile."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

from cluster.errors import ClusterError, Stopped
from cluster.run.job_server import JobServer, SubmittedJob

POLL_SECONDS = 1.0
CHARACTERS_PER_SECOND = 1 << 20  # at most, of a log, which is sent from its beginning each time
LOST_SECONDS = 15.0  # without a log of a job that is reported as running
PATIENCE_SECONDS = 120.0  # without an answer of the server, as long as requests to storage are retried


def follow(
    server: JobServer,
    job_id: str,
    write: Callable[[str], None],
    patience: float = PATIENCE_SECONDS,
    note: Callable[[str], None] = lambda message: None,
) -> SubmittedJob:
    """Passes on what a job prints, each text once and none of another job, and returns the job when it has ended.

    `write` takes pieces of the text, `note` a line that says that the server is away, for which it is asked for `patience`
    seconds.

    Raises:
        Stopped: the server is away, does not know the job any more, or knows another of its id; or the job's machine gives
            no log. The job may work on.
    """
    job: SubmittedJob | None = None
    shown = 0  # characters
    answered = heard = time.monotonic()  # when the server has last answered, and given the log of a job that runs
    is_away = False
    while True:
        ended, text = job is not None and job.ended, None
        with suppress(ClusterError):  # the log's machine may be gone
            text = server.log(job_id)
        try:
            job = _same_job(server, job_id, job)
        except ClusterError as error:
            if not is_away:
                note(f"the job server {server.address} does not answer; it is asked again for {patience:g} s")
            is_away = True
            if time.monotonic() - answered > patience:
                message = f"--address {server.address}: no answer for {patience:g} s; the job {job_id} may work on"
                raise Stopped("cluster-away", f"{message}; follow it again later, or see dmqr runs RUN") from error
        else:
            answered = time.monotonic()
            if text is not None or is_away or job.status != "RUNNING":
                heard = answered
            is_away = False
            if text is not None and len(text) > shown:
                write(text[shown:])
                shown = len(text)
            if ended:
                return job
            if answered - heard > LOST_SECONDS:
                message = f"--address {server.address}: the job {job_id} is reported as running, but its machine returns no log"
                raise Stopped("cluster-away", f"{message}: its driver may be gone; see dmqr runs RUN, and submit it again")
        if is_away or job is None or not job.ended:
            time.sleep(max(POLL_SECONDS, shown / CHARACTERS_PER_SECOND))


def _same_job(server: JobServer, job_id: str, known: SubmittedJob | None) -> SubmittedJob:
    where = f"--address {server.address}: the job {job_id}"
    try:
        job = server.job(job_id)
    except ClusterError as error:
        if "404" in str(error) and "does not exist" in str(error):
            gone = "is unknown: the head was restarted; submit it again"
            raise Stopped("cluster-away", f"{where} {gone}") from error
        raise
    if known is not None and job.started != known.started:
        raise Stopped(
            "cluster-away",
            f"{where} was replaced: the head was restarted and the job was submitted again; follow it with: dmqr logs {job_id}",
        )
    return job


class FollowedLog:
    """Writes a job's log, and what it prints after its last event, the closing table, on another stream."""

    def __init__(self, output: TextIO, log: TextIO, as_json: bool) -> None:
        """Begins a log.

        Its closing table and folder go to `output`, the events before to `log`: the lines of JSON that the driver
        writes (`ids.DRIVER_LOG`), or the message of each.
        """
        self._log, self._output, self._as_json = log, output, as_json
        self._line = ""  # the last one, as far as it has come
        self._finished = False
        self.last = ""
        """The last line of the closing table: the run's folder."""

    def write(self, text: str) -> None:
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            if self._finished:
                self.last = line or self.last
            event = {} if self._finished else _event(line)
            shown = line if self._as_json else event.get("message", line)
            print(shown, file=self._output if self._finished else self._log, flush=True)
            self._finished = self._finished or (event.get("event") == "end" and event.get("code") == 0)

    def close(self) -> None:
        """Writes a last line without an end."""
        if self._line:
            self.write("\n")


def _event(line: str) -> dict[str, Any]:
    with suppress(ValueError):
        event = json.loads(line) if '"event": ' in line else None
        return event if isinstance(event, dict) else {}
    return {}

"""Follows a job's log to its end, and asks for the job beside it: a log may hang, and its job be lost or another one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Callable
from typing import TextIO

from cluster.errors import ClusterError, Stopped
from cluster.run.job_server import JobServer, SubmittedJob

POLL_SECONDS = 1.0
ASK_SECONDS = 5.0  # for the job, while its log is silent or not
LOST_SECONDS = 15.0  # without a log of a job that is said to run
PATIENCE_SECONDS = 120.0  # without an answer of the server, as long as requests to storage are retried


def follow(
    server: JobServer,
    job_id: str,
    write: Callable[[str], None],
    patience: float = PATIENCE_SECONDS,
    note: Callable[[str], None] = lambda words: None,
) -> SubmittedJob:
    """Passes on what a job prints, from its beginning, and returns the job when it has ended.

    A connection that breaks is made again, and nothing is passed on twice, or of another job.

    Args:
        server: The job server.
        job_id: Of the job.
        write: Takes pieces of the text.
        patience: Seconds for which the server may be away.
        note: Takes a line that says that the server is away.

    Raises:
        Stopped: The server is away, does not know the job any more, or knows another of its id; or the job's machine gives
            no log. The job may work on.
    """
    following = _Following(server, job_id, write)
    away: float | None = None  # since when the server does not answer
    silent: float | None = None  # since when there is no log
    while True:
        began, failed = time.monotonic(), False
        try:
            asyncio.run(following.connect())
        except _passing_errors():
            failed = True
        now = time.monotonic()
        if following.heard > began or now - began > LOST_SECONDS:
            silent = None  # there was a connection
        try:
            job = following.job()
        except _passing_errors() as error:
            if away is None:
                away = now
                note(f"the job server {server.address} does not answer; it is asked again for {patience:g} s")
            if time.monotonic() - away > patience:
                words = f"--address {server.address}: no answer for {patience:g} s; the job {job_id} may work on"
                raise Stopped("cluster-away", f"{words}; follow it again later, or see dmqr runs RUN") from error
        else:
            away = None
            if job.ended:
                with contextlib.suppress(ClusterError):  # the log's machine may be gone
                    following.show_all(server.log(job_id))
                return job
            silent = (silent or now) if failed and job.status == "RUNNING" else None
            if silent is not None and time.monotonic() - silent > LOST_SECONDS:
                words = f"--address {server.address}: the job {job_id} is said to run, and its machine gives no log"
                raise Stopped("cluster-away", f"{words}: its driver may be gone; see dmqr runs RUN, and submit it again")
        time.sleep(POLL_SECONDS)


class _Following:
    """A job, and its log as far as it has been passed on."""

    def __init__(self, server: JobServer, job_id: str, write: Callable[[str], None]) -> None:
        self._server, self._job_id, self._write = server, job_id, write
        self._started: float | None = None
        self._shown = 0  # characters
        self.heard = 0.0  # when the latest text came

    def job(self) -> SubmittedJob:
        """Returns the job.

        Raises:
            Stopped: It is not known any more, or another.
        """
        where = f"--address {self._server.address}: the job {self._job_id}"
        try:
            job = self._server.job(self._job_id)
        except ClusterError as error:
            if "404" in str(error) and "does not exist" in str(error):
                gone = "is not known any more: the head was started anew; submit it again"
                raise Stopped("cluster-away", f"{where} {gone}") from error
            raise
        if self._started is None:
            self._started = job.started
        if job.started != self._started:
            raise Stopped(
                "cluster-away",
                f"{where} is another one now: the head was started anew, and it was submitted again; follow that one with: "
                f"dmqr logs {self._job_id}",
            )
        return job

    async def connect(self) -> None:
        """Passes on what is new, until the server ends the connection or the job has ended."""
        self.job()
        tail = asyncio.create_task(self._tail())
        try:
            while not (await asyncio.wait({tail}, timeout=ASK_SECONDS))[0]:
                if (await asyncio.to_thread(self.job)).ended:
                    await asyncio.wait({tail}, timeout=ASK_SECONDS)
                    break
            if tail.done():
                tail.result()
        finally:
            tail.cancel()

    async def _tail(self) -> None:
        seen, checked = 0, False
        async for text in self._server.tail(self._job_id):
            if not checked:  # a head that was started anew since `connect` has asked
                await asyncio.to_thread(self.job)
                checked = True
            self.heard = time.monotonic()
            new = text[max(0, self._shown - seen) :]
            seen += len(text)
            self._pass_on(new)

    def show_all(self, text: str) -> None:
        """Passes on the rest of the whole text."""
        self._pass_on(text[self._shown :])

    def _pass_on(self, text: str) -> None:
        if text:
            self._shown += len(text)
            self._write(text)


def _passing_errors() -> tuple[type[Exception], ...]:
    """Returns what is raised while a server is away, or behind a proxy that is."""
    import aiohttp

    return (ClusterError, OSError, RuntimeError, TimeoutError, aiohttp.ClientError)


class FollowedLog:
    """Writes a job's log on standard error, and what it prints after its last event, the closing table, on standard output."""

    def __init__(self, output: TextIO | None = None, log: TextIO | None = None) -> None:
        """Begins a log; its closing table and folder go to `output` (standard output), all before to `log` (standard error)."""
        self._log, self._output = log or sys.stderr, output or sys.stdout
        self._line = ""  # the last one, as far as it has come
        self._finished = False
        self.last = ""
        """The last line of the closing table: the run's folder."""

    def write(self, text: str) -> None:
        """Takes the next piece of the log."""
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._write(line)

    def close(self) -> None:
        """Writes a last line without an end."""
        if self._line:
            self._write(self._line)
        self._line = ""

    def _write(self, line: str) -> None:
        if self._finished:
            self.last = line or self.last
        print(line, file=self._output if self._finished else self._log, flush=True)
        self._finished = self._finished or _is_good_end(line)


def _is_good_end(line: str) -> bool:
    """Returns whether a line is the event with which the log of a finished run ends."""
    if '"event": "end"' not in line:
        return False
    try:
        event = json.loads(line)
    except ValueError:
        return False
    return isinstance(event, dict) and event.get("event") == "end" and event.get("code") == 0

"""A job that is brought to its end, with its log: what is said at its start and at its end, whatever that is."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from cluster.cause import cause
from cluster.errors import DmqrError, Stopped, UnavailableError
from cluster.run.shards import SUCCESS
from jobs.terminal.logs import event
from jobs.terminal.system_errors import system
from jobs.verbs.caller import Caller

if TYPE_CHECKING:
    from jobs.config.config import Config
    from jobs.job.prepare import Prepared
    from jobs.runs.folder import RunFolder
    from jobs.terminal.live_display import LiveDisplay
    from jobs.terminal.log_files import LogFiles


_BEFORE = "finished before: nothing was done again; give another --label for a new run of the same settings"


class Closed(Protocol):
    """A job that has come to its end."""

    @property
    def leading(self) -> str:
        """Returns its first measure; empty if nothing was measured."""

    @property
    def usd(self) -> float | None:
        """Returns what it has cost, in USD; None: not known."""


Value = TypeVar("Value", bound=Closed)


def drive(
    verb: str,
    prepared: Prepared,
    caller: Caller,
    job: Callable[[LiveDisplay, LogFiles], object],
    closed: Callable[[LiveDisplay, LogFiles], Value],
) -> Value:
    """Returns what `closed` returns after the job.

    Args:
        verb: what was called.
        prepared: the job.
        caller: who called it.
        job: does the work.
        closed: measures what came of it.

    Raises:
        Stopped: the job ended early, or failed by an error that nobody foresaw, which is its cause; of a job whose shards are
            all committed its `found` is what `closed` returns.
        DmqrError: it was refused.
    """
    told, where = caller.told, prepared.storage.root
    with caller.watched(verb, prepared.run_id) as (progress, log), told.watching(progress.state, prepared.run_id, where):
        event("start", f"run {where}", folder=where, config=prepared.config_file, pid=os.getpid())
        warn(prepared.warnings)
        try:
            before = prepared.storage.stat(SUCCESS) is not None
            warn([_BEFORE] * before)
            try:
                job(progress, log)
            except Stopped as stop:
                if stop.complete:
                    stop.found = closed(progress, log)
                raise
            found = closed(progress, log)
            _compact_store(prepared.config, progress)
        except DmqrError as error:
            event("end", str(error), logging.ERROR, code=error.exit_code)
            raise
        except Exception as error:  # the system's, a bug, or a failing worker: the trace is for the log, the line for a person
            event("failure", cause(error), logging.ERROR, error=error)
            stopped = _stopped(error, log, caller.again)
            event("end", str(stopped), logging.ERROR, code=stopped.exit_code)
            raise stopped from error
        if told.settings is not None and not before:
            told.finished(found.leading, found.usd)
        event("end", f"finished: {where}", code=0)
    return found


def _stopped(error: Exception, log: LogFiles, again: str) -> Stopped:
    """Returns what a job that failed is stopped by."""
    if isinstance(error, OSError):
        words = f"{system(error)}; what is committed stays; then go on with: {again}"
    else:
        words = f"{cause(error)}; what is committed stays; details in {log.where}; go on with: {again}"
    if isinstance(error, UnavailableError):
        return Stopped("storage-away", words, graceful=False)
    return Stopped("stopped-failure", words, graceful=False)


def _compact_store(config: Config, progress: LiveDisplay) -> None:
    """Compacts the store where many nights have put files of one range; a run is finished whether that succeeds or not."""
    from cluster.storage import open_storage
    from jobs.store.compact import compact_crowded

    folder = config.store_folder
    if folder is None:
        return
    try:
        done = compact_crowded(
            open_storage(folder), on_begin=lambda one: progress.phase(f"compacting the store: {one.space.kind}")
        )
    except (DmqrError, OSError) as error:
        event("warning", f"the store was not compacted: {cause(error)}; the next run tries again", logging.WARNING)
        return
    for one in done:
        words = f"store: {one.space.kind} {one.space.name[:12]}: {one.files[0]:,} files are {one.files[1]:,} now"
        event("compacted", words, files=one.files, size=one.size, rows=one.rows, dropped=one.dropped)


@contextmanager
def finished(folder: RunFolder, log: LogFiles, caller: Caller, what: str) -> Iterator[list[str]]:
    """Warns, if the body fails, that `what` failed of a finished run: the work is done all the same; yields what was said."""
    said: list[str] = []
    try:
        yield said
    except Exception as error:
        words = f"{what}: {cause(error)}; details in {log.where}"
        words += f"; try again with: {caller.program} report {shlex.quote(folder.storage.root)}"
        said.append(words)
        event("warning", words, logging.WARNING, error=error)


def warn(warnings: Iterable[str]) -> None:
    """Logs what works, and probably not as it is meant."""
    for words in warnings:
        event("warning", words, logging.WARNING)

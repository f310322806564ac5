"""What the verbs that work through a log have in common: the config, the log file, and what is said at the end."""

from __future__ import annotations

import argparse
import logging
import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cluster.cause import cause
from cluster.errors import DmqrError, Stopped
from cluster.run.own_job import submitting_command
from jobs.cli.command_line.arguments import program
from jobs.cli.refusal import say, system

if TYPE_CHECKING:
    from jobs.config.config import Config
    from jobs.job.prepare import Prepared
    from jobs.runs.folder import RunFolder
    from jobs.terminal.live_display import LiveDisplay
    from jobs.terminal.log_files import LogFiles

Value = TypeVar("Value")


def drive(
    verb: str,
    prepared: Prepared,
    command: str,
    job: Callable[[LiveDisplay, LogFiles], object],
    closed: Callable[[LiveDisplay, LogFiles], Value],
) -> Value | int:
    """Returns what `closed` returns after the job, or the exit code of a job that failed or was stopped.

    Args:
        verb: what was called.
        prepared: the job.
        command: that goes on with it.
        job: does the work.
        closed: measures what came of it.

    Raises:
        DmqrError: the job was refused.
    """
    from jobs.terminal.log_files import logged
    from jobs.terminal.logs import event

    failure: DmqrError | str | None = None
    found: Value | None = None
    code = 1
    with logged(verb, prepared.run_id) as (progress, log):
        event(
            "start", f"run {prepared.storage.root}", folder=prepared.storage.root, config=prepared.config_file, pid=os.getpid()
        )
        warn(prepared.warnings)
        try:
            job(progress, log)
            found = closed(progress, log)
            _compact_store(prepared.config, progress)
        except Stopped as error:
            failure, code = error, error.exit_code
        except DmqrError as error:
            event("end", str(error), logging.ERROR, code=error.exit_code)
            raise
        except OSError as error:
            event("failure", cause(error), logging.ERROR, error=error)
            failure = f"{system(error)}; what is committed stays; then go on with: {command}"
        except Exception as error:  # a bug, or a failing worker: the trace is for the log, the line for the person
            event("failure", cause(error), logging.ERROR, error=error)
            failure = f"{cause(error)}; what is committed stays; details in {log.where}; go on with: {command}"
        if failure is None:
            event("end", f"finished: {prepared.storage.root}", code=0)
        else:
            event("end", str(failure), logging.ERROR, code=code)
    if failure is not None:
        return say(verb, failure, code)
    assert found is not None
    return found


def _compact_store(config: Config, progress: LiveDisplay) -> None:
    """Compacts the store where many nights have put files of one range; a run is finished whether that succeeds or not."""
    from cluster.storage import open_storage
    from jobs.store.compact import compact_crowded
    from jobs.terminal.logs import event

    folder = config.store_folder
    if folder is None:
        return
    try:
        done = compact_crowded(
            open_storage(folder),
            on_begin=lambda one: progress.phase(f"compacting the store: {one.space.kind}"),
        )
    except (DmqrError, OSError) as error:
        again_with = f"try again with: {program()} store compact {shlex.quote(folder)}"
        event("warning", f"the store was not compacted: {cause(error)}; {again_with}", logging.WARNING)
        return
    for one in done:
        words = f"store: {one.space.kind} {one.space.name[:12]}: {one.files[0]:,} files are {one.files[1]:,} now"
        event("compacted", words, files=one.files, size=one.size, rows=one.rows, dropped=one.dropped)


@contextmanager
def finished(folder: RunFolder, log: LogFiles, what: str) -> Iterator[list[str]]:
    """Warns, if the body fails, that `what` failed of a finished run: the work is done all the same; yields what was said."""
    from jobs.terminal.logs import event

    said: list[str] = []
    try:
        yield said
    except Exception as error:
        words = f"{what}: {cause(error)}; details in {log.where}"
        words += f"; try again with: {program()} report {shlex.quote(folder.storage.root)}"
        said.append(words)
        event("warning", words, logging.WARNING, error=error)


def warn(warnings: Iterable[str]) -> None:
    """Logs what works, and probably not as it is meant."""
    from jobs.terminal.logs import event

    for words in warnings:
        event("warning", words, logging.WARNING)


def load(options: argparse.Namespace) -> Config:
    """Returns the config that the arguments of a verb name.

    Raises:
        ConfigError: it is invalid.
    """
    from jobs.config.load import load_config

    return load_config(options.config, options.set, options.date, getattr(options, "label", None))


def again(options: argparse.Namespace, verb: str = "run") -> str:
    """Returns the command that goes on with this run; tomorrow, too, if `{date}` is in the config.

    A submitted job goes on when it is submitted again.
    """
    return submitting_command() or shlex.join(command_words(options, verb))


def command_words(options: argparse.Namespace, verb: str, *first: str) -> list[str]:
    """Returns the words that call a verb again with these options, `first` behind the config; also tomorrow, with `{date}`."""
    words = [*shlex.split(program()), verb, options.config, *first]
    words += [word for setting in options.set for word in ("--set", setting)]
    dated = "{date}" in Path(options.config).read_text(encoding="utf-8") + "".join(options.set)
    if options.date or dated:
        from jobs.config.load import yesterday

        words += ["--date", options.date or yesterday()]
    return words + (["--label", options.label] if options.label else [])

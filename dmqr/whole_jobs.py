"""Runs and ablations that are brought to their end, with a log of their start and their end, whatever that is."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from cluster.errors import DmqrError, LogError, Stopped, UnavailableError
from dmqr.face import OnProgress, caller

if TYPE_CHECKING:
    from dmqr.results import Ablation, Run, Stored
    from jobs.config.config import Config
    from jobs.config.given import ConfigSource
    from jobs.job.prepare import Prepared
    from jobs.notify import Notifications
    from jobs.runs.folder import RunFolder
    from jobs.terminal.live_display import LiveDisplay
    from jobs.terminal.log_files import LogFiles

Settings = Mapping[str, Any]
_BEFORE = "finished before: nothing was done again; give another --label for a new run of the same settings"


Value = TypeVar("Value", bound="Stored")


def configured(
    config: ConfigSource, settings: Settings, date: str | None = None, label: str | None = None
) -> tuple[Config, str]:
    """Returns a checked config and the path of its file."""
    from jobs.config.given import file_of, given_config

    return given_config(config, settings, date, label), file_of(config)


class WholeJob:
    """A run or an ablation, from its config to its pages."""

    def __init__(self, verb: str, config: ConfigSource, settings: Settings, progress: OnProgress | None, **more: Any) -> None:
        """Reads the config; `more` holds the other arguments of the call: date, label, measures, retry."""
        self.verb, self.face = verb, caller(progress)
        self.config, self.file = configured(config, settings, more["date"], more["label"])
        if more["measures"] is not None:
            from jobs.job.measure_checks import check_measures

            check_measures(more["measures"])
        more["date"] = more["date"] or self.config.log.date
        self.again = self.face.again(verb, config, settings, more)
        self.before = False
        """Returns whether the job was finished before."""
        self._told: Notifications

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Tells the recipients of the config how the body ends."""
        from jobs.notify import Notifications

        ends = self.face.ending() if self.config.notify else nullcontext()
        with ends, Notifications(self.config.notify, self.verb, self.config.name).telling() as self._told:
            yield

    def ready(self, configs: Sequence[Config]) -> None:
        """Builds the missing indexes of configs that name their corpora."""
        from jobs.index.missing import known_corpora, ready_indexes

        if known_corpora(configs):
            with self.face.job_log(self.verb) as (progress, _):
                ready_indexes(configs, progress)

    def brought_to_its_end(
        self,
        prepared: Prepared,
        work: Callable[[LiveDisplay, LogFiles], object],
        closed: Callable[[LiveDisplay, LogFiles], Value],
    ) -> Value:
        """Returns what `closed` returns after `work` is done.

        Raises:
            Stopped: the job ended early, or failed by an error that nobody foresaw, which is its cause; of a job whose shards
                are all committed its `found` is what `closed` returns.
            DmqrError: it was refused.
        """
        from cluster.cause import cause
        from cluster.run.shards import SUCCESS
        from jobs.terminal.logs import event

        told, where = self._told, prepared.storage.root
        with (
            self.face.job_log(self.verb, prepared.run_id) as (progress, log),
            told.watching(progress.state, prepared.run_id, where),
        ):
            event("start", f"run {where}", folder=where, config=prepared.config_file, pid=os.getpid())
            warn(prepared.warnings)
            try:
                self.before = prepared.storage.stat(SUCCESS) is not None
                warn([_BEFORE] * self.before)
                try:
                    work(progress, log)
                except Stopped as stop:
                    if stop.complete:
                        stop.found = closed(progress, log)
                    raise
                found = closed(progress, log)
                _compact_store(prepared.config, progress)
            except DmqrError as error:
                event("end", str(error), logging.ERROR, code=error.exit_code)
                raise
            except Exception as error:  # the system's, a bug, a failing worker: the trace is for the log, the line for a person
                event("failure", cause(error), logging.ERROR, error=error)
                stopped = _stopped(error, log, self.again)
                event("end", str(stopped), logging.ERROR, code=stopped.exit_code)
                raise stopped from error
            if told.settings is not None and not self.before:
                told.finished(found.leading, found.usd)
            event("end", f"finished: {where}", code=0)
        return found

    @contextmanager
    def finished(self, folder: RunFolder, log: LogFiles, what: str) -> Iterator[list[str]]:
        """Warns, if the body fails, that `what` failed of a finished run, whose work is done; yields the list of warnings."""
        from cluster.cause import cause
        from jobs.terminal.logs import event

        warnings: list[str] = []
        try:
            yield warnings
        except Exception as error:
            words = f"{what}: {cause(error)}; details in {log.where}"
            words += f"; try again with: {self.face.program} report {shlex.quote(folder.storage.root)}"
            warnings.append(words)
            event("warning", words, logging.WARNING, error=error)


def run(
    config: ConfigSource,
    /,
    *,
    date: str | None = None,
    label: str | None = None,
    measures: Sequence[str] | None = None,
    retry: str | None = None,
    progress: OnProgress | None = None,
    **settings: Any,
) -> Run:
    """Does what is missing of a job, measures it, writes its page.

    A killed run goes on, a finished one is shown again.

    Args:
        config: a YAML file, e.g. configs/quickstart.yaml; in Python also a mapping, or a `Config`
        settings: override one key of the config; in Python a keyword for each, like fuse__k=10
        date: what {date} stands for (default: yesterday, UTC)
        label: stands in the name of the run's folder (default: the log's date); another label is another run
        retry: ask the queries again whose errors have this reason (all: any), as a run labelled retry-1, retry-2, ...;
            everything else comes from the store
        progress: is called about once a second, in this thread, with what `progress.json` holds; what it raises ends the run.

    Raises:
        Stopped: the run ended early; what is committed stays, and the same call goes on.
        DmqrError: it was refused, and nothing was done.

    Example:
        dmqr run configs/quickstart.yaml
    """
    job = WholeJob("run", config, settings, progress, date=date, label=label, measures=measures, retry=retry)

    from dmqr.results import Run
    from dmqr.truth import measured_by
    from jobs.job.prepare import prepare
    from jobs.measure.answers import gold_answers
    from jobs.measure.judged import judged_relevance
    from jobs.pages.measured import UNMEASURED, measured_run
    from jobs.pages.run import write_report
    from jobs.run.job import run_of
    from jobs.run.run import run as run_job
    from jobs.runs.folder import REPORT, open_run
    from jobs.runs.retry import prepare_retry

    with job.telling():
        try:
            prepared = prepare(job.config, job.file, job.ready)
        except LogError as error:
            if error.code == "log-empty" and job.config.log.allow_empty:
                error.line, error.exit_code = "the log is empty: there is nothing to do (log.allow_empty)", 0
            raise
        prepared = prepared if retry is None else prepare_retry(prepared, retry)

        def work(display: LiveDisplay, log: LogFiles) -> None:
            whole = run_of(prepared)
            warn(whole.shallow)
            run_job(whole, display, job.again, log)

        def closed(display: LiveDisplay, log: LogFiles) -> Run:
            display.phase("evaluating and writing the report")
            folder = open_run(prepared.storage.root)
            measured = UNMEASURED
            with job.finished(folder, log, "the run is finished, its evaluation failed") as failures:
                judgements = prepared.judgements or judged_relevance(folder)
                by = measured_by(prepared.config.evaluate, judgements, measures)
                measured = measured_run(folder, judgements, gold_answers(folder.config.evaluate), by.measures)
            warn(measured.warnings)
            if not job.before or folder.storage.get(REPORT) is None:  # one that is there may be of a moment before the end
                with job.finished(folder, log, "the report was not written"):
                    write_report(folder, prepared.prices, measured)
            found = Run(folder, prepared.warnings, measured, failures)
            found.prices = prepared.prices
            return found

        return job.brought_to_its_end(prepared, work, closed)


def ablate(
    config: ConfigSource,
    /,
    *,
    date: str | None = None,
    label: str | None = None,
    measures: Sequence[str] | None = None,
    progress: OnProgress | None = None,
    **settings: Any,
) -> Ablation:
    """Compares variants of a config (arms), sharing their work.

    What arms share is gathered once; each is answered, and the differences are tested.

    Example:
        dmqr ablate configs/ablate.yaml
    """
    job = WholeJob("ablate", config, settings, progress, date=date, label=label, measures=measures)

    from dmqr.results import Ablation
    from dmqr.truth import measured_by
    from jobs.measure.answers import gold_answers
    from jobs.measure.judged import judged_relevance
    from jobs.pages.closing import compared, write_pages
    from jobs.run.ablation import prepare_ablation
    from jobs.run.run import run as run_job
    from jobs.runs.folder import open_run

    with job.telling():
        ablation = prepare_ablation(job.config, job.file, job.ready)
        prepared = ablation.prepared

        def closed(display: LiveDisplay, log: LogFiles) -> Ablation:
            display.phase("comparing the arms")
            folder = open_run(prepared.storage.root)
            by, prices, found = prepared.config.evaluate, prepared.prices, None
            with job.finished(folder, log, "the ablation is finished, the comparison of its arms failed"):
                judgements = prepared.judgements or judged_relevance(folder)
                found = compared(folder, judgements, measured_by(by, judgements, measures), prices, gold_answers(by))
            if found is None:  # at least what the arms have made and cost
                found = compared(folder, None, by, prices, by_judge=False)
            display.phase("writing the report")
            with job.finished(folder, log, "the report was not written"):
                write_pages(found, texts=prepared.config.report.texts)
            return Ablation(folder, found, prepared.warnings)

        return job.brought_to_its_end(prepared, lambda display, log: run_job(ablation, display, job.again, log), closed)


def open(folder: str | os.PathLike[str]) -> Run | Ablation:
    """Returns a run, or an ablation, that lies in a folder, finished or not.

    Args:
        folder: the run's, here or on S3, or `<output>/<name>` for its newest finished run.

    Raises:
        ConfigError: there is none, or it is damaged.
    """
    from dmqr.results import Ablation, Run
    from jobs.runs.folder import open_run

    found = open_run(os.fspath(folder))
    return Ablation(found) if found.is_ablation else Run(found)


def warn(warnings: Iterable[str]) -> None:
    """Logs warnings."""
    from jobs.terminal.logs import event

    for words in warnings:
        event("warning", words, logging.WARNING)


def _stopped(error: Exception, log: LogFiles, again: str) -> Stopped:
    """Returns what a job that failed is stopped by."""
    from cluster.cause import cause
    from jobs.terminal.system_errors import system

    if isinstance(error, OSError):
        words = f"{system(error)}; what is committed stays; then go on with: {again}"
    else:
        words = f"{cause(error)}; what is committed stays; details in {log.where}; go on with: {again}"
    if isinstance(error, UnavailableError):
        return Stopped("storage-away", words, graceful=False)
    return Stopped("stopped-failure", words, graceful=False)


def _compact_store(config: Config, progress: LiveDisplay) -> None:
    """Compacts the store where many nights have put files of one range; a run is finished whether that succeeds or not."""
    from cluster.cause import cause
    from cluster.storage import open_storage
    from jobs.store.compact import compact_crowded
    from jobs.terminal.logs import event

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

"""Runs and ablations that are brought to their end, with a log of their start and their end, whatever that is."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from cluster.errors import DmqrError, LogError, Stopped, UnavailableError
from dmqr.face import OnProgress, caller
from dmqr.quality import Truth
from dmqr.results import Ablation, Run, Stored

if TYPE_CHECKING:
    from jobs.config.config import Config
    from jobs.config.load import ConfigSource
    from jobs.job.prepare import Prepared, Ready
    from jobs.run.job import Job
    from jobs.runs.folder import RunFolder
    from jobs.terminal.live_display import LiveDisplay

Settings = Mapping[str, Any]
Value = TypeVar("Value", bound=Stored)
_BEFORE = "already finished, so nothing was done; give another --label for a new run of the same settings"


def configured(
    config: ConfigSource, settings: Settings, date: str | None = None, label: str | None = None
) -> tuple[Config, str]:
    """Returns a checked config and the path of its file."""
    from jobs.config.load import given_config

    return given_config(config, settings, date, label)


class WholeJob:
    """A run or an ablation, from its config to its pages."""

    def __init__(
        self, verb: str, config: ConfigSource, settings: Settings, progress: OnProgress | None,
        date: str | None, label: str | None, measures: Sequence[str] | None,
    ) -> None:  # fmt: skip
        from jobs.job.measure_checks import check_measures

        self.verb, self.face = verb, caller(progress)
        self.config, self.file = configured(config, settings, date, label)
        check_measures(measures or ())
        self.again = self.face.again(config, settings)
        self.before = False
        """True if the job was finished before."""
        self.failures: list[str] = []
        """Failures after the end of the job."""

    def bring_to_end(
        self, check: Callable[[Config, str, Ready], Job], close: Callable[[Prepared, RunFolder, LiveDisplay], Value]
    ) -> Value:
        """Checks and runs the job, and returns what `close` makes of its folder; notifies the recipients of the config.

        Raises:
            Stopped: the job ended early, or failed by an error that nobody foresaw, which is its cause; of a job whose shards
                are all committed its `result` is what `close` returns.
            DmqrError: it was refused.
        """
        from cluster.cause import cause
        from cluster.run.shards import SUCCESS
        from jobs.notify import Notifications
        from jobs.run.run import run as run_job
        from jobs.runs.folder import open_run
        from jobs.terminal.logs import event, system

        with Notifications(self.config.notify, self.verb, self.config.name).telling() as notifications:
            job = check(self.config, self.file, self._ready)
            prepared, where = job.prepared, job.prepared.storage.root
            with (
                self.face.job_log(self.verb, prepared.run_id) as (display, log),
                notifications.watching(display.state, prepared.run_id, where),
            ):
                self.log = log
                event("start", f"run {where}", folder=where, config=prepared.config_file, pid=os.getpid())
                warn(*prepared.warnings)
                try:
                    self.before = prepared.storage.stat(SUCCESS) is not None
                    warn(*[_BEFORE] * self.before)
                    try:
                        run_job(job, display, self.again, log)
                    except Stopped as stop:
                        if stop.complete:
                            stop.result = close(prepared, open_run(where), display)
                        raise
                    result = close(prepared, open_run(where), display)
                    _compact_store(prepared.config, display)
                except DmqrError as error:
                    event("end", str(error), logging.ERROR, code=error.exit_code)
                    raise
                except Exception as error:  # the system's, a bug, a failing worker: the trace is for the log
                    event("failure", cause(error), logging.ERROR, error=error)
                    line = f"{cause(error)}; committed shards are kept; details in {log.where}; resume with: {self.again}"
                    if isinstance(error, OSError):
                        line = f"{system(error)}; committed shards are kept; then resume with: {self.again}"
                    code = "storage-away" if isinstance(error, UnavailableError) else "stopped-failure"
                    stopped = Stopped(code, line, graceful=False)
                    event("end", str(stopped), logging.ERROR, code=stopped.exit_code)
                    raise stopped from error
                if self.config.notify and not self.before:
                    notifications.finished(result.leading, result.usd)
                event("end", f"finished: {where}", code=0)
        return result

    def _ready(self, configs: Sequence[Config]) -> None:
        """Builds the missing indexes of configs that name their corpora."""
        from jobs.index.index import known_corpora, ready_indexes

        if known_corpora(configs):
            with self.face.job_log(self.verb) as (display, _):
                ready_indexes(configs, display)

    @contextmanager
    def tolerating(self, folder: RunFolder, what: str) -> Iterator[None]:
        """Warns, if the body fails, that `what` failed of a finished run, whose work is done."""
        from cluster.cause import cause
        from jobs.terminal.logs import event

        try:
            yield
        except Exception as error:
            line = f"{what}: {cause(error)}; details in {self.log.where}"
            line += f"; try again with: {self.face.program} report {shlex.quote(folder.storage.root)}"
            self.failures.append(line)
            event("warning", line, logging.WARNING, error=error)


def run(
    config: ConfigSource,
    /,
    *,
    date: str | None = None,
    label: str | None = None,
    measures: Sequence[str] | None = None,
    retry: str | None = None,
    csv: str | None = None,
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
        csv: write the results, a row per query and rank, with scores and the beginnings of documents; .csv or .parquet
        progress: is called about once a second, in this thread, with what `progress.json` holds; what it raises ends the run.

    Raises:
        Stopped: the run ended early; committed shards are kept, and the same call goes on.
        DmqrError: it was refused, and nothing was done.

    Example:
        dmqr run configs/quickstart.yaml
    """
    from jobs.job.prepare import prepare
    from jobs.measure.exports import check_table, write_tables
    from jobs.pages.comparison import UNMEASURED
    from jobs.pages.run import write_report
    from jobs.run.job import run_of
    from jobs.runs.documents import RESULTS, results_with_texts
    from jobs.runs.folder import REPORT
    from jobs.runs.retry import prepare_retry

    if csv:
        check_table(csv, "csv")
    job = WholeJob("run", config, settings, progress, date, label, measures)

    def check(config: Config, file: str, ready: Ready) -> Job:
        try:
            prepared = prepare(config, file, ready)
        except LogError as error:
            if error.code == "log-empty" and config.log.allow_empty:
                error.line, error.exit_code = "the log is empty: there is nothing to do (log.allow_empty)", 0
            raise
        return run_of(prepared if retry is None else prepare_retry(prepared, retry))

    def close(prepared: Prepared, folder: RunFolder, display: LiveDisplay) -> Run:
        display.phase("evaluating and writing the report")
        measured = UNMEASURED
        with job.tolerating(folder, "the run is finished, its evaluation failed"):
            truth = Truth(folder, note=warn, settings=prepared.config.evaluate)
            measured = truth.measured(truth.settings(measures).measures, must_match=False)
        warn(*measured.warnings)
        if not job.before or folder.storage.get(REPORT) is None:  # an existing one may date from before the end
            with job.tolerating(folder, "the report was not written"):
                write_report(folder, prepared.prices, measured, texts=prepared.config.report.texts)
        if csv:
            missing: dict[str, None] = {}
            write_tables(csv, RESULTS, results_with_texts(folder, missing.setdefault))
            warn(*(f"{csv} has documents without their texts: {reason}" for reason in missing))
        result = Run(folder, measured, prepared.warnings, job.failures)
        result.prices = prepared.prices  # a finished run may name a config that lies elsewhere now
        return result

    return job.bring_to_end(check, close)


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
    from jobs.pages.ablation import compared, write_pages
    from jobs.run.ablation import prepare_ablation

    job = WholeJob("ablate", config, settings, progress, date, label, measures)

    def close(prepared: Prepared, folder: RunFolder, display: LiveDisplay) -> Ablation:
        display.phase("comparing the arms")
        truth, prices, arms = Truth(folder, note=warn, settings=prepared.config.evaluate), prepared.prices, None
        with job.tolerating(folder, "the ablation is finished, the comparison of its arms failed"):
            arms = compared(folder, truth.judgements, truth.settings(measures), prices, truth.gold)
        if arms is None:  # at least what the arms have made and cost
            arms = compared(folder, None, None, prices)
        display.phase("writing the report")
        with job.tolerating(folder, "the report was not written"):
            write_pages(arms, texts=prepared.config.report.texts)
        return Ablation(folder, arms, prepared.warnings)

    return job.bring_to_end(prepare_ablation, close)


def open(folder: str | os.PathLike[str]) -> Run | Ablation:
    """Returns a run, or an ablation, that lies in a folder, finished or not.

    Args:
        folder: the run's, here or on S3, or `<output>/<name>` for its newest finished run.

    Raises:
        ConfigError: there is none, or it is damaged.
    """
    from jobs.runs.folder import open_run

    run_folder = open_run(os.fspath(folder))
    return Ablation(run_folder) if run_folder.is_ablation else Run(run_folder)


def warn(*warnings: str) -> None:
    """Logs warnings."""
    from jobs.terminal.logs import event

    for warning in warnings:
        event("warning", warning, logging.WARNING)


def _compact_store(config: Config, display: LiveDisplay) -> None:
    """Compacts the store where many nights have put files of one range; a run is finished whether that succeeds or not."""
    from cluster.cause import cause
    from cluster.storage import open_storage
    from jobs.store.compact import compact_crowded
    from jobs.terminal.logs import event

    if config.store_folder is None:
        return
    display.phase("compacting the store")
    try:
        for done in compact_crowded(open_storage(config.store_folder)):
            line = f"store: {done.space.kind} {done.space.name[:12]}: {done.files[0]:,} files are {done.files[1]:,} now"
            event("compacted", line, files=done.files, size=done.size, rows=done.rows, dropped=done.dropped)
    except (DmqrError, OSError) as error:
        warn(f"the store was not compacted: {cause(error)}; the next run tries again")

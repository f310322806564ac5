"""A run that is brought to its end, measured and reported."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs.tables import ORIGINAL
from jobs.terminal.formats import figure
from jobs.verbs.caller import Caller
from jobs.verbs.drive import drive, finished, warn
from jobs.verbs.inputs import measured_by

if TYPE_CHECKING:
    from rich.console import RenderableType

    from cluster.costs import Prices
    from jobs.job.prepare import Prepared
    from jobs.measure.answers.quality import AnswerQuality
    from jobs.measure.evaluate.evaluate import Evaluation
    from jobs.runs.folder import RunFolder
    from jobs.terminal.live_display import LiveDisplay
    from jobs.terminal.log_files import LogFiles


@dataclass(frozen=True)
class WholeRun:
    """A run with what its closing table says."""

    folder: RunFolder
    prices: Prices | None
    evaluation: Evaluation | None = None
    said: Sequence[str] = ()
    """What failed after its end."""
    answers: Sequence[AnswerQuality] = ()

    @property
    def usd(self) -> float | None:
        """Returns what it has cost, in USD; None without prices."""
        return None if self.prices is None else self.folder.bill(self.prices).usd

    @property
    def leading(self) -> str:
        """Returns its first measure, beside the original alone; empty if it was not measured."""
        found = self.evaluation
        if found is None or found.warning is not None:
            return ""
        measure = found.measures[0]
        alone = "" if found.original is None else f", of {ORIGINAL} {figure(found.original[measure])}"
        return f"{measure} of run {figure(found.results[measure])}{alone}"

    def values(self) -> dict[str, Any]:
        """Returns the closing table as JSON-able values."""
        from jobs.pages.summary import closing_values

        return closing_values(self.folder, self.prices, self.evaluation, self.said, self.answers)

    def page(self) -> RenderableType:
        """Returns the closing table."""
        from jobs.pages.summary import closing_table

        return closing_table(self.folder, self.prices, self.evaluation, self.said, self.answers)


def whole_run(prepared: Prepared, caller: Caller, measures: Sequence[str] | None = None) -> WholeRun:
    """Brings a checked run to its end, measures it and writes its report.

    Args:
        prepared: the run.
        caller: who called it.
        measures: to measure by; None: those of its config.

    Raises:
        Stopped: it ended early.
        DmqrError: it was refused.
    """
    from cluster.run.shards import SUCCESS
    from jobs.measure.answers.frame import gold_answers
    from jobs.measure.answers.quality import measured_answers
    from jobs.measure.judged.relevance import judged_relevance
    from jobs.pages.report.judged_queries import measured
    from jobs.run.job import run_of
    from jobs.run.run import run
    from jobs.runs.folder import REPORT, open_run
    from jobs.terminal.logs import event
    from jobs.verbs.report import write_report

    before = prepared.storage.stat(SUCCESS) is not None

    def closed(progress: LiveDisplay, log: LogFiles) -> WholeRun:
        progress.phase("evaluating and writing the report")
        folder = open_run(prepared.storage.root)
        evaluation, judged = None, None
        answers: list[AnswerQuality] = []
        with finished(folder, log, caller, "the run is finished, its evaluation failed") as said:
            judgements = prepared.judgements or judged_relevance(folder)
            settings = measured_by(prepared.config.evaluate, judgements, measures)
            evaluation, judged = measured(folder, judgements, settings.measures)
            answers = measured_answers(folder, gold_answers(folder.config.evaluate))
        for one in (evaluation, *answers):
            if one is not None and one.warning is not None:
                event("warning", one.warning, logging.WARNING)
        if not before or folder.storage.get(REPORT) is None:  # one that is there may be of a moment before the end
            with finished(folder, log, caller, "the report was not written"):
                write_report(folder, prepared.prices, evaluation, judged, answers=answers)
        return WholeRun(folder, prepared.prices, evaluation, said, answers)

    def work(progress: LiveDisplay, log: LogFiles) -> None:
        job = run_of(prepared)
        warn(job.shallow)
        run(job, progress, caller.again, log)

    return drive("run", prepared, caller, work, closed)

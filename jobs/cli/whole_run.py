"""A run that is brought to its end, measured and reported: of a log (`run`), or of another run's queries (`replay`)."""

from __future__ import annotations

import argparse
import logging
from typing import TYPE_CHECKING

from jobs.cli.log_verbs import drive, finished
from jobs.cli.printing import show

if TYPE_CHECKING:
    from jobs.job.prepare import Prepared
    from jobs.measure.answers.quality import AnswerQuality
    from jobs.measure.evaluate.evaluate import Evaluation
    from jobs.runs.folder import RunFolder
    from jobs.terminal.live_display import LiveDisplay
    from jobs.terminal.log_files import LogFiles


def whole_run(options: argparse.Namespace, prepared: Prepared, command: str) -> int:
    """Brings a checked run to its end, measures it and writes its report; returns the exit code.

    `command` goes on with it.
    """
    from cluster.run.shards import SUCCESS
    from jobs.cli.report import write_report
    from jobs.measure.answers.frame import gold_answers
    from jobs.measure.answers.quality import measured_answers
    from jobs.measure.judged.relevance import judged_relevance
    from jobs.pages.report.judged_queries import measured
    from jobs.pages.summary import closing_table, closing_values
    from jobs.run.job import run_of
    from jobs.run.run import run
    from jobs.runs.folder import REPORT, open_run
    from jobs.terminal.logs import event

    before = prepared.storage.stat(SUCCESS) is not None

    def closed(progress: LiveDisplay, log: LogFiles) -> tuple[RunFolder, Evaluation | None, list[str], list[AnswerQuality]]:
        progress.phase("evaluating and writing the report")
        folder = open_run(prepared.storage.root)
        evaluation, judged = None, None
        answers: list[AnswerQuality] = []
        with finished(folder, log, "the run is finished, its evaluation failed") as said:
            evaluation, judged = measured(folder, prepared.judgements or judged_relevance(folder))
            answers = measured_answers(folder, gold_answers(folder.config.evaluate))
        for one in (evaluation, *answers):
            if one is not None and one.warning is not None:
                event("warning", one.warning, logging.WARNING)
        if not before or folder.storage.get(REPORT) is None:  # one that is there may be of a moment before the end
            with finished(folder, log, "the report was not written"):
                write_report(folder, prepared.prices, evaluation, judged, answers=answers)
        return folder, evaluation, said, answers

    found = drive(options.verb, prepared, command, lambda progress, log: run(run_of(prepared), progress, command, log), closed)
    if isinstance(found, int):
        return found
    folder, evaluation, said, answers = found
    known = folder, prepared.prices, evaluation, said, answers
    return show(options, lambda: closing_values(*known), lambda: closing_table(*known), folder.storage.root)

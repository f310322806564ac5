"""An ablation that is brought to its end: its arms are compared, and its page is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs.verbs.caller import Caller
from jobs.verbs.drive import drive, finished
from jobs.verbs.inputs import measured_by

if TYPE_CHECKING:
    from jobs.pages.closing import ComparedArms
    from jobs.run.job import Job
    from jobs.terminal.live_display import LiveDisplay
    from jobs.terminal.log_files import LogFiles


def whole_ablation(ablation: Job, caller: Caller, measures: Sequence[str] | None = None) -> ComparedArms:
    """Gathers what the arms of a checked ablation need, answers each, compares them and writes the report.

    Args:
        ablation: checked.
        caller: who called it.
        measures: to compare the arms by; None: those of its config. They change nothing of what is stored.

    Raises:
        Stopped: it ended early.
        DmqrError: it was refused.
    """
    from jobs.measure.answers.frame import gold_answers
    from jobs.measure.judged.relevance import judged_relevance
    from jobs.pages.closing import compared, write_pages
    from jobs.run.run import run
    from jobs.runs.folder import open_run

    prepared = ablation.prepared

    def closed(progress: LiveDisplay, log: LogFiles) -> ComparedArms:
        progress.phase("comparing the arms")
        folder = open_run(prepared.storage.root)
        settings, prices, found = prepared.config.evaluate, prepared.prices, None
        with finished(folder, log, caller, "the ablation is finished, the comparison of its arms failed"):
            judgements = prepared.judgements or judged_relevance(folder)
            found = compared(folder, judgements, measured_by(settings, judgements, measures), prices, gold_answers(settings))
        if found is None:  # at least what the arms have made and cost
            found = compared(folder, None, settings, prices, by_judge=False)
        progress.phase("writing the report")
        with finished(folder, log, caller, "the report was not written"):
            shown = prepared.config.report
            write_pages(found, texts=shown.texts)
        return found

    return drive("ablate", prepared, caller, lambda progress, log: run(ablation, progress, caller.again, log), closed)

"""The verb ablate."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from jobs.cli.driving import again, drive, finished, load
from jobs.cli.printing import show

if TYPE_CHECKING:
    from jobs.terminal.live_display import LiveDisplay
    from jobs.terminal.log_files import LogFiles


def ablate(options: argparse.Namespace) -> int:
    """Gathers what the arms of a config need, answers each, compares them and writes the report."""
    from jobs.pages.closing import ComparedArms, closing_page, closing_values, compared, write_pages
    from jobs.run.ablation import prepare_ablation
    from jobs.run.run import run
    from jobs.runs.folder import open_run

    ablation = prepare_ablation(load(options), options.config)
    prepared, command = ablation.prepared, again(options, "ablate")

    def closed(progress: LiveDisplay, log: LogFiles) -> ComparedArms:
        progress.phase("comparing the arms")
        folder = open_run(prepared.storage.root)
        settings, prices, found = prepared.config.evaluate, prepared.prices, None
        with finished(folder, log, "the ablation is finished, the comparison of its arms failed"):
            found = compared(folder, prepared.judgements, settings, prices)
        if found is None:  # at least what the arms have made and cost
            found = compared(folder, None, settings, prices)
        progress.phase("writing the report")
        with finished(folder, log, "the report was not written"):
            write_pages(found, **prepared.config.report.model_dump())
        return found

    found = drive("ablate", prepared, command, lambda progress, log: run(ablation, progress, command, log), closed)
    if isinstance(found, int):
        return found
    return show(options, lambda: closing_values(found), lambda: closing_page(found), prepared.storage.root)

"""What the verbs `evaluate` and `report` do of an ablation over sets; other verbs are given the folder of one set."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cluster.errors import ConfigError
from jobs.cli.evaluate import write_sheet
from jobs.cli.inputs import ground_truth, how_compared
from jobs.cli.printing import show

if TYPE_CHECKING:
    from jobs.runs.sets.folder import SetsFolder

_OF_ONE = (
    "answers", "calibration", "trec_rag", "ragas", "rows", "nuggetizer", "umbrela", "arm", "prices", "samples", "all_requests",
)  # fmt: skip


def evaluate_sets(options: argparse.Namespace, folder: SetsFolder) -> int:
    """Compares the arms on each set and over all, and writes the files for other tools."""
    from jobs.measure.export.set_tables import write_set_rows
    from jobs.verbs.evaluate_sets import measured_sets

    _check(options, folder)
    if options.no_header and not options.trec:
        raise ConfigError("argument", "--no-header: is of --trec, whose files have a header; leave it out")
    truth, compared = ground_truth(options, "QRELS"), how_compared(options, folder)
    found = measured_sets(folder, truth, options.measures, compared)
    if options.per_query:
        write_set_rows(options.per_query, found.compared.sets, "--per-query")
    if options.trec and not found.write_trec(options.trec, header=not options.no_header):
        raise ConfigError("argument", "--trec: writes the results of what is judged, and nothing is; name judgements")
    if options.latex:
        found.write_latex(options.latex)
    sheet = write_sheet(options, found.unjudged)
    return show(options, lambda: found.values() | sheet.values, found.page, *sheet.lines, of=folder)


def report_sets(options: argparse.Namespace, folder: SetsFolder) -> int:
    """Writes the page of all sets, and the table and the values beside it; with `--out` the page alone."""
    from jobs.pages.sets.compared import write_set_pages
    from jobs.pages.sets.page import sets_report
    from jobs.runs.folder import REPORT
    from jobs.verbs.evaluate_sets import measured_sets
    from jobs.verbs.report import write_page

    _check(options, folder)
    truth, given = ground_truth(options, "--qrels"), how_compared(options, folder)
    found = measured_sets(folder, truth, options.measures, given).compared
    if options.out is None:
        write_set_pages(found)
    else:
        write_page(options.out, sets_report(found))
    print(options.out or folder.storage.url(REPORT))
    return 0


def _check(options: argparse.Namespace, folder: SetsFolder) -> None:
    """Refuses what is of one set."""
    for name in _OF_ONE:
        if getattr(options, name, None):
            inner = next(iter(folder.folders.values()))
            what = f"{folder.storage.root} is an ablation over sets, which have their own each"
            raise ConfigError(
                "argument", f"--{name.replace('_', '-')}: {what}; leave it out, or give the folder of one set, like {inner}"
            )

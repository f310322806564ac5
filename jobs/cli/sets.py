"""What the verbs `evaluate` and `report` do of an ablation over sets; other verbs are given the folder of one set."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from cluster.errors import ConfigError
from jobs.cli.printing import show

if TYPE_CHECKING:
    from jobs.runs.sets.folder import SetsFolder

_OF_ONE = (
    "qrels", "key", "answers", "calibration", "trec_rag", "ragas", "rows", "nuggetizer", "umbrela", "arm", "prices", "samples",
    "all_requests", "baseline", "pairs", "unjudged", "unjudged_depth",
)  # fmt: skip


def evaluate_sets(options: argparse.Namespace, folder: SetsFolder) -> int:
    """Compares the arms on each set and over all, and writes the files for other tools."""
    from jobs.measure.export.set_tables import write_set_rows
    from jobs.verbs.evaluate_sets import measured_sets

    _check(options, folder)
    if options.no_header and not options.trec:
        raise ConfigError("argument", "--no-header: is of --trec, whose files have a header; leave it out")
    found = measured_sets(folder, _note(options), options.measures, judged=options.judged)
    if options.per_query:
        write_set_rows(options.per_query, found.compared.sets, "--per-query")
    if options.trec and not found.write_trec(options.trec, header=not options.no_header):
        raise ConfigError("argument", "--trec: writes the results of what is judged, and nothing is; name judgements")
    if options.latex:
        found.write_latex(options.latex)
    return show(options, found.values, found.page, of=folder)


def report_sets(options: argparse.Namespace, folder: SetsFolder) -> int:
    """Writes the page of all sets, and the table and the values beside it; with `--out` the page alone."""
    from jobs.pages.sets.compared import write_set_pages
    from jobs.pages.sets.page import sets_report
    from jobs.runs.folder import REPORT
    from jobs.verbs.evaluate_sets import measured_sets
    from jobs.verbs.report import write_page

    _check(options, folder)
    found = measured_sets(folder, _note(options), options.measures).compared
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
            shown = "QRELS" if name == "qrels" and options.verb == "evaluate" else f"--{name.replace('_', '-')}"
            inner = next(iter(folder.folders.values()))
            what = f"{folder.storage.root} is an ablation over sets, which have their own each"
            raise ConfigError("argument", f"{shown}: {what}; leave it out, or give the folder of one set, like {inner}")


def _note(options: argparse.Namespace) -> Callable[[str], None]:
    return lambda words: print(f"dmqr {options.verb}: {words}", file=sys.stderr)

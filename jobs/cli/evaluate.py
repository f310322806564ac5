"""The verb evaluate."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cluster.errors import ConfigError
from jobs.cli.inputs import ground_truth, how_compared, note_of
from jobs.cli.printing import show

if TYPE_CHECKING:
    from jobs.verbs.evaluate import MeasuredArms, MeasuredRun

_OF_ONE = (
    "key", "pairs", "answers", "per_query", "trec", "rows", "arm",
)  # fmt: skip


def evaluate(options: argparse.Namespace) -> int:
    """Measures a run's results and answers, or compares the arms of an ablation by them."""
    from jobs.measure.export import tables
    from jobs.measure.export.answers import write_answers
    from jobs.runs.folder import is_run, open_run
    from jobs.verbs.evaluate import MeasuredBy, measured

    if len(options.qrels) > 1 or any(map(is_run, options.qrels)):
        return _evaluate_together(options)
    options.qrels = next(iter(options.qrels), None)
    if options.per_query:
        tables.check_ending(options.per_query, "--per-query")
    folder = open_run(options.run)
    by = MeasuredBy.of(ground_truth(options, "QRELS"), folder)
    if options.arm is not None and options.rows is None:
        raise ConfigError("argument", f"--arm {options.arm}: is of --rows; leave it out")
    files = [write_answers(options.rows, folder, options.arm, by.gold)] if options.rows else []
    if not files:
        by.check_any(folder, "QRELS")
    if options.trec and by.judgements is None:
        raise ConfigError("argument", "--trec: writes the results of what is judged, and nothing is; give QRELS")
    found = measured(folder, by, options.measures, how_compared(options, folder))
    _write(options, found)
    values = lambda: found.values() | ({"files": [one._asdict() for one in files]} if files else {})  # noqa: E731
    kept = f"not kept: `dmqr report {options.run} --qrels FILE` writes it to the page, --per-query FILE each query's values"
    return show(options, values, found.page, *map(str, files), kept, of=folder)


def _evaluate_together(options: argparse.Namespace) -> int:
    """Joins ablations, each of one data set, and compares their arms over all sets."""
    from jobs.verbs.join import join_ablations

    for flag in _OF_ONE:
        if getattr(options, flag) not in (None, False):
            raise ConfigError("argument", f"--{flag.replace('_', '-')}: is of one run or ablation; leave it out")
    if len(options.baseline or ()) > 1:
        raise ConfigError("argument", "--baseline: several ablations are compared with one arm; give one")
    found = join_ablations(
        [options.run, *options.qrels],
        note_of(options),
        measures=options.measures,
        baseline=next(iter(options.baseline or ()), None),
        judged=options.judged,
    )
    return show(options, found.values, found.page)


def _write(options: argparse.Namespace, found: MeasuredRun | MeasuredArms) -> None:
    """Writes the files for other tools."""
    from jobs.measure.export import tables
    from jobs.verbs.evaluate import MeasuredRun

    if options.per_query:
        if isinstance(found, MeasuredRun):
            tables.write_wide(options.per_query, found.folder, *found.frames)
        else:
            tables.write_long(options.per_query, *found.frames)
    if options.trec:
        found.write_trec(options.trec)

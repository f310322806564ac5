"""The verb evaluate."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from cluster.errors import ConfigError
from jobs.cli.answer_files import answer_files, file_values
from jobs.cli.inputs import ground_truth, how_compared, note_of
from jobs.cli.printing import show

if TYPE_CHECKING:
    from jobs.measure.export.unjudged import Unjudged
    from jobs.verbs.evaluate import MeasuredArms, MeasuredRun

_OF_ONE = (
    "key", "pairs", "answers", "calibration", "per_query", "trec", "no_header", "unjudged", "unjudged_depth", "latex",
    "trec_rag", "ragas", "rows", "nuggetizer", "umbrela", "arm", "prices",
)  # fmt: skip


def evaluate(options: argparse.Namespace) -> int:
    """Measures a run's results and answers, or compares the arms of an ablation by them."""
    from jobs.measure.export import tables
    from jobs.runs.folder import is_run, open_run
    from jobs.verbs.evaluate import MeasuredBy, measured, unjudged

    if len(options.qrels) > 1 or any(map(is_run, options.qrels)):
        return _evaluate_together(options)
    options.qrels = next(iter(options.qrels), None)
    if options.per_query:
        tables.check_ending(options.per_query, "--per-query")
    folder = open_run(options.run)
    by = MeasuredBy.of(ground_truth(options, "QRELS"), folder)
    files = answer_files(options, folder, by.gold)
    if not files:
        by.check_any(folder, "QRELS")
    if options.trec and by.judgements is None:
        raise ConfigError("argument", "--trec: writes the results of what is judged, and nothing is; give QRELS")
    if options.no_header and not (options.trec and folder.is_ablation):
        raise ConfigError("argument", "--no-header: is of --trec of an ablation, whose files have a header; leave it out")
    if options.latex and not folder.is_ablation:
        raise ConfigError("argument", f"--latex: {folder.storage.root} is a run; such a table is of an ablation's arms")
    found = measured(folder, by, options.measures, how_compared(options, folder))
    _write(options, found)
    sheet = write_sheet(options, partial(unjudged, found))
    values = lambda: found.values() | file_values(files) | sheet.values  # noqa: E731
    return show(options, values, found.page, *map(str, files), *sheet.lines, of=folder)


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


class Sheet(NamedTuple):
    """What is said of a sheet that was written; nothing where none was asked for."""

    values: dict[str, Any]
    """For `--json`."""
    lines: list[str]
    """Below the table."""


def write_sheet(options: argparse.Namespace, unjudged: Callable[[int], Unjudged]) -> Sheet:
    """Writes what is not judged among the first results, if that is asked for.

    Args:
        options: with `unjudged` and `unjudged_depth`.
        unjudged: returns it, to a depth.

    Raises:
        ConfigError: the depth is less than 1, or of no sheet; or the sheet cannot be made.
    """
    from jobs.measure.export.unjudged import DEPTH, write_unjudged

    if options.unjudged is None:
        if options.unjudged_depth is not None:
            raise ConfigError("argument", f"--unjudged-depth {options.unjudged_depth}: is of --unjudged; leave it out")
        return Sheet({}, [])
    depth = DEPTH if options.unjudged_depth is None else options.unjudged_depth
    if depth < 1:
        raise ConfigError("argument", f"--unjudged-depth {depth}: is less than 1; give 1 or more")
    left = unjudged(depth)
    write_unjudged(options.unjudged, left)
    return Sheet({"unjudged": {"path": options.unjudged} | left.values()}, [f"{options.unjudged}: {left.said}"])


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
        found.write_trec(options.trec, header=not options.no_header)
    if options.latex and not isinstance(found, MeasuredRun):
        found.write_latex(options.latex)

"""The verb evaluate."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cluster.errors import ConfigError
from jobs.cli.beside import with_measures
from jobs.cli.printing import print_json, print_page

if TYPE_CHECKING:
    from jobs.log.judgements import Judgements
    from jobs.runs.folder import RunFolder


def evaluate(options: argparse.Namespace) -> int:
    """Measures a run's results against judgements."""
    from jobs.cli.beside import check_matched
    from jobs.log.judgements import read_qrels
    from jobs.measure.evaluate.evaluate import evaluation as evaluation_of
    from jobs.measure.evaluate.evaluate import evaluation_table, evaluation_values
    from jobs.measure.export.tables import check_ending, write_wide
    from jobs.measure.export.trec import write_run
    from jobs.measure.frame import measure
    from jobs.runs.folder import open_run

    if options.per_query:
        check_ending(options.per_query, "--per-query")
    folder = open_run(options.run)
    judgements = read_qrels(options.qrels, "QRELS", options.key or folder.config.evaluate.key)
    if folder.is_ablation:
        return _evaluate_ablation(options, folder, judgements)
    if options.latex:
        raise ConfigError("argument", f"--latex: {folder.storage.root} is a run; such a table is of an ablation's arms")
    frame = measure(folder, judgements, options.measures)
    evaluation = evaluation_of(folder, judgements, frame)
    check_matched(judgements, evaluation.warning, evaluation.not_committed)
    if options.per_query:
        write_wide(options.per_query, folder, frame)
    if options.trec:
        write_run(options.trec, folder, frame)
    if options.json:
        print_json({"run": folder.storage.root, "state": folder.state} | evaluation_values(evaluation))
    else:
        print(f"{folder.storage.root} ({folder.state})")
        print_page(evaluation_table(evaluation))
    return 0


def _evaluate_ablation(options: argparse.Namespace, folder: RunFolder, judgements: Judgements) -> int:
    """Compares the arms of an ablation by other judgements, or writes what was measured for other tools."""
    from jobs.cli.beside import check_matched
    from jobs.measure.compare.comparison import compare
    from jobs.measure.export.latex import write_latex
    from jobs.measure.export.tables import write_long
    from jobs.measure.export.trec import write_trec
    from jobs.pages.comparison import comparison_table, comparison_values

    comparison = compare(folder, judgements, with_measures(folder.config.evaluate, options.measures))
    check_matched(judgements, comparison.warning, comparison.frame.not_committed)
    if options.per_query:
        write_long(options.per_query, comparison.frame)
    if options.trec:
        write_trec(options.trec, folder, comparison)
    if options.latex:
        write_latex(options.latex, comparison)
    if options.json:
        print_json({"run": folder.storage.root, "state": folder.state} | comparison_values(comparison))
    else:
        print(f"{folder.storage.root} ({folder.state})")
        print_page(comparison_table(comparison))
    return 0

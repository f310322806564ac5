"""The verb evaluate."""

from __future__ import annotations

import argparse

from cluster.errors import ConfigError
from jobs.cli.beside import check_matched, with_measures
from jobs.cli.printing import show


def evaluate(options: argparse.Namespace) -> int:
    """Measures a run's results against judgements, or compares the arms of an ablation by them."""
    from jobs.log.judgements import read_qrels
    from jobs.measure.compare.comparison import compare
    from jobs.measure.compare.export import frame, trec
    from jobs.measure.evaluate import exports
    from jobs.measure.evaluate.evaluate import evaluation, evaluation_table, evaluation_values
    from jobs.measure.evaluate.per_query import per_query
    from jobs.pages.comparison import comparison_table, comparison_values
    from jobs.runs.folder import open_run

    if options.per_query:
        exports.check_per_query(options.per_query)
    folder = open_run(options.run)
    judgements = read_qrels(options.qrels, "QRELS", options.key or folder.config.evaluate.key)
    if folder.is_ablation:
        compared = compare(folder, judgements, with_measures(folder.config.evaluate, options.measures))
        check_matched(judgements, compared.warning, compared.frame.not_committed)
        if options.per_query:
            frame.write_csv(options.per_query, compared)
        if options.trec:
            trec.write_trec(options.trec, folder, compared)
        if options.latex:
            frame.write_latex(options.latex, compared)
        return show(options, lambda: comparison_values(compared), lambda: comparison_table(compared), of=folder)
    if options.latex:
        raise ConfigError("argument", f"--latex: {folder.storage.root} is a run; such a table is of an ablation's arms")
    values = per_query(folder, judgements, options.measures)
    found = evaluation(folder, judgements, values)
    check_matched(judgements, found.warning, found.not_committed)
    if options.per_query:
        exports.write_per_query(options.per_query, folder, judgements, values)
    if options.trec:
        exports.write_trec(options.trec, folder, judgements, values)
    return show(options, lambda: evaluation_values(found), lambda: evaluation_table(found), of=folder)

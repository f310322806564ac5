"""The verb evaluate."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cluster.errors import ConfigError
from jobs.cli.answer_files import answer_files, file_values
from jobs.cli.inputs import check_matched, gold_of, judged_or_named, measured_by
from jobs.cli.printing import show

if TYPE_CHECKING:
    from jobs.log.judgements import Judgements
    from jobs.measure.answers.frame import GoldAnswers
    from jobs.measure.export.answers.written import WrittenAnswers
    from jobs.runs.folder import RunFolder


def evaluate(options: argparse.Namespace) -> int:
    """Measures a run's results and answers, or compares the arms of an ablation by them."""
    from jobs.measure.answers.comparison import compare_answers, compare_judged
    from jobs.measure.compare.comparison import compare
    from jobs.measure.export import tables, trec
    from jobs.measure.export.latex import write_latex
    from jobs.measure.judged.answers import judges_answers
    from jobs.pages.comparison import compared_values, comparison_tables
    from jobs.runs.folder import open_run

    if options.per_query:
        tables.check_ending(options.per_query, "--per-query")
    folder = open_run(options.run)
    judgements, gold = judged_or_named(options, folder, "QRELS"), gold_of(options, folder)
    files = answer_files(options, folder, gold)
    if judgements is None and gold is None and not files and not judges_answers(folder):
        raise ConfigError("argument", f"{folder.storage.root}: has no judgements of its own; name a file: QRELS")
    if options.trec and judgements is None:
        raise ConfigError("argument", "--trec: writes the results of what is judged, and nothing is; give QRELS")
    if not folder.is_ablation:
        return _evaluate_run(options, folder, judgements, gold, files)
    settings = measured_by(folder.config.evaluate, judgements, options.measures)
    lists = None if judgements is None else compare(folder, judgements, settings)
    answers, by_people = compare_answers(folder, gold, settings), judgements is not None and judgements.judge is None
    judged = compare_judged(folder, settings, lists=by_people)
    if judgements is not None and lists is not None:
        check_matched(judgements, lists.warning, lists.frame.not_committed)
    if gold is not None and answers is not None and options.answers:
        check_matched(gold.judged, answers.warning, answers.frame.not_committed)
    found = [one for one in (lists, answers, *judged) if one is not None]
    if options.per_query:
        tables.write_long(options.per_query, *(one.frame for one in found))
    if options.trec and lists is not None:
        trec.write_trec(options.trec, folder, lists)
    if options.latex:
        write_latex(options.latex, *found)
    values = lambda: compared_values(lists, answers, judged) | file_values(files)  # noqa: E731
    return show(options, values, lambda: comparison_tables(lists, answers, judged), *map(str, files), of=folder)


def _evaluate_run(
    options: argparse.Namespace,
    folder: RunFolder,
    judgements: Judgements | None,
    gold: GoldAnswers | None,
    files: Sequence[WrittenAnswers],
) -> int:
    from jobs.measure.answers.quality import measured_answers
    from jobs.measure.evaluate.evaluate import evaluation
    from jobs.measure.evaluate.whole import evaluated_table, evaluated_values
    from jobs.measure.export import tables, trec
    from jobs.measure.frame import measure

    if options.latex:
        raise ConfigError("argument", f"--latex: {folder.storage.root} is a run; such a table is of an ablation's arms")
    frame = None if judgements is None else measure(folder, judgements, options.measures)
    lists = None if judgements is None or frame is None else evaluation(folder, judgements, frame)
    answers = measured_answers(folder, gold)
    if judgements is not None and lists is not None:
        check_matched(judgements, lists.warning, lists.not_committed)
    if gold is not None and answers and options.answers:
        check_matched(gold.judged, answers[0].warning, answers[0].frame.not_committed)
    if options.per_query:
        tables.write_wide(options.per_query, folder, *([] if frame is None else [frame]), *(one.frame for one in answers))
    if options.trec and frame is not None:
        trec.write_run(options.trec, folder, frame)
    values = lambda: evaluated_values(lists, answers) | file_values(files)  # noqa: E731
    return show(options, values, lambda: evaluated_table(lists, answers), *map(str, files), of=folder)

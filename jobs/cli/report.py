"""The verb report."""

from __future__ import annotations

import argparse
import sys

from cluster.errors import ConfigError
from jobs.cli.inputs import check_samples, ground_truth, how_compared, prices_of


def report(options: argparse.Namespace) -> int:
    """Writes the report of a run, or of an ablation with the table and the values beside it; with `--out` the page alone."""
    from jobs.measure.answers.quality import measured_answers
    from jobs.pages.ablation import ablation_report
    from jobs.pages.closing import compared, write_pages
    from jobs.pages.report.judged_queries import measured
    from jobs.runs.folder import REPORT, open_run
    from jobs.terminal.formats import unpriced
    from jobs.verbs.inputs import check_matched, compared_by, gold_of, judged_or_named, measured_by
    from jobs.verbs.report import write_page, write_report

    folder = open_run(options.run)
    prices = prices_of(options, folder)
    check_samples(options)
    given, arms = ground_truth(options, "--qrels"), how_compared(options, folder)
    judgements, gold = judged_or_named(given, folder), gold_of(given, folder)
    shown = folder.config.report.model_dump() | ({"texts": False} if options.no_texts else {})
    shown |= {} if options.samples is None else {"samples": options.samples}
    shown |= {"requests": "all"} if options.all_requests else {}
    if folder.is_ablation:
        for flag, given_flag in (("--samples", options.samples is not None), ("--all-requests", options.all_requests)):
            if given_flag:
                what = f"{folder.storage.root} is an ablation, whose page shows no sample queries"
                raise ConfigError("argument", f"{flag}: {what}; leave it out")
        settings = measured_by(compared_by(folder.config.evaluate, arms), judgements, options.measures)
        found = compared(folder, judgements, settings, prices, gold)
        if judgements is not None and found.comparison is not None and (options.qrels or options.key):
            frame = found.comparison.frame
            check_matched(judgements, frame.warning, frame.not_committed, frame.left_out)
        if options.out is None:
            write_pages(found, texts=shown["texts"])
        else:
            write_page(options.out, ablation_report(found, texts=shown["texts"]))
        print(options.out or folder.storage.url(REPORT))
        return 0
    evaluation, judged = measured(folder, judgements, options.measures)
    answers = measured_answers(folder, gold)
    if judgements is not None and evaluation is not None and (options.qrels or options.key):
        check_matched(judgements, evaluation.warning, evaluation.not_committed, evaluation.left_out)
    write_report(folder, prices, evaluation, judged, options.out, answers=answers, **shown)
    print(options.out or folder.storage.url(REPORT))
    for one in (evaluation, *answers):
        if one is not None and one.warning is not None:
            print(f"dmqr report: {one.warning}", file=sys.stderr)
    if prices is None:
        print(f"dmqr report: cost: {unpriced(folder.record.get('config_file', 'the config'))} (--prices FILE)", file=sys.stderr)
    return 0

"""The verb report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cluster.errors import ConfigError
from jobs.cli.inputs import check_matched, check_samples, gold_of, judged_or_named, measured_by, prices_of

if TYPE_CHECKING:
    from cluster.costs import Prices
    from jobs.measure.answers.quality import AnswerQuality
    from jobs.measure.evaluate.evaluate import Evaluation
    from jobs.pages.report.judged_queries import Judged
    from jobs.runs.folder import RunFolder


def report(options: argparse.Namespace) -> int:
    """Writes the report of a run, or of an ablation with the table and the values beside it; with `--out` the page alone."""
    from jobs.measure.answers.quality import measured_answers
    from jobs.pages.ablation import ablation_report
    from jobs.pages.closing import compared, write_pages
    from jobs.pages.report.judged_queries import measured
    from jobs.runs.folder import REPORT, open_run
    from jobs.terminal.formats import unpriced

    folder = open_run(options.run)
    prices = prices_of(options, folder)
    check_samples(options)
    judgements, gold = judged_or_named(options, folder, "--qrels"), gold_of(options, folder)
    shown = folder.config.report.model_dump() | ({"texts": False} if options.no_texts else {})
    shown |= {} if options.samples is None else {"samples": options.samples}
    shown |= {"requests": "all"} if options.all_requests else {}
    if folder.is_ablation:
        shown.pop("requests")
        if options.all_requests:
            what = f"{folder.storage.root} is an ablation, whose page shows no requests"
            raise ConfigError("argument", f"--all-requests: {what}; leave it out")
        found = compared(folder, judgements, measured_by(folder.config.evaluate, judgements, options.measures), prices, gold)
        if judgements is not None and found.comparison is not None and (options.qrels or options.key):
            check_matched(judgements, found.comparison.warning, found.comparison.frame.not_committed)
        if options.out is None:
            write_pages(found, **shown)
        else:
            _write(options.out, ablation_report(found, **shown))
        print(options.out or folder.storage.url(REPORT))
        return 0
    evaluation, judged = measured(folder, judgements, options.measures)
    answers = measured_answers(folder, gold)
    if judgements is not None and evaluation is not None and (options.qrels or options.key):
        check_matched(judgements, evaluation.warning, evaluation.not_committed)
    write_report(folder, prices, evaluation, judged, options.out, answers=answers, **shown)
    print(options.out or folder.storage.url(REPORT))
    for one in (evaluation, *answers):
        if one is not None and one.warning is not None:
            print(f"dmqr report: {one.warning}", file=sys.stderr)
    if prices is None:
        print(f"dmqr report: cost: {unpriced(folder.record.get('config_file', 'the config'))} (--prices FILE)", file=sys.stderr)
    return 0


def write_report(
    folder: RunFolder,
    prices: Prices | None,
    evaluation: Evaluation | None,
    judged: Judged | None,
    out: str | None = None,
    answers: Sequence[AnswerQuality] = (),
    **shown: Any,
) -> None:
    """Writes the report of a run to `out`, a path or an object on S3, or into its folder, where its evaluation is stored, too.

    `shown`: `texts`, `samples` and `requests`, where they are not as the run's config has them.
    """
    from jobs.measure.evaluate.stored_evaluation import store_evaluation
    from jobs.pages.report import report
    from jobs.runs.folder import REPORT

    html = report(folder, prices, evaluation, judged=judged, answers=answers, **(folder.config.report.model_dump() | shown))
    if out is not None:
        return _write(out, html)
    store_evaluation(folder.storage, evaluation, answers)
    return folder.storage.put(REPORT, html.encode())


def _write(out: str, html: str) -> None:
    """Writes a page to a file or an object on S3, which has the report's usual name below a prefix."""
    from cluster.storage import remote
    from cluster.storage.whole_file import written
    from jobs.runs.folder import REPORT

    with written(out + REPORT if remote(out) and out.endswith("/") else out) as file:
        file.write_text(html, encoding="utf-8")

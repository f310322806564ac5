"""The verb report."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cluster.costs import Prices
    from jobs.config.sections import EvaluateSettings
    from jobs.log.judgements import Judgements
    from jobs.measure.evaluate.evaluate import Evaluation
    from jobs.pages.report.judged import Judged
    from jobs.runs.folder import RunFolder


def report(options: argparse.Namespace) -> int:
    """Writes a run's report."""
    from jobs.cli.beside import check_matched, check_samples, judgements_of, prices_of, with_measures
    from jobs.pages.report.judged import measured
    from jobs.runs.folder import open_run
    from jobs.terminal.formats import unpriced

    folder = open_run(options.run)
    prices = prices_of(options, folder)
    check_samples(options)
    judgements = judgements_of(options, folder, "--qrels")
    texts = False if options.no_texts else None
    if folder.is_ablation:
        settings = with_measures(folder.config.evaluate, options.measures)
        print(_write_ablation(folder, prices, judgements, settings, options.out, texts, options.samples))
        return 0
    evaluation, judged = measured(folder, judgements, options.measures)
    if judgements is not None and evaluation is not None and (options.qrels or options.key):
        check_matched(judgements, evaluation.warning, evaluation.not_committed)
    print(write_report(folder, prices, evaluation, judged, options.out, texts, options.samples))
    if evaluation is not None and evaluation.warning is not None:
        print(f"dmqr report: {evaluation.warning}", file=sys.stderr)
    if prices is None:
        print(f"dmqr report: cost: {unpriced(folder.record.get('config_file', 'the config'))} (--prices FILE)", file=sys.stderr)
    return 0


def write_report(
    folder: RunFolder,
    prices: Prices | None,
    evaluation: Evaluation | None,
    judged: Judged | None,
    out: str | None = None,
    texts: bool | None = None,
    samples: int | None = None,
) -> str:
    """Writes the report and returns where; what is None is as the run's config has it."""
    from jobs.measure.evaluate.stored import store_evaluation
    from jobs.pages.report import report
    from jobs.runs.folder import REPORT

    wanted = folder.config.report
    html = report(
        folder,
        prices,
        evaluation,
        judged=judged,
        texts=wanted.texts if texts is None else texts,
        samples=wanted.samples if samples is None else samples,
    )
    if out is not None:
        return _put_out(out, html)
    if evaluation is not None:
        store_evaluation(folder.storage, evaluation)
    folder.storage.put(REPORT, html.encode())
    return folder.storage.url(REPORT)


def _write_ablation(
    folder: RunFolder,
    prices: Prices | None,
    judgements: Judgements | None,
    settings: EvaluateSettings,
    out: str | None,
    texts: bool | None,
    samples: int | None,
) -> str:
    """Writes the report of an ablation, and without `out` the table and the values beside it, too; returns where."""
    from jobs.pages.closing import compared, report_of, write_pages
    from jobs.runs.folder import REPORT

    wanted = folder.config.report
    shown: dict[str, Any] = {
        "texts": wanted.texts if texts is None else texts,
        "samples": wanted.samples if samples is None else samples,
    }
    found = compared(folder, judgements, settings, prices)
    if out is not None:
        return _put_out(out, report_of(found, **shown))
    write_pages(found, **shown)
    return folder.storage.url(REPORT)


def _put_out(out: str, html: str) -> str:
    """Writes a page to a file or an object on S3; returns where."""
    from cluster.storage import open_storage, remote
    from jobs.runs.folder import REPORT

    if remote(out):
        bucket, _, key = out.removeprefix("s3://").partition("/")
        open_storage(f"s3://{bucket}").put(key + REPORT if out.endswith("/") else key, html.encode())
    else:
        _put(Path(out), html)
    return out


def _put(path: Path, text: str) -> None:
    """Writes a file whole or not at all; what is no file, such as /dev/stdout, is written to as it is."""
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error

"""The page of a run: where it is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster.costs import Prices
    from jobs.measure.evaluate import AnswerQuality, Evaluation
    from jobs.pages.judged import Judged
    from jobs.runs.folder import RunFolder


def write_report(
    folder: RunFolder,
    prices: Prices | None,
    evaluation: Evaluation | None,
    judged: Judged | None,
    out: str | None = None,
    answers: Sequence[AnswerQuality] = (),
    *,
    texts: bool | None = None,
) -> None:
    """Writes the report of a run to `out`, a path or an object on S3, or into its folder, where its evaluation is stored, too.

    `texts`: whether queries and texts are on it; None: as the run's config says.
    """
    from jobs.measure.evaluate import store_evaluation
    from jobs.pages.run import report
    from jobs.runs.folder import REPORT

    texts = folder.config.report.texts if texts is None else texts
    html = report(folder, prices, evaluation, judged=judged, answers=answers, texts=texts)
    if out is not None:
        return write_page(out, html)
    store_evaluation(folder.storage, evaluation, answers, finished=folder.finished)
    return folder.storage.put(REPORT, html.encode())


def write_page(out: str, html: str) -> None:
    """Writes a page to a file or an object on S3, which has the report's usual name below a prefix."""
    from cluster.storage import remote
    from cluster.storage.whole_file import written
    from jobs.runs.folder import REPORT

    with written(out + REPORT if remote(out) and out.endswith("/") else out) as file:
        file.write_text(html, encoding="utf-8")

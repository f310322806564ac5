"""The report of a run: one self-contained HTML page.

For operators (outcome, cost and errors of the run), researchers (contribution of each strategy) and authors of prompts
(samples). All figures are computed from the committed shards, so that unfinished runs can be reported, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cluster.costs import STORAGE, Prices
from jobs.config.settings import KINDS
from jobs.measure.evaluate import AnswerQuality, Evaluation, evaluation_notes
from jobs.measure.notes import EXPLAINED, HEADINGS, detectable_words
from jobs.pages.charts import around_zero
from jobs.pages.render import as_yaml, render
from jobs.pages.report.failures import failures
from jobs.pages.report.figures import Figures
from jobs.pages.report.glance import headline, notices, quality, remarks, stages, tiles
from jobs.pages.report.guards import guards
from jobs.pages.report.judged_queries import Judged
from jobs.pages.report.lists import lists
from jobs.pages.report.outcome.by_traffic import by_traffic
from jobs.pages.report.outcome.collections import by_collection
from jobs.pages.report.outcome.latency import latencies
from jobs.pages.report.outcome.nothing_found import nothing_found
from jobs.pages.report.outcome.verdict import verdict
from jobs.pages.report.samples import samples
from jobs.pages.report.selection import selection
from jobs.pages.report.spending import spending
from jobs.pages.waiting import waiting
from jobs.runs.folder import RunFolder
from jobs.runs.gate import saving_of_run
from jobs.terminal.formats import masked


def report(
    run: RunFolder,
    prices: Prices | None,
    evaluation: Evaluation | None,
    *,
    judged: Judged | None = None,
    answers: Sequence[AnswerQuality] = (),
    texts: bool = True,
    samples: int = 100,
    requests: str = KINDS,
) -> str:
    """Returns the report as one HTML page.

    Args:
        run: the run to report.
        prices: for costs in USD; None: quantities only.
        evaluation: the quality of the results; None: the section is left out.
        judged: the judged queries, to choose and order samples by gain and to mark judged documents.
        answers: the quality of the answers, by gold answers and by a judge.
        texts: False leaves out every query, rewrite, prompt, answer, message and document; ids, counts and names stay.
        samples: the most queries to show.
        requests: which of a query's requests are shown, as `ReportSettings.requests`.

    Raises:
        ConfigError: the run's tables cannot be read.
    """
    every = requests != KINDS
    return render("run.html.j2", run, lambda: _values(run, prices, evaluation, judged, answers, texts, samples, every))


def _values(
    run: RunFolder,
    prices: Prices | None,
    evaluation: Evaluation | None,
    judged: Judged | None,
    answers: Sequence[AnswerQuality],
    texts: bool,
    max_samples: int,
    every: bool,
) -> dict[str, Any]:
    """Returns the variables of the templates."""
    figures = Figures(run)
    spent = spending(figures, prices)
    failed = failures(figures, texts=texts)
    measured, added = quality(evaluation), lists(figures)
    return {
        "figures": figures,
        "texts": texts,
        "headline": headline(figures, spent),
        "tiles": tiles(figures, spent),
        "notices": notices(figures),
        "evaluation_notes": []
        if evaluation is None
        else evaluation_notes(evaluation) + detectable_words(evaluation.detectable),
        "answers": answers,
        "headings": HEADINGS,
        "explained": EXPLAINED,
        "remarks": remarks(figures),
        "verdict": verdict(figures, measured, judged, added),
        "quality": measured,
        "axis": around_zero([end for one in measured for end in (one.difference, *(one.interval or ())) if end is not None]),
        "by_traffic": by_traffic(run, judged) if measured else [],
        "nothing_found": nothing_found(figures),
        "alone": "original alone" if evaluation is None else evaluation.alone,
        "leading": None if judged is None else judged.leading,
        "judged": judged is not None,
        "moved": None if judged is None else judged.moved(),
        "reranked": run.config.rerank.kind != "none",
        "waiting": waiting(run),
        "stages": stages(figures, spent),
        "spending": spent,
        "latencies": latencies(figures),
        "storage_quantities": STORAGE,
        "failures": failed,
        "selection": selection(figures, texts=texts),
        "gate": saving_of_run(run, prices),
        "lists": added,
        "collections": by_collection(run),
        "guards": guards(figures),
        "samples": samples(figures, failed, max_samples, texts=texts, judged=judged, every=every),
        "indexes": as_yaml(run.record["indexes"]),
        "inputs": masked(run.plan.inputs),
    }

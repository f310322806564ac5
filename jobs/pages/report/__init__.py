"""The report of a run: one self-contained HTML page.

For operators (outcome, cost and errors of the run), researchers (contribution of each strategy) and authors of prompts
(samples). All figures are computed from the committed shards, so that unfinished runs can be reported, too.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import duckdb
import pyarrow as pa
import yaml

from cluster.costs import STORAGE, Prices
from cluster.errors import ConfigError
from cluster.storage.s3_duckdb import reason
from jobs.measure.evaluate.evaluate import Evaluation, evaluation_notes
from jobs.pages import wording
from jobs.pages.report.failures import failures
from jobs.pages.report.figures import Figures
from jobs.pages.report.flow import flow
from jobs.pages.report.glance import headline, notices, quality, remarks, stages, tiles
from jobs.pages.report.guards import guards
from jobs.pages.report.judged import Judged
from jobs.pages.report.lists import lists
from jobs.pages.report.outcome.by_traffic import by_traffic
from jobs.pages.report.outcome.latency import latencies
from jobs.pages.report.outcome.nothing_found import nothing_found
from jobs.pages.report.outcome.verdict import verdict
from jobs.pages.report.samples import DOCUMENT_CHARACTERS, samples
from jobs.pages.report.selection import selection
from jobs.pages.report.spending import spending
from jobs.pages.report.trend import trend
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import masked, money

FILTERS = ("shown", "number", "signed", "percent", "duration", "size")


def report(
    run: RunFolder,
    prices: Prices | None,
    evaluation: Evaluation | None,
    *,
    judged: Judged | None = None,
    texts: bool = True,
    samples: int = 100,
) -> str:
    """Returns the report as one HTML page.

    Args:
        run: the run to report.
        prices: for costs in USD; None: quantities only.
        evaluation: the quality of the results; None: the section is left out.
        judged: the judged queries, to choose and order samples by gain and to mark judged documents.
        texts: False leaves out every query, rewrite, prompt, answer, message and document; ids, counts and names stay.
        samples: the most queries to show.

    Raises:
        ConfigError: the run's tables cannot be read.
    """
    try:
        values = _values(run, prices, evaluation, judged, texts, samples)
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        words = reason(error)
        where = f"{run.storage.root}: the run's tables cannot be read"
        raise ConfigError("run-damaged", f"{where} ({words}); put back what was changed there") from error
    return _render(values).encode("utf-8", "backslashreplace").decode()


def _values(
    run: RunFolder,
    prices: Prices | None,
    evaluation: Evaluation | None,
    judged: Judged | None,
    texts: bool,
    max_samples: int,
) -> dict[str, Any]:
    """Returns the variables of the templates."""
    figures = Figures(run)
    spent = spending(figures, prices)
    failed = failures(figures, texts=texts)
    measured, added = quality(evaluation), lists(figures)
    return {
        "run": run,
        "record": run.record,
        "label": run.config.shown_label,
        "figures": figures,
        "texts": texts,
        "headline": headline(figures, spent),
        "tiles": tiles(figures, spent),
        "notices": notices(figures),
        "evaluation_notes": [] if evaluation is None else evaluation_notes(evaluation),
        "remarks": remarks(figures),
        "verdict": verdict(figures, measured, judged, added),
        "quality": measured,
        "by_traffic": by_traffic(run, judged) if measured else [],
        "nothing_found": nothing_found(figures),
        "alone": "original alone" if evaluation is None else evaluation.alone,
        "leading": None if judged is None else judged.leading,
        "judged": judged is not None,
        "moved": None if judged is None else judged.moved(),
        "reranked": run.config.rerank.kind != "none",
        "flow": flow(figures),
        "trend": trend(run, prices, evaluation),
        "stages": stages(figures, spent),
        "spending": spent,
        "latencies": latencies(figures),
        "storage_quantities": STORAGE,
        "failures": failed,
        "selection": selection(figures, evaluation, texts=texts),
        "lists": added,
        "guards": guards(figures),
        "samples": samples(figures, failed, max_samples, texts=texts, judged=judged),
        "document_characters": DOCUMENT_CHARACTERS,
        "config": _yaml(run.record["config"]),
        "indexes": _yaml(run.record["indexes"]),
        "inputs": masked(run.plan.inputs),
        "root": masked(run.storage.root),
    }


def _render(values: dict[str, Any]) -> str:
    import jinja2

    folder = files(__name__)
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: folder.joinpath(name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {name: getattr(wording, name) for name in FILTERS} | {"money": money}
    own = {name: folder.joinpath(name).read_text(encoding="utf-8") for name in ("style.css", "script.js")}
    return environment.get_template("page.html.j2").render(style=own["style.css"], script=own["script.js"], **values)


def _yaml(values: object) -> str:
    return yaml.safe_dump(masked(values), sort_keys=False, allow_unicode=True, width=100)

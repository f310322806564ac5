"""The report of an ablation: one self-contained HTML page, as a researcher would put it into a paper.

Its style, script, macros and filters are those of a run's report (`jobs.pages.report`). Every figure comes from the comparison,
the funnel, the costs and the ablation's tables that are handed in.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import yaml

from cluster.errors import ConfigError
from cluster.storage.s3_duckdb import reason
from jobs.measure.compare.standing import Standing, standing
from jobs.pages import wording
from jobs.pages.ablation import headline
from jobs.pages.ablation.arm_rows import arm_rows
from jobs.pages.ablation.cost_chart import cost_chart
from jobs.pages.ablation.extremes import extremes
from jobs.pages.ablation.left_out import left_out
from jobs.pages.ablation.noise import noise
from jobs.pages.ablation.query_chart import main_arms, query_chart
from jobs.pages.ablation.sliced import slice_tables
from jobs.pages.ablation.strategies import strategies
from jobs.pages.report import FILTERS
from jobs.pages.report.samples import DOCUMENT_CHARACTERS
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import masked, money, p_words

if TYPE_CHECKING:
    from jobs.measure.compare.arm_costs import ArmCost
    from jobs.measure.compare.comparison import Comparison
    from jobs.measure.compare.funnel import Funnel
    from jobs.measure.compare.worth import Worth

MOST_COSTS = 32  # arms whose costs are shown at once
_FOLDERS = (__name__, "jobs.pages.report")  # where templates are looked for, in this order


def ablation_report(
    run: RunFolder,
    comparison: Comparison | None,
    funnel: Funnel | None,
    worth: Sequence[Worth] | None,
    costs: Sequence[ArmCost],
    grades: Mapping[str, Mapping[str, int]] | None = None,
    *,
    no_clicks: str | None = None,
    texts: bool = True,
    samples: int = 20,
) -> str:
    """Returns the report of an ablation as one HTML page.

    Args:
        run: the ablation's folder.
        comparison: the arms against the baseline; None without judgements.
        funnel: what became of what each strategy found; None without judgements.
        worth: what each strategy brought without judgements; None where that is not known.
        costs: of each arm.
        grades: of the judgements, key -> doc_id -> grade; None: documents are not marked.
        no_clicks: why the worth has no click rate, where the log could have clicks.
        texts: False leaves out every query, rewrite and text of a document; ids, names and numbers stay.
        samples: the most queries of those that gained and lost most.

    Raises:
        ConfigError: the ablation's tables cannot be read.
    """
    try:
        values = _values(run, comparison, funnel, worth, costs, grades or {}, no_clicks, texts, samples)
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        where = f"{run.storage.root}: the ablation's tables cannot be read"
        raise ConfigError("run-damaged", f"{where} ({reason(error)}); put back what was changed there") from error
    return _render(values).encode("utf-8", "backslashreplace").decode()


def _values(
    run: RunFolder,
    comparison: Comparison | None,
    funnel: Funnel | None,
    worth: Sequence[Worth] | None,
    costs: Sequence[ArmCost],
    grades: Mapping[str, Mapping[str, int]],
    no_clicks: str | None,
    texts: bool,
    samples: int,
) -> dict[str, Any]:
    """Returns the variables of the templates."""
    arms = run.record["ablation"]["arms"]
    found = None
    if comparison is not None and comparison.frame.keys:
        found = standing(comparison)
    return {
        "run": run,
        "record": run.record,
        "label": run.config.shown_label,
        "arms": arms,
        "texts": texts,
        "document_characters": DOCUMENT_CHARACTERS,
        "standing": found,
        "comparison": comparison,
        "notices": headline.ablation_notices(run, comparison, found),
        "work": headline.work_rows(run),
        "strategies": strategies(funnel, worth or ()),
        "no_clicks": None if no_clicks is None else masked(no_clicks),
        "costs": costs,
        "config": yaml.safe_dump(masked(run.record["config"]), sort_keys=False, allow_unicode=True, width=100),
        "root": masked(run.storage.root),
    } | _measured(run, found, costs, grades, texts, samples)


def _measured(
    run: RunFolder,
    found: Standing | None,
    costs: Sequence[ArmCost],
    grades: Mapping[str, Mapping[str, int]],
    texts: bool,
    samples: int,
) -> dict[str, Any]:
    """Returns the variables that need judgements; None each without them."""
    if found is None:
        names = (
            "lead",
            "rows",
            "marked",
            "families",
            "outcomes",
            "unjudged",
            "left_out",
            "chart",
            "scatter",
            "extremes",
            "slices",
            "noise",
        )
        return dict.fromkeys(names) | {"main_costs": list(costs)[:MOST_COSTS]}
    comparison = found.comparison
    frame = comparison.frame
    ids = [query_id or "rejected log row" for query_id in frame.query_ids]
    labels = [query or name for query, name in zip(frame.queries, ids, strict=True)] if texts else ids
    scatter, chart = query_chart(found, labels), cost_chart(found, costs)
    return {
        "lead": headline.lead(found),
        "rows": arm_rows(found),
        "marked": any(one.looked is not None or one.uneven for one in comparison.differences),
        "families": headline.family_rows(comparison),
        "outcomes": headline.outcomes(found),
        "unjudged": headline.unjudged(found),
        "left_out": left_out(found),
        "chart": chart,
        "main_costs": _main_costs(costs, {comparison.baseline, *main_arms(found), *(chart.front if chart else ())}),
        "scatter": scatter,
        "extremes": None if scatter is None else extremes(run, found, scatter.arm, samples, grades, texts=texts),
        "slices": slice_tables(comparison.slices, main_arms(found), comparison.baseline),
        "noise": noise(found),
    }


def _main_costs(costs: Sequence[ArmCost], arms: Collection[str]) -> list[ArmCost]:
    """Returns the costs that the page shows at once: all, or of many arms those named."""
    return list(costs) if len(costs) <= MOST_COSTS else [one for one in costs if one.arm in arms]


def _render(values: dict[str, Any]) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {name: getattr(wording, name) for name in FILTERS}
    environment.filters |= {"money": money, "p_words": p_words, "p_equals": headline.p_equals}
    style = (_text("jobs.pages.report", "style.css"), _text(__name__, "ablation.css"))
    script = (_text("jobs.pages.report", "script.js"), _text(__name__, "ablation.js"))
    return environment.get_template("ablation.html.j2").render(style="\n".join(style), script="\n".join(script), **values)


def _template(name: str) -> str | None:
    return next((_text(folder, name) for folder in _FOLDERS if files(folder).joinpath(name).is_file()), None)


def _text(folder: str, name: str) -> str:
    return files(folder).joinpath(name).read_text(encoding="utf-8")

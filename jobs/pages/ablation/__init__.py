"""The report of an ablation: one self-contained HTML page, as a researcher would put it into a paper.

Every figure comes from the comparison, the funnel, the costs and the ablation's tables that are handed in.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from jobs.counts import QUANTITIES
from jobs.measure.notes import EXPLAINED, HEADINGS, TITLES
from jobs.measure.standing import Standing, side_by_side, standing
from jobs.pages.ablation import headline
from jobs.pages.ablation.cost_chart import cost_chart
from jobs.pages.ablation.query_chart import main_arms, query_chart
from jobs.pages.ablation.strategies import strategies
from jobs.pages.ablation.tables import arm_rows, left_out, noise, slice_tables
from jobs.pages.render import render
from jobs.pages.report.outcome.collections import by_collection
from jobs.pages.waiting import waiting

if TYPE_CHECKING:
    from jobs.measure.comparison import Comparison
    from jobs.measure.costs import ArmCost
    from jobs.pages.closing import ComparedArms

_COSTED = ("requests", "searches", "pairs")  # that every arm has columns of; the others where an arm needs some
MOST_COSTS = 32  # arms whose costs are shown at once
# The variables that need judgements; None each without them.
_MEASURED = (
    "lead", "rows", "families", "outcomes", "unjudged", "left_out", "chart", "scatter", "slices", "noise",
)  # fmt: skip


def ablation_report(found: ComparedArms, *, texts: bool = True) -> str:
    """Returns the report of an ablation as one HTML page.

    Args:
        found: all that is known of the arms.
        texts: False leaves out every query; ids, names and numbers stay.

    Raises:
        ConfigError: the ablation's tables cannot be read.
    """
    return render("ablation.html.j2", found.folder, lambda: _values(found, texts))


def _values(found: ComparedArms, texts: bool) -> dict[str, Any]:
    """Returns the variables of the templates."""
    comparison = found.comparison
    stand = standing(comparison) if comparison is not None and comparison.frame.keys else None
    values = {
        "arms": found.folder.record["ablation"]["arms"],
        "texts": texts,
        "standing": stand,
        "comparison": comparison,
        "notices": headline.ablation_notices(found.folder, comparison, stand),
        "work": headline.work_rows(found.saving),
        "strategies": strategies(found.funnel, found.worth),
        "costs": found.costs,
        "further_work": [name for name in QUANTITIES if name not in _COSTED and any(getattr(one, name) for one in found.costs)],
        "gates": found.gates,
        "collections": by_collection(found.folder),
        "waiting": waiting(found.folder),
        "answers": [_answers(one) for one in found.beside],
        "answer_sections": [(one.frame.kind, TITLES[one.frame.kind], True) for one in found.beside],
        "beside": side_by_side(found.measured),
        "titles": TITLES,
        "of": "",  # before the ids of a section's elements
        "title": "",  # of the measures of answers
    }
    if stand is None:
        return values | dict.fromkeys(_MEASURED) | {"main_costs": list(found.costs)[:MOST_COSTS]}
    return values | _measured(found, stand, texts)


def _measured(found: ComparedArms, stand: Standing, texts: bool) -> dict[str, Any]:
    """Returns the variables that need judgements."""
    comparison, frame = stand.comparison, stand.comparison.frame
    ids = [query_id or "rejected log row" for query_id in frame.query_ids]
    labels = [query or name for query, name in zip(frame.queries, ids, strict=True)] if texts else ids
    scatter, chart = query_chart(stand, labels), cost_chart(stand, found.costs)
    shown = {comparison.baseline, *main_arms(stand), *(chart.front if chart else ())}
    return {
        "lead": headline.lead(stand),
        "rows": arm_rows(stand),
        "families": headline.family_rows(comparison),
        "outcomes": headline.outcomes(stand),
        "unjudged": headline.unjudged(stand),
        "left_out": left_out(stand),
        "chart": chart,
        "main_costs": _main_costs(found.costs, shown),
        "scatter": scatter,
        "slices": slice_tables(comparison.slices, main_arms(stand), [comparison.baseline]),
        "noise": noise(stand),
    }


def _answers(comparison: Comparison) -> dict[str, Any]:
    """Returns the variables of the templates that show how the answers of the arms compare."""
    kind = comparison.frame.kind
    said = {"heading": HEADINGS[kind], "title": TITLES[kind], "explained": EXPLAINED[kind], "kind": kind}
    if not comparison.frame.keys:
        return said | {"comparison": comparison, "standing": None}
    stand = standing(comparison)
    return said | {
        "comparison": comparison,
        "standing": stand,
        "lead": headline.lead(stand),
        "rows": arm_rows(stand),
        "families": headline.family_rows(comparison),
        "left_out": left_out(stand),
        "slices": slice_tables(comparison.slices, main_arms(stand), [comparison.baseline]),
        "noise": noise(stand),
    }


def _main_costs(costs: Sequence[ArmCost], arms: Collection[str]) -> list[ArmCost]:
    """Returns the costs that the page shows at once: all, or of many arms those named."""
    return list(costs) if len(costs) <= MOST_COSTS else [one for one in costs if one.arm in arms]

"""The output of `tune`: a table of the steps, and what follows from them."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from jobs.measure.notes import INTERVAL
from jobs.pages.render import Head, Interval, Table, difference, interval
from jobs.terminal.formats import figure, known, p_words
from jobs.tune.search import strategy_ratios
from jobs.tune.tune import ALONE, EQUAL, Tuning, choices, conclusion_written, conclusions
from retrievers.settings import FuseSettings


def tuning_page(tuning: Tuning, written: str) -> RenderableType:
    """Returns the table and the sentences below it, 80 columns wide; `written` names the config that was written."""
    rows = []
    for step in tuning.steps.values():
        gap = tuning.against(step, EQUAL)
        to_equal = ["", "", ""] if gap is None else [gap.mean, Interval(gap.low, gap.high, gap.mean), gap.p]
        rows.append([f"{step.name} *" if step is tuning.chosen else step.name, step.mean, *to_equal])
    columns = [Head("step"), Head("mean", figure), Head("to equal weights", difference)]
    table = Table([*columns, Head(INTERVAL, interval), Head("p", p_words)], rows, f"{tuning.measure}, held out")
    texts = [*conclusions(tuning), *choices(tuning), *tuning.notes, f"* {conclusion_written(tuning, written)}"]
    return Group(table.terminal(76), Text("\n" + "\n".join(texts)))


def tuning_values(tuning: Tuning, written: str) -> dict[str, Any]:
    """Returns the tuning as JSON-able values."""
    steps = [
        {
            "name": step.name,
            "mean": step.mean,
            "to_equal_weights": known(tuning.against(step, EQUAL)),
            "to_original_alone": known(tuning.against(step, ALONE)),
            "learnt": bool(step.of_folds),
            "setting": setting_values(step.final, tuning.own_weights),
            "of_folds": [setting_values(setting, tuning.own_weights) for setting in step.of_folds],
        }
        for step in tuning.steps.values()
    ]
    texts = [conclusion_written(tuning, written), *conclusions(tuning)]
    return {
        "measure": tuning.measure, "queries": len(tuning.clusters), "clusters": int(tuning.clusters.max()) + 1,
        "folds": tuning.folds, "steps": steps, "best": tuning.best.name, "chosen": tuning.chosen.name, "written": written,
        "chosen_without_each_fold": float(tuning.written.mean()),
        "settings_tried": tuning.settings_tried, "conclusions": texts, "notes": list(tuning.notes),
    }  # fmt: skip


def setting_values(settings: FuseSettings, own_weights: Mapping[str, float]) -> dict[str, Any]:
    """Returns weights as JSON-able values: a strategy has a ratio to its own weight, or a weight where its own is 0."""
    ratios = strategy_ratios(settings, own_weights)
    return {
        "strategy_ratios": ratios,
        "strategy_weights": {name: weight for name, weight in settings.weights.items() if name not in ratios},
        "retriever_weights": settings.retriever_weights,
        "redundancy": settings.redundancy,
    }

"""What a tuning shows: a table with a row per step and what follows from it, in words and as JSON values."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jobs.measure.notes import ends_in_words, interval_words
from jobs.measure.significance import Gap
from jobs.terminal.formats import figure, known, p_words
from jobs.tune.conclusions import choices, conclusion_written, conclusions, tuning_notes
from jobs.tune.steps import ALONE, EQUAL, Setting
from jobs.tune.tune import Tuning


def tuning_page(tuning: Tuning, written: str) -> RenderableType:
    """Returns the table and the sentences below it, 80 columns wide; `written` names the config that was written."""
    table = Table(box=None, padding=(0, 2, 0, 0), min_width=76)
    table.add_column(f"{tuning.measure}, held out", style="bold", no_wrap=True, ratio=1)
    for title in ("mean", "to equal weights", interval_words(), "p"):
        table.add_column(title, justify="right", no_wrap=True)
    for step in tuning.steps:
        name = Text(f"{step.name} *" if step is tuning.chosen else step.name)
        table.add_row(name, figure(step.mean), *_cells(tuning.against(step, EQUAL)))
    words = [*conclusions(tuning), *choices(tuning), *tuning_notes(tuning), f"* {conclusion_written(tuning, written)}"]
    return Group(table, Text("\n" + "\n".join(words)))


def tuning_values(tuning: Tuning, written: str) -> dict[str, Any]:
    """Returns the tuning as JSON-able values."""
    steps = [
        {
            "name": step.name,
            "mean": step.mean,
            "to_equal_weights": _values(tuning.against(step, EQUAL)),
            "to_original_alone": _values(tuning.against(step, ALONE)),
            "learnt": step.learnt,
            "setting": setting_values(step.final),
            "of_folds": [setting_values(setting) for setting in step.of_folds],
        }
        for step in tuning.steps
    ]
    said = [conclusion_written(tuning, written), *conclusions(tuning)]
    return {
        "measure": tuning.measure, "queries": tuning.queries, "clusters": int(tuning.clusters.max()) + 1,
        "folds": tuning.folds, "steps": steps, "best": tuning.best.name, "chosen": tuning.chosen.name, "written": written,
        "chosen_without_each_fold": float(tuning.written.mean()),
        "settings_tried": tuning.settings_tried, "conclusions": said, "notes": tuning_notes(tuning),
    }  # fmt: skip


def setting_values(setting: Setting) -> dict[str, Any]:
    """Returns a setting as JSON-able values."""
    return {
        "strategy_ratios": dict(setting.weighting.strategies),
        "strategy_weights": dict(setting.weighting.given),
        "retriever_weights": dict(setting.weighting.retrievers),
        "redundancy": setting.weighting.redundancy,
        "selection": {name: list(kept) for name, kept in setting.policy},
    }


def _cells(found: Gap | None) -> list[str]:
    if found is None:
        return ["", "", ""]
    return [figure(found.mean, "+"), ends_in_words(found.interval), p_words(found.p)]


def _values(found: Gap | None) -> Any:
    return None if found is None else known({"mean": found.mean, "low": found.low, "high": found.high, "p": found.p})

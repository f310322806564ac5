"""The table of every two arms for LaTeX, on one set or over several."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.config.settings import TableSettings
from jobs.measure.compare.pairs import ArmPair
from jobs.measure.export.latex_cells import (
    chosen_measures,
    framed,
    latex,
    levels,
    mean_words,
    row,
    ruled,
    shown_name,
    significance,
)

MOST_PAIRED_ROWS = 12


def pairs_table(pairs: Sequence[ArmPair], measures: Sequence[str], arms: Sequence[str], test: str, table: TableSettings) -> str:
    r"""Returns the differences of every two arms by one measure as a LaTeX table: those of a row to those of the columns.

    Columns are the numbers of rows. Chosen arms stand in their order; else, of more than `MOST_PAIRED_ROWS` those with the
    greatest means. Nothing where fewer than two arms are left.

    Args:
        pairs: by all measures.
        measures: of the pairs; the first, or the first chosen one, is shown.
        arms: that are compared, the best first.
        test: as LaTeX, in words.
        table: choice of arms and measures, digits, marks, caption, label.

    Raises:
        ConfigError: a chosen measure does not exist.
    """
    measure = chosen_measures(table, measures)[0]
    shown = [arm for arm in table.arms if arm in arms] if table.arms else arms[:MOST_PAIRED_ROWS]
    if len(shown) < 2:
        return ""
    of = {(one.arm, one.other): one for one in pairs if one.measure == measure}

    def cell(arm: str, other: str) -> str:
        if arm == other:
            return "--"
        one, up = (of[arm, other], 1) if (arm, other) in of else (of[other, arm], -1)
        difference = up * one.difference
        sign = "$-$" if difference < 0 else "+"
        return sign + mean_words(abs(difference), table) + significance(difference, one.deciding, table)

    said = [f"Differences in {latex(measure)}, row less column, of every two arms"]
    if marks := levels(table):
        said.append(f"{marks}: {test}, corrected over all {len(of):,} pairs")
    left_out = 0 if table.arms else len(arms) - len(shown)
    said += [f"{left_out:,} arms with lower {latex(measure)} are left out"] * bool(left_out)
    rows = [
        row([f"({n}) {shown_name(table, arm)}", *(cell(arm, other) for other in shown)]) for n, arm in enumerate(shown, start=1)
    ]
    heads = row(["Arm", *(f"({n})" for n in range(1, len(shown) + 1))])
    return framed(ruled([[heads], rows]), "l" + "r" * len(shown), ". ".join(said) + ".", table)

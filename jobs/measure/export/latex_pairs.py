"""The table of every two arms for LaTeX, on one set or over several."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.measure.compare.pairs import ArmPair
from jobs.measure.compare.standing import PLACES, pair_mark
from jobs.measure.export.latex_cells import DEFAULT_TABLE, SIGNS, framed, latex, levels

MOST_PAIRED_ROWS = 12


def pairs_table(pairs: Sequence[ArmPair], measure: str, arms: Sequence[str], test: str) -> str:
    r"""Returns the differences of every two arms by one measure as a LaTeX table: those of a row to those of the columns.

    Columns are the numbers of rows; of more than `MOST_PAIRED_ROWS` arms those with the greatest means stand there.

    Args:
        pairs: by all measures.
        measure: the one that is shown.
        arms: that are compared, the best first.
        test: as LaTeX, in words.
    """
    shown = arms[:MOST_PAIRED_ROWS]
    of = {(one.arm, one.other): one for one in pairs if one.measure == measure}

    def cell(arm: str, other: str) -> str:
        if arm == other:
            return "--"
        one, up = (of[arm, other], 1) if (arm, other) in of else (of[other, arm], -1)
        value = f"{up * one.difference:+.{PLACES}f}".replace("-", "$-$")
        return value + "".join(SIGNS[sign] for sign in pair_mark(one))

    said = [
        f"Differences in {latex(measure)}, row less column, of every two arms",
        f"{levels(DEFAULT_TABLE)}: {test}, corrected over all {len(of):,} pairs",
    ]
    said += [f"{len(arms) - len(shown):,} arms with lower {latex(measure)} are left out"] * (len(arms) > len(shown))
    rows = [
        " & ".join([f"({n}) {latex(arm)}", *(cell(arm, other) for other in shown)]) + r" \\"
        for n, arm in enumerate(shown, start=1)
    ]
    heads = " & ".join(["Arm", *(f"({n})" for n in range(1, len(shown) + 1))]) + r" \\"
    return framed([heads, r"\midrule", *rows], "l" + "r" * len(shown), ". ".join(said) + ".", DEFAULT_TABLE)

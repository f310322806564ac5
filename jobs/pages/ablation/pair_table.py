"""The table of every two arms: what a row has more or less than a column, by the first measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.measure.compare.pairs import ArmPair
from jobs.measure.compare.standing import pair_mark

MOST_COLUMNS = 20


@dataclass(frozen=True)
class PairCell:
    """The difference of a row's arm to a column's."""

    difference: float
    low: float
    high: float
    p: float | None
    """Corrected; None: not known."""
    mark: str
    equivalent: bool


@dataclass(frozen=True)
class PairTable:
    """The arms, the best first, each with its differences to the arms of the columns; None: to itself."""

    columns: list[str]
    rows: list[tuple[str, list[PairCell | None]]]
    left_out: int
    """Arms without a column: those with the least means."""
    pairs: int
    greatest: float
    """Absolute difference, for the shades."""
    measure: str
    min_effect: float
    """Within which two arms are equivalent."""

    def share(self, difference: float) -> float:
        """Returns the absolute difference in percent of the greatest."""
        return 100 * abs(difference) / self.greatest


def pair_table(pairs: Sequence[ArmPair], measure: str, ordered: Sequence[str], min_effect: float) -> PairTable | None:
    """Returns the table; None where pairs are not compared.

    Args:
        pairs: by all measures.
        measure: the one that is shown.
        ordered: all arms, the best first.
        min_effect: within which two arms are equivalent.
    """
    pairs = [one for one in pairs if one.measure == measure]
    if not pairs:
        return None
    cells: dict[tuple[str, str], PairCell] = {}
    for one in pairs:
        known = one.corrected, pair_mark(one), one.equivalent
        cells[one.arm, one.other] = PairCell(one.difference, one.low, one.high, *known)
        cells[one.other, one.arm] = PairCell(-one.difference, -one.high, -one.low, *known)
    paired = {arm for one in pairs for arm in (one.arm, one.other)}
    arms = [arm for arm in ordered if arm in paired]
    columns = arms[:MOST_COLUMNS]
    rows = [(arm, [cells.get((arm, other)) for other in columns]) for arm in arms]
    greatest = max(abs(one.difference) for one in pairs) or 1.0
    return PairTable(columns, rows, len(arms) - len(columns), len(pairs), greatest, measure, min_effect)

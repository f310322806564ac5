"""The arms part by part: a table per slice, shaded by the difference to the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.measure.compare.comparison import Slice

MOST_ARMS = 8  # beside the baseline


@dataclass(frozen=True)
class SliceTable:
    """The parts of one slice, and the arms that are shown."""

    name: str
    arms: list[str]
    parts: list[Slice]
    greatest: float
    """Absolute difference, for the shades."""

    def share(self, difference: float) -> float:
        """Returns the absolute difference in percent of the greatest."""
        return 100 * abs(difference) / self.greatest


def slice_tables(slices: Sequence[Slice], arms: Sequence[str], baseline: str) -> list[SliceTable]:
    """Returns a table per slice.

    Args:
        slices: the parts, those of a slice in a row.
        arms: the arms to show, the most important first.
        baseline: the arm that stands first.
    """
    tables = []
    for name, of in groupby(slices, key=lambda one: one.name):
        parts = list(of)
        known = [arm for arm in [baseline, *arms] if any(arm in part.means for part in parts)][: MOST_ARMS + 1]
        moved = [abs(part.means[arm][1]) for part in parts for arm in known if arm in part.means and arm != baseline]
        tables.append(SliceTable(name, known, parts, max(moved, default=0.0) or 1.0))
    return tables

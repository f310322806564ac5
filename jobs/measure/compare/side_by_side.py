"""The means of all that was measured of an ablation's arms side by side: of their lists, and of their answers.

Each group of measures has its own queries, tests and judge, as its own tables have; arms that a group does not measure have no
mean there. Criteria are shown by their mean alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jobs.chain.arms.judging import CRITERIA
from jobs.measure.compare.difference import Comparison
from jobs.measure.compare.standing import Standing, mark, standing


class ArmMean(NamedTuple):
    """The mean of an arm by one measure."""

    value: float
    place: str
    """best, second, or nothing."""
    mark: str
    """Of a significant difference to the baseline, and of lists that were cut."""


@dataclass(frozen=True)
class MeasureGroup:
    """The measures of one comparison."""

    standing: Standing
    measures: tuple[str, ...]

    def mean(self, arm: str, measure: str) -> ArmMean | None:
        """Returns the mean of an arm; None where it is not measured."""
        found = self.standing
        if arm not in found.means:
            return None
        place = "best" if arm in found.best[measure] else "second" if arm in found.second[measure] else ""
        return ArmMean(found.means[arm][measure], place, mark(found.differences.get((arm, measure))))


@dataclass(frozen=True)
class SideBySide:
    """All groups, and the arms of any: the baselines first, then by the first measure of the first group."""

    groups: tuple[MeasureGroup, ...]
    arms: tuple[str, ...]

    @property
    def warnings(self) -> list[str]:
        """Returns what the judges of the groups are warned of, each once."""
        judges = [judge for one in self.groups if (judge := one.standing.comparison.frame.judge) is not None]
        return list(dict.fromkeys(note for judge in judges for note in judge.notes if note.startswith("warning: ")))

    def means(self, arm: str) -> list[ArmMean | None]:
        """Returns the means of an arm by all measures, group by group."""
        return [group.mean(arm, measure) for group in self.groups for measure in group.measures]


def side_by_side(comparisons: Sequence[Comparison]) -> SideBySide | None:
    """Returns the comparisons side by side; None of fewer than two in which something was measured."""
    found = [standing(one) for one in comparisons if one.differences]
    if len(found) < 2:
        return None
    ordered = dict.fromkeys(arm for one in found for arm in (*one.comparison.of_baselines, *one.ordered()))
    groups = [MeasureGroup(one, _measures(one.comparison)) for one in found]
    return SideBySide(tuple(groups), tuple(ordered))


def _measures(comparison: Comparison) -> tuple[str, ...]:
    measures = comparison.frame.measures
    return measures[:1] if comparison.frame.kind == CRITERIA else measures

"""How the arms of a comparison stand: means, the best two, verdicts in words.

The report's page and the terminal's tables read them here, so that both say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jobs.measure.comparison import Comparison, Difference
from jobs.measure.significance import EQUIVALENT, SAMPLES, Floats

PLACES = 4  # of a printed measure
FAMILIES = {
    "always": "the config itself, the original, each strategy alone",
    "arms": "arms of ablate.arms",
    "subsets": "subsets of the strategies",
    "grid": "combinations of ablate.grid",
    SAMPLES: "the config itself again, with answers of its own",
}
"""Family -> what its arms are."""


@dataclass(frozen=True)
class Standing:
    """The means of each arm, and who is best. Oracle arms are upper bounds and samples repeat an arm: they are never best."""

    comparison: Comparison
    means: dict[str, dict[str, float]]
    """Arm -> measure -> mean over the counted keys."""
    best: dict[str, frozenset[str]]
    """Measure -> the arms with the greatest mean, as printed."""
    second: dict[str, frozenset[str]]
    differences: dict[tuple[str, str], Difference]
    """Arm and measure -> its difference; without those of the baseline."""

    @property
    def first(self) -> str:
        """Returns the measure by which arms are ordered."""
        return self.comparison.frame.measures[0]

    def contends(self, arm: str) -> bool:
        """Returns whether an arm may be called best."""
        return arm not in self.comparison.oracles and self.comparison.families.get(arm) != SAMPLES

    def ordered(self) -> list[str]:
        """Returns the arms by the mean of the first measure, the best first; equal ones as they were given."""
        return sorted(self.comparison.frame.arms, key=lambda arm: -self.means[arm][self.first])

    @property
    def leader(self) -> str | None:
        """Returns the best arm that is compared with another; None where there is none."""
        left_out = self.comparison.untested | {self.comparison.baseline}
        return next((arm for arm in self.ordered() if self.contends(arm) and arm not in left_out), None)


def standing(comparison: Comparison) -> Standing:
    """Returns how the arms of a comparison with at least one counted key stand."""
    frame = comparison.frame
    means = _by_name(frame.arms, frame.measures, frame.values.mean(axis=2))
    able = [arm for arm in frame.arms if arm not in comparison.oracles and comparison.families.get(arm) != SAMPLES]
    by_measure = {measure: _best_two({arm: means[arm][measure] for arm in able}) for measure in frame.measures}
    return Standing(
        comparison,
        means,
        {measure: first for measure, (first, _) in by_measure.items()},
        {measure: second for measure, (_, second) in by_measure.items()},
        {(one.arm, one.measure): one for one in comparison.differences if one.arm != comparison.baseline},
    )


def _by_name(arms: Iterable[str], measures: Iterable[str], values: Floats) -> dict[str, dict[str, float]]:
    names = list(measures)
    return {arm: dict(zip(names, row, strict=True)) for arm, row in zip(arms, values.tolist(), strict=True)}


def _best_two(means: Mapping[str, float]) -> tuple[frozenset[str], frozenset[str]]:
    """Returns the arms with the greatest and with the second greatest printed mean; no second where all are equal."""
    printed = {arm: round(value, PLACES) for arm, value in means.items()}
    ranked = [*sorted({*printed.values()}, reverse=True), None, None]
    first, second = (frozenset(arm for arm, value in printed.items() if value == of) for of in ranked[:2])
    return first, second


def verdict_words(difference: Difference, margin: float) -> str:
    """Returns the verdict; of a clear difference, too, whether it is within the margin of equivalence."""
    clear = difference.equivalent and difference.verdict != EQUIVALENT
    return f"{difference.verdict}, by less than {margin:g}" if clear else difference.verdict

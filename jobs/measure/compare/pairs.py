"""Every two arms of an ablation compared, each measure on its own.

The tests of arms against their baselines are some of these pairs. So where all pairs are compared, the correction is over all:
by Holm's method of pairs of arms with a question of their own, by false discovery rates of pairs with an arm of the grid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jobs.measure.arrays import Floats
from jobs.measure.compare.corrections import GRID, Corrected, MeanTest, adjusted, seen_from
from jobs.measure.frame import Frame
from jobs.measure.significance import ALPHA, PairedTest


@dataclass(frozen=True)
class ArmPair(Corrected):
    """One arm against another by one measure; `arm` stands before `other` in the ablation."""

    arm: str
    other: str
    measure: str
    difference: float
    """Mean difference, arm - other."""
    low: float
    """Lower end of its 95 % interval."""
    high: float
    p: float
    """Two-sided paired t-test over clusters."""
    p_equivalent: float
    """The greater p of the two one-sided tests that the difference is within `min_effect`."""
    p_holm: float | None = None
    """`p` adjusted over all pairs without an arm of the grid."""
    q: float | None = None
    """False discovery rate among the pairs with an arm of the grid."""
    detectable: float | None = None
    """Smallest true difference that the test finds with a power of 80 %, at .05 over the number of pairs corrected together."""
    within_noise: bool = False
    """Whether the two are nearer to each other than the judge's noise."""

    @property
    def equivalent(self) -> bool:
        """Returns whether the two are equivalent within the smallest difference that matters."""
        return not self.within_noise and self.corrected is not None and self.p_equivalent < ALPHA


def pairs_of(frame: Frame, arms: Sequence[str], families: Mapping[str, str], min_effect: float) -> list[ArmPair]:
    """Returns every two arms of a frame compared, by measure.

    Args:
        frame: with at least one key.
        arms: those that are compared, in its order; each another system.
        families: arm -> family.
        min_effect: the smallest difference that matters.
    """

    def test(arm: str, others: Sequence[str], measure: str) -> tuple[PairedTest, Floats]:
        pairs = [(frame.arms.index(arm), frame.arms.index(other)) for other in others]
        place = frame.measures.index(measure)
        found = frame.difference_test(pairs, place)
        return found, frame.equivalence_p(found, place, min_effect)

    noise = dict(zip(frame.measures, frame.noise, strict=True)) if frame.noise else {}
    return [pair for name in frame.measures for pair in paired(arms, name, families, test, noise.get(name, 0.0))]


def paired(
    arms: Sequence[str],
    measure: str,
    families: Mapping[str, str],
    test: Callable[[str, Sequence[str], str], tuple[MeanTest, Floats]],
    noise: float = 0.0,
) -> list[ArmPair]:
    """Returns every two arms compared by one measure, corrected over all pairs.

    Args:
        arms: in the order of the ablation.
        measure: by which.
        families: arm -> family.
        test: returns of an arm, others and the measure the test of its differences to them, and the p of their equivalence.
        noise: of a judge: nearer pairs are not ordered.
    """
    found: list[ArmPair] = []
    tests: list[MeanTest] = []
    for n, arm in enumerate(arms[:-1]):
        others = arms[n + 1 :]
        one, equivalent = test(arm, others, measure)
        tests.append(one)
        columns: dict[str, Any] = {"difference": one.mean, "low": one.low, "high": one.high, "p": one.p}
        columns["p_equivalent"] = equivalent
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        for other, row in zip(others, rows, strict=True):
            values = dict(zip(columns, row, strict=True))
            found.append(ArmPair(arm, other, measure, **values, within_noise=abs(values["difference"]) < noise))
    grid = [GRID in (families[one.arm], families[one.other]) for one in found]
    p_holm, q = adjusted(
        np.array([one.p for one in found]), [n for n, of in enumerate(grid) if not of], [n for n, of in enumerate(grid) if of]
    )
    seen = seen_from(tests, p_holm, q)
    return [replace(one, p_holm=p_holm.get(n), q=q.get(n), detectable=seen.get(n)) for n, one in enumerate(found)]


def pair_finder(pairs: Sequence[ArmPair], same_as: Mapping[str, str]) -> Callable[[str, str, str], ArmPair | None]:
    """Returns what finds the pair of two arms, in either order, by a measure; `same_as`: another name of an arm -> the arm."""
    of = {(*sorted((one.arm, one.other)), one.measure): one for one in pairs}
    return lambda arm, other, measure: of.get((*sorted(same_as.get(name, name) for name in (arm, other)), measure))

"""Every two arms of an ablation compared, each measure on its own.

The tests of arms against their baselines are some of these pairs. So where all pairs are compared, the correction is over all:
by Holm's method of pairs of arms with a question of their own, by false discovery rates of pairs with an arm of the grid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jobs.measure.compare.corrections import GRID, Corrected, adjusted, seen_from
from jobs.measure.frame import Frame
from jobs.measure.significance import ALPHA, PairedTest, better_or_worse, equivalence_p


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
    def verdict(self) -> str | None:
        """Returns whether `arm` is better or worse than `other`; None: neither is clear."""
        return None if self.within_noise else better_or_worse(self.difference, self.corrected)

    @property
    def equivalent(self) -> bool:
        """Returns whether the two are equivalent within the smallest difference that matters."""
        return not self.within_noise and self.corrected is not None and self.p_equivalent < ALPHA


def pairs_of(frame: Frame, arms: Sequence[str], families: Mapping[str, str], min_effect: float) -> list[ArmPair]:
    """Returns every two arms compared, by measure.

    Args:
        frame: with at least one key.
        arms: those that are compared, in its order; each another system.
        families: arm -> family.
        min_effect: the smallest difference that matters.
    """
    places = [frame.arms.index(arm) for arm in arms]
    found: list[ArmPair] = []
    for measure, name in enumerate(frame.measures):
        noise = frame.noise[measure] if frame.noise else 0.0
        of_measure: list[ArmPair] = []
        errors: list[PairedTest] = []
        for n, place in enumerate(places[:-1]):
            others = places[n + 1 :]
            test = frame.difference_test([(place, other) for other in others], measure)
            errors.append(test)
            columns: dict[str, Any] = {"difference": test.mean, "low": test.low, "high": test.high, "p": test.p}
            columns["p_equivalent"] = equivalence_p(test, min_effect)
            rows = zip(*(column.tolist() for column in columns.values()), strict=True)
            for other, row in zip(others, rows, strict=True):
                values = dict(zip(columns, row, strict=True))
                near = abs(values["difference"]) < noise
                of_measure.append(ArmPair(frame.arms[place], frame.arms[other], name, **values, within_noise=near))
        p = np.array([one.p for one in of_measure])
        grid = [GRID in (families[one.arm], families[one.other]) for one in of_measure]
        p_holm, q = adjusted(p, [n for n, of in enumerate(grid) if not of], [n for n, of in enumerate(grid) if of])
        seen = seen_from(errors, p_holm, q)
        found += [replace(one, p_holm=p_holm.get(n), q=q.get(n), detectable=seen.get(n)) for n, one in enumerate(of_measure)]
    return found

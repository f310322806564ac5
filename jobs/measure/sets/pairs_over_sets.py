"""Every two arms compared over several data sets, by the test of the mean over sets, where each set compares them, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jobs.measure.arrays import Floats
from jobs.measure.compare.difference import Comparison
from jobs.measure.compare.pairs import ArmPair, paired
from jobs.measure.sets.stratified import StratifiedTest, stratified_equivalence_p, stratified_test
from jobs.measure.significance import PairedTest

if TYPE_CHECKING:
    from jobs.measure.sets.over_sets import SetsComparison


def pairs_over_sets(found: SetsComparison) -> list[ArmPair]:
    """Returns every two arms compared over sets, by measure; none where the sets do not compare them.

    Arms are those that every set pairs: neither bounds nor samples, and no second name of another arm.
    """
    every = [{arm for one in of.pairs for arm in (one.arm, one.other)} for of in found.sets.values()]
    arms = [arm for arm in found.arms if every and all(arm in paired_there for paired_there in every)]

    def test(arm: str, others: Sequence[str], measure: str) -> tuple[StratifiedTest, Floats]:
        one = stratified_test([_on_set(of, arm, others, measure) for of in found.sets.values()])
        return one, stratified_equivalence_p(one, found.min_effect)

    return [
        pair for measure in found.measures for pair in paired(arms, measure, found.families, test, found.noise(None, measure))
    ]


def same_on_sets(sets: Mapping[str, Comparison]) -> dict[str, str]:
    """Returns another name of an arm -> the arm, where it is so on any set."""
    return {arm: other for one in sets.values() for arm, other in one.same_as.items()}


def _on_set(one: Comparison, arm: str, others: Sequence[str], measure: str) -> PairedTest:
    place = one.frame.arms.index(arm)
    pairs = [(place, one.frame.arms.index(other)) for other in others]
    return one.frame.difference_test(pairs, one.frame.measures.index(measure))

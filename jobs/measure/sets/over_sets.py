"""The comparison of arms over several data sets: each arm's mean over the sets' means, tested against the baseline.

Each set has its own comparison, with its own tests and corrections. Over the sets, the difference of the means over sets is
tested (`jobs/measure/sets/stratified.py`), and p is corrected as on one set: by Holm over the arms with a question of their
own, by false discovery rates over the grid, each measure a family of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cluster.errors import ConfigError
from jobs.measure.arrays import Floats
from jobs.measure.compare.corrections import GRID, QUESTIONS, Corrected, adjusted, seen_from
from jobs.measure.compare.difference import Comparison, Difference, by_baseline
from jobs.measure.compare.pairs import ArmPair, pair_finder
from jobs.measure.compare.standing import PLACES, REPEATED, places
from jobs.measure.sets.pairs_over_sets import pairs_over_sets, same_on_sets
from jobs.measure.sets.set_notes import over_sets_notes
from jobs.measure.sets.stratified import (
    heterogeneity_p,
    mean_ranks,
    signed_rank_p,
    stratified_equivalence_p,
    stratified_sums,
    stratified_test,
)
from jobs.measure.significance import TIE, PairedTest, randomised_p


@dataclass(frozen=True)
class OverSets(Corrected):
    """One arm to the baseline by one measure over all measured sets; NaN where it is unknown."""

    arm: str
    measure: str
    mean: float
    """Mean over sets of the arm's mean on each."""
    difference: float
    """Mean over sets of the mean difference to the baseline."""
    low: float
    """Lower end of its 95 % interval, on these sets."""
    high: float
    p: float
    """Two-sided t-test, the sets as strata: the primary test."""
    p_randomised: float
    """Two-sided randomisation test within sets, its check."""
    p_holm: float | None
    q: float | None
    p_equivalent: float
    """The greater p of the two one-sided tests that the difference is within `min_effect`."""
    freedom: float
    """Degrees of freedom."""
    wins: int
    """Sets on which the arm's mean is higher."""
    ties: int
    losses: int
    better: int
    """Sets on which it is better by the corrected test of that set."""
    worse: int
    rank: float | None
    """Mean over sets of its rank among the arms; None of arms that take part in no contest."""
    p_sets: float
    """Signed-rank test with a set as one draw; NaN of fewer than six sets."""
    p_heterogeneity: float
    """Cochran's Q: whether the difference is the same on all sets."""
    detectable: float | None = None
    """Smallest true difference that the test finds with a power of 80 %, at .05 over the number of tests corrected together."""
    baseline: str = ""
    """The arm that it is compared with; itself: with none."""
    within_noise: bool = False
    """Whether the arm is nearer to the baseline than the judge's noise (`SetsComparison.noise`): then the judge does not order
    them."""


@dataclass(frozen=True)
class SetsComparison:
    """The arms that all sets have, on each set and over all that are measured."""

    sets: Mapping[str, Comparison]
    """Name -> the comparison on the set; those in which something was measured."""
    arms: tuple[str, ...]
    """In the order of the first set."""
    measures: tuple[str, ...]
    baseline: str
    min_effect: float
    families: Mapping[str, str]
    over: Mapping[tuple[str, str], OverSets]
    """Arm and measure -> over all sets; empty where no set is measured."""
    notes: tuple[str, ...]
    pairs: tuple[ArmPair, ...] = ()
    """Every two arms over sets, where the sets compare them, too."""

    @cached_property
    def oracles(self) -> frozenset[str]:
        """Returns the arms that are bounds."""
        return frozenset(arm for one in self.sets.values() for arm in one.oracles)

    @cached_property
    def untested(self) -> frozenset[str]:
        """Returns the arms that are tested under another name, or are the baseline under another name, on any set."""
        return frozenset(arm for one in self.sets.values() for arm in one.untested)

    def base_of(self, arm: str) -> str:
        """Returns the arm that an arm is compared with; itself, where it is compared with none."""
        one = next(iter(self.sets.values()), None)
        return self.baseline if one is None else one.base_of(arm)

    def is_baseline(self, arm: str) -> bool:
        """Returns whether an arm is compared with none."""
        return self.base_of(arm) == arm

    @property
    def of_baselines(self) -> dict[str, list[str]]:
        """Returns baseline -> the arms that are compared with it; itself is not among them."""
        return by_baseline({arm: self.base_of(arm) for arm in self.arms})

    @property
    def baselines(self) -> list[str]:
        """Returns the arms that others are compared with."""
        return list(self.of_baselines)

    @property
    def against(self) -> str:
        """Returns what arms are compared with, in words: the baseline, or of several "its baseline"."""
        return self.baseline if len(self.baselines) < 2 else "its baseline"

    def named(self, arm: str) -> str:
        """Returns the name of an arm, with its mark where it reads a part of a joint answer on any set."""
        return next((named for one in self.sets.values() if (named := one.named(arm)) != arm), arm)

    @property
    def noisy(self) -> bool:
        """Returns whether the noise of a judge is known on any set."""
        return any(one.frame.noise for one in self.sets.values())

    def noise(self, name: str | None, measure: str) -> float:
        """Returns the judge's noise on a set; over all (None) the mean of the sets', 0 where people judged."""
        chosen = self.sets.values() if name is None else [self.sets[name]]
        found = [one.frame.noise[one.frame.measures.index(measure)] if one.frame.noise else 0.0 for one in chosen]
        return sum(found) / len(found)

    @property
    def first(self) -> str:
        """Returns the measure by which arms are ordered."""
        return self.measures[0]

    @property
    def columns(self) -> list[tuple[str | None, str]]:
        """Returns set and measure of each column, None for the mean over sets: measure by measure."""
        return [(name, measure) for measure in self.measures for name in (*self.sets, None)]

    def mean(self, arm: str, name: str | None, measure: str) -> float:
        """Returns the mean of an arm on a set, or over all (None)."""
        return self.over[arm, measure].mean if name is None else self.sets[name].by_arm[arm, measure].mean

    def tested(self, arm: str, name: str | None, measure: str) -> Difference | OverSets:
        """Returns the difference to the baseline on a set, or over all (None)."""
        return self.over[arm, measure] if name is None else self.sets[name].by_arm[arm, measure]

    def cut(self, arm: str, name: str | None, measure: str) -> bool:
        """Returns whether an arm's lists were cut above the measure's depth on a set, or on any (None)."""
        chosen = self.sets.values() if name is None else [self.sets[name]]
        return any(one.by_arm[arm, measure].looked is not None for one in chosen)

    def tested_in(self, *families: str) -> list[str]:
        """Returns the arms of some families that are tested over sets."""
        left_out = {*self.oracles, *self.untested}
        compared = [arm for arm in self.arms if not self.is_baseline(arm) and arm not in left_out]
        return [arm for arm in compared if self.families[arm] in families]

    def contends(self, arm: str) -> bool:
        """Returns whether an arm may be called best."""
        return arm not in self.oracles and self.families.get(arm) != REPEATED

    def ordered(self) -> list[str]:
        """Returns the arms by the mean over sets of the first measure, the best first; equal ones as they were given."""
        return sorted(self.arms, key=lambda arm: -self.over[arm, self.first].mean)

    def places(self, name: str | None, measure: str, arms: Sequence[str] | None = None, digits: int = PLACES) -> dict[str, str]:
        """Returns arm -> `best` or `second` of a column, by the means as they are printed.

        Args:
            name: of the set; None: over all.
            measure: of the column.
            arms: that are compared; None: all.
            digits: of a printed mean.
        """
        able = [arm for arm in (self.arms if arms is None else arms) if self.contends(arm)]
        best, second = places({arm: self.mean(arm, name, measure) for arm in able}, self.noise(name, measure), digits)
        return dict.fromkeys(second, "second") | dict.fromkeys(best, "best")


def compare_over_sets(sets: Mapping[str, Comparison], without: Sequence[str] = ()) -> SetsComparison:
    """Returns the comparison over sets of their comparisons by one kind of measures.

    Args:
        sets: name -> comparison.
        without: names of sets that have no such comparison.

    Raises:
        ConfigError: the sets have no measure in common, or other baselines.
    """
    measured = {name: one for name, one in sets.items() if one.differences}
    one = next(iter(measured.values()), next(iter(sets.values())))
    baselines = list(dict.fromkeys(other.baseline for other in measured.values()))
    if len(baselines) > 1:
        raise ConfigError("config-value", f"evaluate.baseline: is {' on one set, '.join(baselines)} on another; name an arm "
                          "that is one system on all sets")  # fmt: skip
    of_all = [arm for arm in one.frame.arms if all(arm in other.frame.arms for other in measured.values())]
    arms = tuple(arm for arm in of_all if one.base_of(arm) in of_all)
    for arm, other in ((arm, other) for arm in arms for other in measured.values() if other.base_of(arm) != one.base_of(arm)):
        what = f"evaluate.baselines: {arm} is compared with {one.base_of(arm)} on one set, with {other.base_of(arm)} on another"
        raise ConfigError("config-value", f"{what}; name an arm that is one system on all sets")
    measures = tuple(name for name in one.frame.measures if all(name in of.frame.measures for of in measured.values()))
    if not measures:
        raise ConfigError("config-value", "evaluate.measures: no measure is of all sets; name some, like nDCG@10")
    families = {arm: one.families[arm] for arm in arms}
    found = SetsComparison(measured, arms, measures, one.baseline, one.min_effect, families, {}, ())
    if measured:
        pairs = pairs_over_sets(found)
        over = [of for measure in measures for of in _of_measure(found, measure)]
        over = _over_pairs(over, pairs, same_on_sets(measured)) if pairs else over
        found = replace(found, over={(of.arm, of.measure): of for of in over}, pairs=tuple(pairs))
    return replace(found, notes=tuple(over_sets_notes(found, sets, without)))


def _over_pairs(over: Sequence[OverSets], pairs: Sequence[ArmPair], same_as: Mapping[str, str]) -> list[OverSets]:
    """Returns differences whose corrections are those of their pairs, so that one comparison has one p."""
    pair_of = pair_finder(pairs, same_as)
    found = []
    for one in over:
        pair = None if one.corrected is None else pair_of(one.arm, one.baseline, one.measure)
        found.append(one if pair is None else replace(one, p_holm=pair.p_holm, q=pair.q, detectable=pair.detectable))
    return found


def _of_measure(found: SetsComparison, measure: str) -> list[OverSets]:
    """Returns all arms by one measure."""
    arms, bases = found.arms, [found.arms.index(found.base_of(arm)) for arm in found.arms]
    values = [_values(one, arms, measure) for one in found.sets.values()]
    series = [of - of[bases] for of in values]
    clusters = [one.frame.clusters for one in found.sets.values()]
    parts = [_test(one, found, measure) for one in found.sets.values()]
    test = stratified_test(parts)
    means, differences = (np.stack([of.mean(axis=1) for of in many], axis=1) for many in (values, series))
    randomised = np.where(np.isnan(test.p), np.nan, randomised_p(stratified_sums(list(zip(series, clusters, strict=True)))))
    in_question, in_grid = ([arms.index(arm) for arm in found.tested_in(*wanted)] for wanted in (QUESTIONS, (GRID,)))
    p_holm, q = adjusted(test.p, in_question, in_grid)
    seen = seen_from([test], p_holm, q)
    contending = [n for n, arm in enumerate(arms) if found.contends(arm)]
    ranks = dict(zip(contending, mean_ranks(means[contending]).tolist(), strict=True))
    equivalent, by_sets, apart = (
        stratified_equivalence_p(test, found.min_effect),
        signed_rank_p(differences),
        heterogeneity_p(parts),
    )
    noise = found.noise(None, measure)
    verdicts = [[of.by_arm[arm, measure].verdict for of in found.sets.values()] for arm in arms]
    wins, losses = (differences > TIE).sum(axis=1).tolist(), (differences < -TIE).sum(axis=1).tolist()
    return [
        OverSets(
            arm=arm,
            measure=measure,
            mean=float(means[n].mean()),
            difference=float(test.mean[n]),
            low=float(test.low[n]),
            high=float(test.high[n]),
            p=float(test.p[n]),
            p_randomised=float(randomised[n]),
            p_holm=p_holm.get(n),
            q=q.get(n),
            p_equivalent=float(equivalent[n]),
            freedom=float(test.freedom[n]),
            wins=wins[n],
            ties=len(found.sets) - wins[n] - losses[n],
            losses=losses[n],
            better=verdicts[n].count("better"),
            worse=verdicts[n].count("worse"),
            rank=ranks.get(n),
            p_sets=float(by_sets[n]),
            p_heterogeneity=float(apart[n]),
            detectable=seen.get(n),
            baseline=arms[bases[n]],
            within_noise=bases[n] != n and abs(float(test.mean[n])) < noise,
        )
        for n, arm in enumerate(arms)
    ]


def _test(one: Comparison, found: SetsComparison, measure: str) -> PairedTest:
    """Returns the test of each arm against its baseline on one set, which counts the seeds of its arms."""
    number = {arm: place for place, arm in enumerate(one.frame.arms)}
    pairs = [(number[arm], number[found.base_of(arm)]) for arm in found.arms]
    return one.frame.difference_test(pairs, one.frame.measures.index(measure))


def _values(one: Comparison, arms: Sequence[str], measure: str) -> Floats:
    """Returns (arms, keys): the values of arms on one set by a measure."""
    places = [one.frame.arms.index(arm) for arm in arms]
    found: Floats = one.frame.values[places, one.frame.measures.index(measure)]
    return found

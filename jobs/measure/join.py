"""Joins the comparisons of several ablations, each of one data set: means over sets, and one test of each arm over all.

The test is a t-test of the mean over sets of the mean differences to the baseline, with the sets as strata: the queries of a
set are drawn independently of those of another, so that the variance of the mean over S sets is the sum of the sets' variances
over S^2, with Satterthwaite's degrees of freedom. For two sets it is Welch's t-test. It holds for any number of sets, and says
nothing of sets that were not measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cluster.errors import ConfigError
from jobs.measure.comparison import Comparison
from jobs.measure.notes import HEADINGS
from jobs.measure.significance import TIE, Corrected, PairedTest, adjusted, t_test
from jobs.terminal.formats import and_more


@dataclass(frozen=True)
class JoinedArm(Corrected):
    """The figures of an arm by one measure, on one set or over all sets; NaN where a figure is unknown."""

    set: str | None  # the name of the ablation; None: the mean over sets, each with the same weight
    arm: str
    family: str
    measure: str
    mean: float
    difference: float
    low: float
    high: float
    p: float
    p_holm: float | None
    q: float | None


@dataclass(frozen=True)
class Joined:
    """The arms that all sets have, by the measures that all sets have."""

    kind: str
    baseline: str
    sets: Mapping[str, Comparison]
    measures: tuple[str, ...]
    rows: tuple[JoinedArm, ...]
    notes: tuple[str, ...]


def join(sets: Mapping[str, Sequence[Comparison]]) -> list[Joined]:
    """Joins the comparisons of each kind (lists, answers, ...) that every set has.

    Raises:
        ConfigError: the sets have no kind or no measure in common, other baselines, or judgements of other origins.
    """
    measured = {name: {one.frame.kind: one for one in every if one.differences} for name, every in sets.items()}
    for name in (name for name, kinds in measured.items() if not kinds):
        raise ConfigError("judgements", f"{name}: nothing is measured; evaluate it alone, or leave it out")
    kinds = [kind for kind in HEADINGS if all(kind in one for one in measured.values())]
    if not kinds:
        raise ConfigError("judgements", "the ablations have no kind of judgements in common; give them judgements of one kind")
    return [_joined(kind, {name: one[kind] for name, one in measured.items()}) for kind in kinds]


def stratified_test(parts: Sequence[PairedTest]) -> PairedTest:
    """Returns the test of the mean over sets of the tests of the same series; NaN where a set has no variance."""
    mean = np.mean([one.mean for one in parts], axis=0)
    variances = np.square([one.error for one in parts]) / len(parts) ** 2
    each = np.array([one.freedom for one in parts])
    with np.errstate(divide="ignore", invalid="ignore"):
        total = variances.sum(axis=0)
        freedom = np.where(total > 0, total**2 / (variances**2 / each).sum(axis=0), each.sum(axis=0))
    freedom[np.isnan(total)] = np.nan
    mean = np.where(np.abs(mean) <= TIE, 0.0, mean)
    error = np.where(np.sqrt(total) <= TIE, 0.0, np.sqrt(total))
    return t_test(mean, error, freedom)


def _joined(kind: str, sets: Mapping[str, Comparison]) -> Joined:
    first = next(iter(sets.values()))
    baseline = _one_of({name: one.baseline for name, one in sets.items()}, "evaluate.baseline", "give one with --baseline")
    judges = {name: "people" if one.frame.judge is None else "an LLM" for name, one in sets.items()}
    _one_of(judges, f"{HEADINGS[kind]} are judged by", "give judgements in evaluate.qrels, or --judged")
    every = list(dict.fromkeys(arm for one in sets.values() for arm in one.frame.arms))
    arms = tuple(arm for arm in every if all(arm in one.frame.arms for one in sets.values()))
    named = list(dict.fromkeys(measure for one in sets.values() for measure in one.frame.measures))
    measures = tuple(measure for measure in named if all(measure in one.frame.measures for one in sets.values()))
    if not measures:
        raise ConfigError("config-value", "evaluate.measures: the ablations have no measure in common; give --measures")
    keys = ", ".join(f"{name} {len(one.frame.keys):,}" for name, one in sets.items())
    notes = [
        f"judged keys: {keys}; each set has the same weight",
        f"over sets: p and the 95 % interval are of a t-test of the mean difference to {baseline} with the sets as strata",
    ]
    for what, left_out in (
        ("arms", [arm for arm in every if arm not in arms]),
        ("measures", [measure for measure in named if measure not in measures]),
    ):
        notes += [f"left out, since not all ablations have these {what}: {and_more(left_out)}"] * bool(left_out)
    notes += [f"{name}: {note}" for name, one in sets.items() for note in one.frame.left_out]
    rows = [row for measure in measures for row in _rows(sets, arms, measure, baseline, first.families)]
    return Joined(kind, baseline, sets, measures, tuple(rows), tuple(notes))


def _one_of(values: Mapping[str, str], subject: str, remedy: str) -> str:
    if len(set(values.values())) > 1:
        each = ", ".join(f"{value} in {name}" for name, value in values.items())
        raise ConfigError("config-value", f"{subject}: {each}; {remedy}")
    return next(iter(values.values()))


def _rows(
    sets: Mapping[str, Comparison], arms: Sequence[str], measure: str, baseline: str, families: Mapping[str, str]
) -> list[JoinedArm]:
    parts = []
    for comparison in sets.values():
        frame, places = comparison.frame, [comparison.frame.arms.index(arm) for arm in arms]
        parts.append(frame.difference_test(places, frame.arms.index(baseline), frame.measures.index(measure)))
    test = stratified_test(parts)
    untested = {baseline}.union(*(comparison.oracles | comparison.untested for comparison in sets.values()))
    p_holm, q = adjusted(test.p, [None if arm in untested else families[arm] for arm in arms])
    rows = []
    for number, arm in enumerate(arms):
        on_sets = {name: comparison.by_arm[arm, measure] for name, comparison in sets.items()}
        for name, one in on_sets.items():
            figures = (one.mean, one.difference, one.low, one.high, one.p, one.p_holm, one.q)
            rows.append(JoinedArm(name, arm, families[arm], measure, *figures))
        gap, mean = test.gap(number), float(np.mean([one.mean for one in on_sets.values()]))
        over = (mean, gap.mean, gap.low, gap.high, gap.p, p_holm.get(number), q.get(number))
        rows.append(JoinedArm(None, arm, families[arm], measure, *over))
    return rows

"""The steps of a tuning: fixed settings and learnt ones, each measured on queries that did not choose it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jobs.measure.significance import Floats
from jobs.tune.objective import Objective, Weighting
from jobs.tune.search import Policy, Rows, learn_policy, learn_retrievers, learn_strategies, policy_values

ALONE, EQUAL, CONFIGURED = "original alone", "equal weights", "the config's weights"
RETRIEVERS, STRATEGIES, SELECTION = "retriever weights", "strategy weights", "selection by type"
LEARNT = (RETRIEVERS, STRATEGIES, SELECTION)


class Setting(NamedTuple):
    """What a config can say: weights, and the strategies of each type of query."""

    weighting: Weighting
    policy: Policy = ()


@dataclass(frozen=True)
class TuningStep:
    """One step with its values.

    Where it is learnt, the value of a query is that of the setting which the other folds chose.
    """

    name: str
    values: Floats
    """Of each query, shape (queries,)."""
    final: Setting
    """The setting that is written: learnt from all queries, or fixed."""
    of_folds: tuple[Setting, ...] = ()
    """What was learnt without each fold; empty where nothing is learnt."""

    @property
    def learnt(self) -> bool:
        """Returns whether queries chose it."""
        return bool(self.of_folds)

    @property
    def mean(self) -> float:
        """Returns the mean of the values."""
        return float(self.values.mean())


class JudgedSample(NamedTuple):
    """The queries by which settings are chosen and measured: cluster, fold and type of each; no types: none to select by."""

    clusters: Rows
    folds: Rows
    types: Sequence[str] | None


def fixed(objective: Objective, name: str, weighting: Weighting) -> TuningStep:
    """Returns a step in which nothing is learnt."""
    return TuningStep(name, objective.values(weighting), Setting(weighting))


def learnt_steps(
    objective: Objective, sample: JudgedSample, start: Weighting, wanted: Sequence[str], tell: Callable[[str], None]
) -> list[TuningStep]:
    """Returns the learnt steps; each goes on from what the one before it has learnt from the same queries.

    Args:
        objective: The measure.
        sample: The queries.
        start: Equal weights.
        wanted: Names of `LEARNT`, in order.
        tell: Called with what is being done, in words.
    """
    count = int(sample.folds.max()) + 1
    parts = [np.flatnonzero(sample.folds != fold) for fold in range(count)] + [np.arange(len(sample.folds))]
    settings, steps = [Setting(start)] * len(parts), []
    for name in wanted:
        for place, rows in enumerate(parts):
            of = "all queries" if place == count else f"fold {place + 1} of {count}"
            tell(f"{name}: {of}, {objective.settings_tried:,} settings tried")
            settings[place] = _learn(name, objective, sample, rows, settings[place])
        values = np.empty(len(sample.folds))
        for fold, setting in enumerate(settings[:-1]):
            held_out = sample.folds == fold
            values[held_out] = policy_values(objective, *setting, sample.types or ())[held_out]
        steps.append(TuningStep(name, values, settings[-1], tuple(settings[:-1])))
    return steps


def _learn(name: str, objective: Objective, sample: JudgedSample, rows: Rows, before: Setting) -> Setting:
    if name == RETRIEVERS:
        return Setting(learn_retrievers(objective, rows, sample.clusters, before.weighting))
    if name == STRATEGIES:
        return Setting(learn_strategies(objective, rows, sample.clusters, before.weighting))
    assert sample.types is not None
    return Setting(before.weighting, learn_policy(objective, rows, sample.clusters, before.weighting, sample.types))

"""How weights and a selection are chosen from some queries: small grids, few numbers, and no change without a gain.

A change is made only where it gains more than two standard errors on these queries (`as_good_as_the_best`, options ordered by
their distance from what is there): learnt weights shrink to equal ones. For two retrievers there is one number, the share of
the first in a convex combination, which needs few examples (Bruch, Gai and Ingber, An Analysis of Fusion Functions for Hybrid
Retrieval, 2023, arXiv 2210.11934).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from jobs.measure.significance import TIE, Floats, paired_test
from jobs.tune.objective import Objective, Weighting
from retrievers.lists import ORIGINAL

RATIOS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
SHARES = tuple(round(0.1 * tenth, 1) for tenth in range(11))
SURE = 2.0  # standard errors that a change must gain; with 1, lists of equal worth (tests/jobs/tune) got weights
ROUNDS = 3  # over all coordinates; a round without a change is the last
FEWEST = 10  # queries of a type; with fewer the type keeps every strategy
MOST_SUBSETS = 4  # strategies; of more than that only none, one, all but one, and all are tried

Rows = npt.NDArray[np.int64]
Policy = tuple[tuple[str, tuple[str, ...]], ...]
"""(Type of query, the strategies that rewrite it), of every type that does not take all; sorted."""


def as_good_as_the_best(values: Floats, clusters: Rows, errors: float = 1.0) -> int:
    """Returns the first option that is within a standard error of the best: the simplest, where the simplest come first.

    The one-standard-error rule of Breiman, Friedman, Olshen and Stone, Classification and Regression Trees, 1984; the error is
    that of the difference to the best, since all options are measured on the same queries.

    Args:
        values: Of each option and query, shape (options, queries).
        clusters: Of each query.
        errors: How many standard errors.
    """
    lost = paired_test(values[int(np.argmax(values.mean(axis=1)))] - values, clusters)
    # Where a single query differs, the difference is one error, whatever rounding makes of it: that is not within.
    return int(np.argmax((lost.mean < errors * lost.error * (1 - TIE)) | (lost.mean <= TIE)))


def learn_retrievers(objective: Objective, rows: Rows, clusters: Rows, start: Weighting) -> Weighting:
    """Returns `start` with the retriever weights that these queries choose.

    Args:
        objective: The measure.
        rows: The queries to choose by.
        clusters: Of all queries.
        start: The weights to change.
    """
    names = objective.gathered.retrievers

    def measured(weights: Mapping[str, float]) -> Floats:
        return objective.values(start.with_retrievers(weights))[rows]

    if len(names) == 2:
        shares = sorted(SHARES, key=lambda share: abs(share - 0.5))
        options = [dict(zip(names, (share, round(1 - share, 1)), strict=True)) for share in shares]
        chosen = options[as_good_as_the_best(np.stack([measured(one) for one in options]), clusters[rows], SURE)]
    else:
        chosen = _by_coordinates(dict.fromkeys(names, 1.0), names, measured, clusters[rows])
    return start.with_retrievers(chosen)


def learn_strategies(objective: Objective, rows: Rows, clusters: Rows, start: Weighting) -> Weighting:
    """Returns `start` with the weights per strategy that these queries choose; arguments as of `learn_retrievers`."""
    names = [ORIGINAL, *objective.gathered.strategies]

    def measured(ratios: Mapping[str, float]) -> Floats:
        return objective.values(start.with_strategies(ratios))[rows]

    return start.with_strategies(_by_coordinates(dict.fromkeys(names, 1.0), names, measured, clusters[rows]))


def learn_policy(objective: Objective, rows: Rows, clusters: Rows, weighting: Weighting, types: Sequence[str]) -> Policy:
    """Returns the strategies that these queries choose for each type of query.

    Args:
        objective: The measure.
        rows: The queries to choose by.
        clusters: Of all queries.
        weighting: Of the lists.
        types: Of all queries.
    """
    options = subsets(objective.gathered.strategies)
    values = [objective.values(without_others(objective, weighting, option)) for option in options]
    policy = []
    for name in sorted({types[row] for row in rows.tolist()}):
        mine = rows[[types[row] == name for row in rows.tolist()]]
        if len(mine) < FEWEST:
            continue
        chosen = options[as_good_as_the_best(np.stack([of_option[mine] for of_option in values]), clusters[mine], SURE)]
        if chosen != options[0]:
            policy.append((name, chosen))
    return tuple(policy)


def policy_values(objective: Objective, weighting: Weighting, policy: Policy, types: Sequence[str]) -> Floats:
    """Returns the measure of each query where a policy selects its strategies, shape (queries,)."""
    values = objective.values(weighting).copy()
    for name, option in policy:
        mine = np.array([one == name for one in types])
        values[mine] = objective.values(without_others(objective, weighting, option))[mine]
    return values


def without_others(objective: Objective, weighting: Weighting, kept: Sequence[str]) -> Weighting:
    """Returns the weights with 0 for all strategies but some."""
    return weighting.without(name for name in objective.gathered.strategies if name not in kept)


def subsets(strategies: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns the sets of strategies that a type may have, the largest first."""
    sizes: Sequence[int] = range(len(strategies), -1, -1)
    if len(strategies) > MOST_SUBSETS:
        sizes = (len(strategies), len(strategies) - 1, 1, 0)
    return [option for size in sizes for option in combinations(strategies, size)]


def _by_coordinates(
    start: dict[str, float], names: Sequence[str], measured: Callable[[Mapping[str, float]], Floats], clusters: Rows
) -> dict[str, float]:
    """Returns ratios of `RATIOS`, changed one after the other as long as there is a gain."""
    current = start
    for _ in range(ROUNDS):
        before = current
        for name in names:
            place = RATIOS.index(current[name])
            nearest = sorted(RATIOS, key=lambda ratio: abs(RATIOS.index(ratio) - place))
            options = [current | {name: ratio} for ratio in nearest if any((current | {name: ratio}).values())]
            current = options[as_good_as_the_best(np.stack([measured(one) for one in options]), clusters, SURE)]
        if current == before:
            break
    return current

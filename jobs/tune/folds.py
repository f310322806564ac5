"""Folds of queries for cross-validation; queries that say nearly the same are in one fold.

What the choice of a step is worth is measured fold by fold by the step that the others alone choose: the mean of the step that
was best on all queries is too high, by 2/3 of a standard error where no step has a true effect.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jobs.measure.significance import Floats, Numbers


def draw_folds(clusters: Numbers, count: int, seed: int) -> Numbers:
    """Returns the fold of each query, shape (queries,), int64: whole clusters, drawn at random, the folds about equally large.

    The largest clusters are placed first, each into the smallest fold.

    Args:
        clusters: By `jobs.measure.clusters.query_clusters`.
        count: Number of folds, at most the number of clusters.
        seed: Of the drawing.
    """
    sizes = np.bincount(clusters)
    drawn = np.random.default_rng(seed).permutation(len(sizes))
    held = np.zeros(count, dtype=np.int64)
    fold_of = np.empty(len(sizes), dtype=np.int64)
    for cluster in drawn[np.argsort(-sizes[drawn], kind="stable")]:
        fold_of[cluster] = np.argmin(held)
        held[fold_of[cluster]] += sizes[cluster]
    folds: Numbers = fold_of[clusters]
    return folds


def chosen_values(values: Floats, folds: Numbers, clusters: Numbers, choose: Callable[[Floats, Numbers], int]) -> Floats:
    """Returns the value of each query by the step that is chosen without its fold, shape (queries,).

    Args:
        values: Of each step and query, each of a query that had no part in what the step has learnt.
        folds: Of each query.
        clusters: Of each query.
        choose: Returns a step, from values of some queries and their clusters.
    """
    found = np.empty(len(folds))
    for fold in np.unique(folds):
        inside = folds == fold
        found[inside] = values[choose(values[:, ~inside], clusters[~inside])][inside]
    return found

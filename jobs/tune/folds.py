"""Folds of queries for cross-validation; queries that say nearly the same are in one fold."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


def draw_folds(clusters: Numbers, count: int, seed: int) -> Numbers:
    """Returns the fold of each query, shape (queries,), int64: whole clusters, drawn at random, the folds about equally large.

    The largest clusters are placed first, each into the smallest fold.

    Args:
        clusters: By `jobs.measure.compare.clusters.query_clusters`.
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

"""Folds of queries for cross-validation; queries that say nearly the same are in one fold.

Two queries are near-duplicates if the Jaccard index of their sets of words is `LEAST` or more (Broder, On the Resemblance and
Containment of Documents, 1997, on sets of words in place of shingles); clusters are the connected components.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_matrix, csr_matrix
from scipy.sparse.csgraph import connected_components

from rewriters.guards.words import words

LEAST = 0.8  # of the Jaccard index
_ROWS = 500  # queries compared with all others at a time; 5,000 of them share words in some 2.5 million pairs

Numbers = npt.NDArray[np.int64]


def near_duplicate_clusters(queries: Sequence[str]) -> Numbers:
    """Returns the number of each query's cluster of near-duplicates, shape (queries,), int64; clusters count from 0.

    Cost: the pairs of queries that share a word.
    """
    sets = [frozenset(words(query)) or frozenset((query,)) for query in queries]
    place: dict[str, int] = {}
    row = np.repeat(np.arange(len(sets)), [len(one) for one in sets])
    column = np.array([place.setdefault(word, len(place)) for one in sets for word in sorted(one)], dtype=np.int64)
    known = csr_matrix((np.ones(len(row), dtype=np.int32), (row, column)), shape=(len(sets), max(1, len(place))))
    sizes = np.array([len(one) for one in sets], dtype=np.int64)
    one_of, other_of = [], []
    for begin in range(0, len(sets), _ROWS):
        shared = coo_matrix(known[begin : begin + _ROWS] @ known.T)
        one, other = shared.row + begin, shared.col
        alike = shared.data >= LEAST * (sizes[one] + sizes[other] - shared.data)
        one_of.append(one[alike])
        other_of.append(other[alike])
    one, other = (np.concatenate([*parts, np.empty(0, np.int64)]).astype(np.int64) for parts in (one_of, other_of))
    graph = coo_matrix((np.ones(len(one), dtype=bool), (one, other)), shape=(len(sets), len(sets)))
    clusters: Numbers = connected_components(graph, directed=False)[1].astype(np.int64) if sets else np.empty(0, np.int64)
    return clusters


def draw_folds(clusters: Numbers, count: int, seed: int) -> Numbers:
    """Returns the fold of each query, shape (queries,), int64: whole clusters, drawn at random, the folds about equally large.

    The largest clusters are placed first, each into the smallest fold.

    Args:
        clusters: By `near_duplicate_clusters`.
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

"""Folds: near-duplicates together, every query once, the folds about equally large."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobs.tune.folds import LEAST, draw_folds, near_duplicate_clusters
from rewriters.guards.words import words

QUERIES = st.lists(
    st.lists(st.sampled_from(["red", "green", "blue", "tea", "cup", "leaf", "hot"]), min_size=1, max_size=6).map(" ".join),
    min_size=1,
    max_size=30,
)


@given(QUERIES)
def test_clusters_are_the_components_of_alike_queries(queries: list[str]) -> None:
    clusters = near_duplicate_clusters(queries)
    sets = [frozenset(words(query)) for query in queries]
    group = list(range(len(queries)))  # by repeated joining
    for one, a in enumerate(sets):
        for other, b in enumerate(sets):
            if len(a & b) >= LEAST * len(a | b) and group[one] != group[other]:
                group = [group[one] if number == group[other] else number for number in group]
    same = np.equal.outer(clusters, clusters)
    assert (same == np.equal.outer(group, group)).all()
    assert set(clusters.tolist()) == set(range(int(clusters.max()) + 1))


def test_near_duplicates_by_example() -> None:
    texts = [
        "How do bees find home?",
        "how do bees find home",
        "home: how do bees find",
        "why is the sky blue",
        "天空为什么是蓝色的",
        "?",
    ]
    first, second, third, *others = near_duplicate_clusters(texts).tolist()
    assert first == second == third
    assert len({first, *others}) == 4


@given(st.lists(st.integers(0, 40), min_size=20, max_size=80), st.integers(2, 6), st.integers(0, 3))
def test_folds_hold_whole_clusters_and_are_even(numbers: list[int], count: int, seed: int) -> None:
    clusters = np.unique([*numbers, *range(41, 48)], return_inverse=True)[1]
    folds = draw_folds(clusters, count, seed)
    assert set(folds.tolist()) == set(range(count))
    for cluster in set(clusters.tolist()):
        assert len(set(folds[clusters == cluster].tolist())) == 1
    sizes = np.bincount(folds)
    assert sizes.max() - sizes.min() <= np.bincount(clusters).max()
    assert (folds == draw_folds(clusters, count, seed)).all()


def test_another_seed_draws_other_folds() -> None:
    clusters = np.arange(50)
    assert (draw_folds(clusters, 5, 0) != draw_folds(clusters, 5, 1)).any()

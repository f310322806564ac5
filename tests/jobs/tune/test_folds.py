"""Folds: near-duplicates together, every query once, the folds about equally large."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobs.tune.folds import draw_folds


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

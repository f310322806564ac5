"""Choosing among steps, by no query that measures the choice: without a true effect nothing beats anything too often."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from jobs.measure.significance import gap
from jobs.tune.search import TuningStep, as_good_as_the_best, chosen_values, draw_folds
from jobs.tune.tune import ALONE, EQUAL, _compared
from retrievers.settings import FuseSettings

QUERIES, STEPS, TUNINGS = 100, 6, 1500


def simulated(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Never rewriting, and steps, all of independent noise: the unfavourable case."""
    values = np.random.default_rng(number).random((STEPS + 1, QUERIES))
    return values[0], values[1:]


def best(values: np.ndarray, clusters: np.ndarray) -> int:
    return int(np.argmax(values.mean(axis=1)))


@pytest.mark.slow
def test_without_an_effect_the_best_of_several_beats_nothing_too_often() -> None:
    clusters, corrected, alone_tested = np.arange(QUERIES), 0, 0
    for number in range(TUNINGS):
        alone, steps = simulated(number)
        differences = steps[best(steps, clusters)] - alone
        corrected += gap(differences, clusters, STEPS).low > 0
        alone_tested += gap(differences, clusters).low > 0
    assert corrected / TUNINGS < 0.035  # 0.025 is nominal; standard error 0.004
    assert alone_tested / TUNINGS > 0.05  # as it was tested


def test_what_choosing_is_worth_has_no_bias() -> None:
    clusters, found, maximum = np.arange(QUERIES), [], []
    for number in range(TUNINGS):
        alone, steps = simulated(number)
        chosen = chosen_values(steps, draw_folds(clusters, 5, number), clusters, best)
        found.append((chosen - alone).mean())
        maximum.append((steps[best(steps, clusters)] - alone).mean())
    error = np.std(found) / np.sqrt(TUNINGS)
    assert abs(np.mean(found)) < 3 * error
    assert np.mean(maximum) > 10 * error


def test_a_true_best_step_is_found() -> None:
    values = np.random.default_rng(1).random((3, QUERIES)) + np.array([[0.0], [0.0], [0.5]])
    clusters = np.arange(QUERIES)
    assert np.array_equal(chosen_values(values, draw_folds(clusters, 5, 0), clusters, best), values[2])


@given(st.integers(0, 50))
def test_the_first_within_a_standard_error_of_the_best_is_taken(seed: int) -> None:
    values = np.random.default_rng(seed).normal(0, 1, (6, 25)).cumsum(axis=0) / 3
    chosen, top = as_good_as_the_best(values, np.arange(25)), values[values.mean(axis=1).argmax()]

    def within(option: np.ndarray) -> bool:
        return bool((top - option).mean() <= stats.sem(top - option))

    assert within(values[chosen]) or (values[chosen] == top).all()
    assert not any(within(option) for option in values[:chosen])


def test_where_all_gain_alike_nothing_is_said_to_be_beaten_or_not() -> None:
    equal, alone = (TuningStep(name, np.full(30, value), FuseSettings()) for name, value in ((EQUAL, 1.0), (ALONE, 0.0)))
    assert _compared(SimpleNamespace(clusters=np.arange(30)), "rewriting", [equal], alone, "never rewriting") == (  # type: ignore[arg-type]
        "rewriting differs from never rewriting by the same for every query, so there is no test: equal weights +1.0000"
    )


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
    assert (draw_folds(np.arange(50), 5, seed) != draw_folds(np.arange(50), 5, seed + 1)).any()

"""Differences of two settings: scipy's paired t-test where every query is alone, wider where queries come in clusters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from jobs.measure.significance import gap, paired_test
from jobs.tune.search import as_good_as_the_best
from jobs.tune.tune import _compared

VALUES = st.lists(st.floats(0, 1), min_size=3, max_size=40)


@given(VALUES, st.integers(0, 5))
def test_it_is_scipys_paired_test_where_queries_are_alone(values: list[float], seed: int) -> None:
    one = np.array(values)
    other = np.random.default_rng(seed).random(len(one))
    found = gap(one - other, np.arange(len(one)))
    test = stats.ttest_rel(one, other)
    assert found.mean == pytest.approx((one - other).mean())
    assert found.p == pytest.approx(test.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(test.confidence_interval(0.95)))
    assert found.error == pytest.approx(stats.sem(one - other))


def test_a_few_queries_that_moved_alike_are_no_test() -> None:
    found = gap(np.array([0.2, 0.2]), np.arange(2))
    assert found.mean == pytest.approx(0.2)
    assert np.isnan([found.p, found.low, found.high]).all()
    assert not found.low > 0


def test_repeated_queries_add_no_certainty() -> None:
    difference = np.random.default_rng(1).normal(0.1, 1, 40)
    once = gap(difference, np.arange(40))
    thrice = gap(np.repeat(difference, 3), np.repeat(np.arange(40), 3))
    assert thrice == pytest.approx(once)
    assert gap(np.repeat(difference, 3), np.arange(120)).p < once.p


def test_it_is_the_test_of_ablations() -> None:
    generator = np.random.default_rng(2)
    differences, clusters = generator.normal(0.1, 1, 60), np.sort(generator.integers(0, 9, 60)) * 7  # of unequal sizes
    test = paired_test(differences[None], np.unique(clusters, return_inverse=True)[1])
    assert gap(differences, clusters) == (test.mean[0], test.error[0], test.low[0], test.high[0], test.p[0])


def test_no_difference_at_all_has_p_1() -> None:
    found = gap(np.zeros(9), np.arange(9))
    assert (found.mean, found.low, found.high, found.p) == (0, 0, 0, 1)


def test_where_all_gain_alike_nothing_is_said_to_be_beaten_or_not() -> None:
    found = gap(np.ones(30), np.arange(30))
    assert found.interval is None
    said = _compared("rewriting", "equal weights", found, "never rewriting")
    assert said == (
        "rewriting differs from never rewriting by the same for every query, so there is no test: equal weights +1.0000"
    )


def test_one_cluster_has_no_interval() -> None:
    found = gap(np.array([0.1, 0.3]), np.zeros(2, dtype=np.int64))
    assert found.mean == pytest.approx(0.2)
    assert np.isnan([found.low, found.high, found.p]).all()
    assert not found.low > 0


@given(st.integers(0, 50))
def test_the_first_within_a_standard_error_of_the_best_is_taken(seed: int) -> None:
    values = np.random.default_rng(seed).normal(0, 1, (6, 25)).cumsum(axis=0) / 3
    clusters = np.arange(25)
    chosen = as_good_as_the_best(values, clusters)
    best = values[values.mean(axis=1).argmax()]

    def within(option: np.ndarray) -> bool:
        return bool((best - option).mean() <= stats.sem(best - option))

    assert within(values[chosen]) or (values[chosen] == best).all()
    assert not any(within(option) for option in values[:chosen])

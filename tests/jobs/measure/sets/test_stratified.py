"""Tests over several data sets against scipy, statsmodels and figures by hand; how often they are wrong without an effect."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.meta_analysis import combine_effects

from jobs.measure.arrays import Floats
from jobs.measure.sets.stratified import (
    LEAST_SETS,
    StratifiedTest,
    heterogeneity_p,
    mean_ranks,
    signed_rank_p,
    stratified_equivalence_p,
    stratified_sums,
    stratified_test,
)
from jobs.measure.significance import PairedTest, paired_test, randomised_p


def drawn(seed: int, *sizes: int) -> list[Floats]:
    """Differences of one series on sets of these sizes, of other means and spreads."""
    random = np.random.default_rng(seed)
    return [random.normal(0.1 * number - 0.1, 0.2 + 0.3 * number, size) for number, size in enumerate(sizes)]


def alone(values: Floats) -> PairedTest:
    return paired_test(np.atleast_2d(values), np.arange(np.shape(values)[-1]))


def over(sets: list[Floats]) -> StratifiedTest:
    return stratified_test([alone(one) for one in sets])


@given(st.integers(0, 10_000), st.integers(3, 60), st.integers(3, 60))
def test_of_two_sets_it_is_welchs_test_of_one_against_the_other_turned_around(seed: int, first: int, second: int) -> None:
    a, b = drawn(seed, first, second)
    found, welch = over([a, b]), stats.ttest_ind(a, -b, equal_var=False)
    low, high = welch.confidence_interval(0.95)
    assert found.p[0] == pytest.approx(welch.pvalue, rel=1e-9)
    assert found.freedom[0] == pytest.approx(welch.df, rel=1e-9)
    assert (found.low[0], found.high[0]) == pytest.approx((low / 2, high / 2), rel=1e-9)


def test_of_one_set_it_is_the_paired_t_test() -> None:
    (a,) = drawn(3, 25)
    found, paired = over([a]), stats.ttest_1samp(a, 0)
    assert (found.p[0], found.freedom[0]) == pytest.approx((paired.pvalue, 24))


def test_of_four_sets_the_error_is_that_of_a_regression_with_robust_variances() -> None:
    sets = drawn(11, 8, 20, 31, 12)
    values, number = np.concatenate(sets), np.repeat(np.arange(4), [len(one) for one in sets])
    model = sm.OLS(values, np.eye(4)[number]).fit(cov_type="HC2")
    contrast = model.t_test(np.full(4, 0.25))
    found = over(sets)
    assert found.mean[0] == pytest.approx(float(contrast.effect[0]))
    assert found.error[0] == pytest.approx(float(np.squeeze(contrast.sd)))


def test_clusters_count_as_one_within_their_set() -> None:
    values, clusters = np.array([[0.1, 0.1, 0.4, -0.2, 0.3]]), np.array([0, 0, 1, 2, 3])
    first, second = paired_test(values, clusters), alone(np.array([0.2, -0.1, 0.3]))
    found = stratified_test([first, second])
    assert found.error[0] == pytest.approx(np.hypot(first.error[0], second.error[0]) / 2)


def test_sets_without_a_difference_add_nothing_and_no_difference_at_all_has_p_1() -> None:
    still, moved = np.zeros(9), np.array([0.1, 0.3, -0.1, 0.2])
    found = over([still, moved])
    assert found.mean[0] == pytest.approx(moved.mean() / 2)
    assert found.p[0] == pytest.approx(stats.ttest_1samp(moved, 0).pvalue)
    assert over([still, still]).p[0] == 1


def test_a_set_without_variance_leaves_no_test() -> None:
    found = over([np.full(5, 0.2), np.array([0.1, 0.3, 0.2])])
    assert np.isnan(found.p[0])
    assert found.mean[0] == pytest.approx(0.2)


def test_randomisation_is_that_of_scipy_with_each_set_at_the_same_weight() -> None:
    a, b = np.array([0.3, -0.1, 0.2, 0.4]), np.array([0.1, 0.2, -0.3, 0.5, 0.1, 0.2])
    weighted = np.concatenate([a / (2 * 4), b / (2 * 6)])
    sums = stratified_sums([(a[None], np.arange(4)), (b[None], np.arange(6))])
    reference = stats.permutation_test((weighted,), np.sum, permutation_type="samples", n_resamples=np.inf, vectorized=False)
    assert randomised_p(sums)[0] == pytest.approx(reference.pvalue)


def test_equivalence_is_two_welch_tests() -> None:
    a, b = drawn(5, 30, 40)
    above = stats.ttest_ind(a + 0.3, -(b + 0.3), equal_var=False, alternative="greater").pvalue
    below = stats.ttest_ind(a - 0.3, -(b - 0.3), equal_var=False, alternative="less").pvalue
    assert stratified_equivalence_p(over([a, b]), 0.3)[0] == pytest.approx(max(above, below))


@pytest.mark.parametrize("sets", [6, 8, 11])
def test_the_signed_rank_test_is_that_of_scipy(sets: int) -> None:
    differences = np.random.default_rng(sets).normal(0.02, 0.03, (5, sets))
    reference = [stats.wilcoxon(row, method="exact").pvalue for row in differences]
    assert signed_rank_p(differences) == pytest.approx(reference)


def test_ties_and_zeros_of_the_signed_rank_test_are_those_of_a_permutation() -> None:
    row = np.array([0.1, 0.1, -0.2, 0.0, 0.3, 0.3, 0.2, 0.5])
    kept = row[row != 0]
    signed = np.sign(kept) * stats.rankdata(np.abs(kept))
    reference = stats.permutation_test((signed,), np.sum, permutation_type="samples", n_resamples=np.inf, vectorized=False)
    assert signed_rank_p(row[None])[0] == pytest.approx(reference.pvalue)


def test_fewer_than_six_sets_have_no_test_over_sets_since_it_could_never_be_significant() -> None:
    best = np.arange(1.0, LEAST_SETS)[None]  # higher on every one of five sets
    assert np.isnan(signed_rank_p(best)[0])
    assert stats.wilcoxon(best[0], method="exact").pvalue > 0.05
    assert signed_rank_p(np.arange(1.0, LEAST_SETS + 1)[None])[0] < 0.05


def test_heterogeneity_is_cochrans_q() -> None:
    sets = drawn(7, 20, 30, 25)
    parts = [alone(one) for one in sets]
    errors = np.array([one.error[0] for one in parts])
    reference = combine_effects(np.array([one.mean() for one in sets]), errors**2).test_homogeneity()
    assert heterogeneity_p(parts)[0] == pytest.approx(reference.pvalue)
    assert np.isnan(heterogeneity_p(parts[:1])[0])


def test_ranks_are_means_over_sets_and_equal_means_share_one() -> None:
    means = np.array([[0.5, 0.2], [0.5, 0.3], [0.1, 0.4]])
    assert mean_ranks(means).tolist() == [(1.5 + 3) / 2, (1.5 + 2) / 2, (3 + 1) / 2]


def test_without_an_effect_it_is_wrong_in_a_twentieth_of_cases_also_where_sets_are_of_other_sizes_and_spreads() -> None:
    random = np.random.default_rng(20)
    parts = [alone(random.normal(0, spread, (4000, size))) for spread, size in ((0.1, 12), (0.4, 80), (0.2, 30))]
    wrong = float((stratified_test(parts).p < 0.05).mean())
    assert 0.04 < wrong < 0.06


def test_opposite_effects_cancel_in_the_mean_and_are_seen_as_heterogeneous() -> None:
    random = np.random.default_rng(21)
    sets = [random.normal(0.2, 0.2, 60), random.normal(-0.2, 0.2, 60)]
    assert over(sets).p[0] > 0.05
    assert heterogeneity_p([alone(one) for one in sets])[0] < 0.001

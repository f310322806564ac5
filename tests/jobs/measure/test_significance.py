"""Tests and intervals against scipy and statsmodels, and clusters of near-duplicate queries."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from jobs.measure.clusters import SIMILARITY, query_clusters
from jobs.measure.significance import (
    ALPHA,
    Floats,
    Numbers,
    PairedTest,
    detectable,
    equivalence_p,
    false_discovery_rates,
    gap,
    holm,
    paired_test,
    verdict,
)

GENERATOR = np.random.default_rng(3)

CLOSE = 1e-10


def two_arms(keys: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Values as measures have them: many zeros and ones, and what lies between."""
    made = np.random.default_rng(seed)
    base = made.beta(0.4, 0.6, keys) * (made.random(keys) > 0.2)
    return np.clip(base + made.normal(0.03, 0.15, keys) * (made.random(keys) > 0.3), 0, 1), base


def alone(keys: int) -> Numbers:
    return np.arange(keys)


SIZES = pytest.mark.parametrize("keys", [2, 3, 12, 50, 300, 2000])


@SIZES
def test_with_clusters_of_one_it_is_scipys_paired_t_test(keys: int) -> None:
    arm, base = two_arms(keys, keys)
    found = paired_test((arm - base)[None], alone(keys))
    expected = stats.ttest_rel(arm, base)
    assert found.p[0] == pytest.approx(expected.pvalue, rel=CLOSE)
    low, high = expected.confidence_interval(0.95)
    assert (found.low[0], found.high[0]) == pytest.approx((low, high), rel=CLOSE)
    assert found.mean[0] == pytest.approx((arm - base).mean())


def test_clusters_of_any_sizes_are_the_linearisation_by_its_definition() -> None:
    """With H the hat matrix of a constant: A_g = (I - H_gg)^-1/2, and the degrees of freedom by eigenvalues."""
    clusters = np.unique(GENERATOR.integers(0, 12, 50) // GENERATOR.integers(1, 3, 50), return_inverse=True)[1]
    differences = GENERATOR.normal(0.02, 0.1, 50)
    keys, count = len(clusters), clusters.max() + 1
    residual_maker = np.eye(keys) - np.full((keys, keys), 1 / keys)
    variance, columns = 0.0, np.zeros((keys, count))
    for n in range(count):
        mine = np.flatnonzero(clusters == n)
        values, vectors = np.linalg.eigh(residual_maker[np.ix_(mine, mine)])
        adjust = vectors @ np.diag(values**-0.5) @ vectors.T
        variance += (np.ones(len(mine)) @ adjust @ (differences - differences.mean())[mine] / keys) ** 2
        columns[:, n] = residual_maker[:, mine] @ adjust @ np.ones(len(mine)) / keys
    eigenvalues = np.linalg.eigvalsh(columns.T @ columns)
    found = paired_test(differences[None], clusters)
    assert found.error[0] == pytest.approx(np.sqrt(variance), rel=CLOSE)
    assert found.freedom == pytest.approx(eigenvalues.sum() ** 2 / (eigenvalues**2).sum(), rel=1e-9)
    assert found.freedom < count - 1


def test_holm_and_false_discovery_rates_are_statsmodels() -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest", exc_type=ImportError)
    for size in (1, 2, 15, 500):
        p = np.round(GENERATOR.beta(0.4, 1, size), 3)  # rounded: ties
        assert holm(p) == pytest.approx(multitest.multipletests(p, method="holm")[1], rel=CLOSE)
        assert false_discovery_rates(p) == pytest.approx(multitest.multipletests(p, method="fdr_bh")[1], rel=CLOSE)
    assert len(holm(np.zeros(0))) == len(false_discovery_rates(np.zeros(0))) == 0


@SIZES
@pytest.mark.parametrize("margin", [0.01, 0.1])
def test_equivalence_is_statsmodels_two_one_sided_tests(keys: int, margin: float) -> None:
    weightstats = pytest.importorskip("statsmodels.stats.weightstats", exc_type=ImportError)
    arm, base = two_arms(keys, keys)
    found = equivalence_p(paired_test((arm - base)[None], alone(keys)), margin)
    assert found[0] == pytest.approx(weightstats.ttost_paired(arm, base, -margin, margin)[0], rel=1e-9)


def errors(error: Floats, freedom: Floats) -> PairedTest:
    return PairedTest(error, error, error, error, error, freedom)


@pytest.mark.parametrize("keys", [3, 8, 50, 2_000])
@pytest.mark.parametrize("tests", [1, 7])
def test_the_detectable_difference_is_what_statsmodels_solves_for(keys: int, tests: int) -> None:
    power = pytest.importorskip("statsmodels.stats.power", exc_type=ImportError)
    deviation = np.array([0.2, 0.03])
    found = detectable(errors(deviation / np.sqrt(keys), np.full(2, keys - 1.0)), range(2), tests)
    effect = power.TTestPower().solve_power(nobs=keys, alpha=ALPHA / tests, power=0.8, alternative="two-sided")
    assert list(found.values()) == pytest.approx((float(np.atleast_1d(effect)[0]) * deviation).tolist(), rel=1e-3)


def test_without_variance_no_difference_is_detectable() -> None:
    assert detectable(errors(np.array([0.0, np.nan, 0.1]), np.array([9.0, 9.0, 0.0])), range(3)) == {}
    (one,) = detectable(errors(np.array([0.1]), np.array([1.0])), [0], 30).values()  # one degree of freedom, a strict level
    assert one > 10


def test_clusters_that_all_differ_alike_are_no_test() -> None:
    test = paired_test(np.array([[1.0, 1.0, 1.0], [0.2, 0.2, 0.2], [0.0, 0.0, 0.0], [0.1, 0.2, 0.3]]), np.arange(3))
    assert np.isnan(test.p).tolist() == np.isnan(test.low).tolist() == [True, True, False, False]
    assert test.mean.tolist() == pytest.approx([1, 0.2, 0, 0.2])
    assert np.isnan(equivalence_p(test, 0.01)).tolist() == [True, True, False, False]


def test_an_arm_that_equals_the_baseline() -> None:
    found = paired_test(np.zeros((1, 20)), alone(20))
    assert (found.p[0], found.low[0], found.high[0]) == (1, 0, 0)
    assert equivalence_p(found, 0.01)[0] == 0


def test_one_cluster_has_a_mean_and_no_test() -> None:
    found = paired_test(np.array([[0.1, 0.3]]), np.zeros(2, np.int64))
    assert found.mean[0] == pytest.approx(0.2)
    assert np.isnan([found.p[0], found.low[0], equivalence_p(found, 0.01)[0]]).all()


def gains_and_losses(made: np.random.Generator, *shape: int) -> Floats:
    """Differences of mean .03: half of them none, gains often and small, losses rarer and larger; skewness -.3."""
    kind = made.random(shape)
    return np.where(kind < 0.4, made.beta(1, 4, shape), np.where(kind < 0.55, -made.beta(2, 4, shape), 0.0))


SIZES_OF_CLUSTERS = {
    "single": [1] * 100,
    "few pairs": [1] * 80 + [2] * 15 + [4] * 5,
    "many": [1] * 50 + [2] * 25 + [5] * 25,
    "a large one": [1] * 80 + [2] * 19 + [20],
}


@pytest.mark.parametrize("sizes", SIZES_OF_CLUSTERS.values(), ids=SIZES_OF_CLUSTERS)
def test_the_interval_covers_the_true_mean_in_95_of_100_experiments(sizes: list[int]) -> None:
    """2,000 experiments with 100 clusters; two of three keys of a cluster have the same difference."""
    made = np.random.default_rng(1)
    clusters = np.repeat(np.arange(100), sizes)
    truth, draw = 0.03, gains_and_losses
    series = np.where(
        made.random((2000, len(clusters))) < 2 / 3, draw(made, 2000, 100)[:, clusters], draw(made, 2000, len(clusters))
    )
    found = paired_test(series, clusters)
    assert 0.93 <= ((found.low <= truth) & (truth <= found.high)).mean() <= 0.97
    assert 0.03 <= (paired_test(series - truth, clusters).p < 0.05).mean() <= 0.07
    if len(clusters) > 200:  # as if near-duplicates were independent
        blind = paired_test(series, alone(len(clusters)))
        assert ((blind.low <= truth) & (truth <= blind.high)).mean() < 0.9


def test_what_differs_by_rounding_alone_has_p_1() -> None:
    found = paired_test(np.random.default_rng(1).normal(0, 1e-13, (1, 30)), alone(30))
    assert (found.mean[0], found.low[0], found.high[0], found.p[0]) == (0, 0, 0, 1)


def test_a_gap_has_the_interval_and_the_p_of_its_test() -> None:
    differences, clusters = GENERATOR.normal(0.1, 0.5, 60), alone(60)
    found, test = gap(differences, clusters), stats.ttest_1samp(differences, 0)
    assert found.interval == pytest.approx(tuple(test.confidence_interval(0.95)))
    assert found.p == pytest.approx(test.pvalue)


def test_the_verdict_is_the_corrected_tests_and_then_that_of_equivalence() -> None:
    said = [verdict(*case) for case in ((0.1, 0.04, 0.01), (-0.1, 0.04, 0.9), (0.1, 0.06, 0.04), (0.1, None, 0.2), (0.0, 0.0))]
    assert said == ["better", "worse", "equivalent", "no clear difference", "no clear difference"]


def by_all_pairs(texts: list[str]) -> list[set[int]]:
    sets = [set(text.split()) for text in texts]
    groups = [{n} for n in range(len(texts))]
    for one, other in itertools.combinations(range(len(texts)), 2):
        union = sets[one] | sets[other]
        if not union or 10 * len(sets[one] & sets[other]) >= round(10 * SIMILARITY) * len(union):
            first, second = (next(group for group in groups if n in group) for n in (one, other))
            if first is not second:
                groups.remove(second)
                first |= second
    return groups


def groups_of(numbers: np.ndarray) -> list[set[int]]:
    return [set(np.flatnonzero(numbers == n).tolist()) for n in range(int(numbers.max(initial=-1)) + 1)]


@given(st.lists(st.lists(st.sampled_from("abcdefghij"), max_size=9).map(" ".join), max_size=25))
def test_they_are_those_of_all_pairs(texts: list[str]) -> None:
    found = query_clusters(texts)
    assert len(found) == len(texts)
    assert sorted(map(sorted, groups_of(found))) == sorted(map(sorted, by_all_pairs(texts)))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("red lamp", "lamp red", True),
        ("red lamp?", "red, lamp", True),
        ("red lamp", "red lamps", False),
        ("red lamp", "red lamp price", False),
        ("a b c d", "a b c d e", True),
        ("a b c d", "a b c e", False),
        ("a b c d e f g h i", "a b c d e f g h j", True),
        ("東京の天気", "天気の東京", True),
        ("東京の天気", "大阪の天気", False),
        ("?", "!", False),
        ("?", "?", True),
    ],
)
def test_what_is_a_near_duplicate(one: str, other: str, same: bool) -> None:
    found = query_clusters([one, other])
    assert (found[0] == found[1]) == same


def test_a_long_log_takes_seconds() -> None:
    made = np.random.default_rng(1)
    words = np.array([f"w{n}" for n in range(4000)])
    chances = 1 / np.arange(1, 4001)
    chosen = made.choice(words, (8000, 8), p=chances / chances.sum())
    lengths = made.integers(1, 9, 8000)
    began = time.process_time()
    found = query_clusters([" ".join(row[:length]) for row, length in zip(chosen, lengths, strict=True)])
    assert 3000 < found.max() < 8000
    assert time.process_time() - began < 8

"""The smallest effect that a comparison can show: by statsmodels, by simulated experiments, and where it is printed."""

from __future__ import annotations

import numpy as np
import pytest
from statsmodels.stats.power import TTestPower

from jobs.measure.compare.comparison import Comparison
from jobs.measure.evaluate.evaluate import Evaluation, detectable_notes, evaluation_values
from jobs.measure.power import detectable
from jobs.measure.significance import ALPHA, paired_test
from tests.support.jobs.report_ablations import ARMS, MEASURES, comparison_of, values_of


@pytest.mark.parametrize("keys", [3, 8, 50, 2_000])
@pytest.mark.parametrize("tests", [1, 7])
def test_it_is_what_statsmodels_solves_for(keys: int, tests: int) -> None:
    deviation = np.array([0.2, 0.03])
    found = detectable(deviation / np.sqrt(keys), np.full(2, keys - 1.0), tests)
    effect = TTestPower().solve_power(nobs=keys, alpha=ALPHA / tests, power=0.8, alternative="two-sided")
    assert found == pytest.approx((float(np.atleast_1d(effect)[0]) * deviation).tolist(), rel=1e-3)


@pytest.mark.slow
def test_so_large_a_difference_is_found_in_four_of_five_experiments() -> None:
    """Clusters of three keys: the power is that of the test over clusters."""
    random = np.random.default_rng(2)
    clusters = np.repeat(np.arange(40), 3)
    whole = np.sqrt((0.1**2 + 0.05**2 / 3) / 40)
    (size,) = detectable(np.array([whole]), np.array([39.0]), 5)
    assert size is not None
    found = 0
    for _ in range(2_000):
        values = size + np.repeat(random.normal(0, 0.1, 40), 3) + random.normal(0, 0.05, 120)
        found += bool(paired_test(values[None], clusters).p[0] < ALPHA / 5)
    assert found / 2_000 == pytest.approx(0.8, abs=0.03)


def test_without_variance_there_is_none() -> None:
    assert detectable(np.array([0.0, np.nan, 0.1]), np.array([9.0, 9.0, 0.0])) == [None, None, None]
    assert detectable(np.array([]), np.array([])) == []
    (one,) = detectable(np.array([0.1]), np.array([1.0]), 30)  # one degree of freedom, a strict level
    assert one is not None
    assert one > 10


def solved(comparison: Comparison, arm: str, tests: int) -> float:
    frame = comparison.frame
    differences = frame.values[frame.arms.index(arm), 0] - frame.values[frame.arms.index("original"), 0]
    effect = TTestPower().solve_power(nobs=len(differences), alpha=ALPHA / tests, power=0.8, alternative="two-sided")
    return float(np.atleast_1d(effect)[0] * np.std(differences, ddof=1))


def test_a_run_says_what_its_queries_show() -> None:
    found = comparison_of(ARMS[:2], values_of(ARMS, 40)[:2])
    test = found.frame.test(0, 1)
    sizes = dict(zip(MEASURES, detectable(test.error, test.freedom), strict=True))
    one = Evaluation(40, 0, dict.fromkeys(MEASURES, 0.5), None, None, detectable={k: v for k, v in sizes.items() if v})
    (note,) = detectable_notes(one)
    assert sizes["nDCG@10"] == pytest.approx(solved(found, "full", 1), rel=1e-3)
    assert note.startswith(
        f"smallest difference that these queries show, with a power of 80 % at 0.05: nDCG@10 {sizes['nDCG@10']:.4f}, "
    )
    assert evaluation_values(one)["measures"]["P@5"]["detectable"] == sizes["P@5"]
    assert detectable_notes(Evaluation(40, 0, {}, None, None)) == []

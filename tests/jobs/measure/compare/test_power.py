"""The smallest effect that a comparison can show: by statsmodels, by simulated experiments, and where it is printed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy import stats
from statsmodels.stats.power import TTestPower

from jobs.measure.compare.comparison import Comparison
from jobs.measure.evaluate.evaluate import Evaluation, detectable_notes, evaluation_values
from jobs.measure.power import detectable
from jobs.measure.significance import ALPHA, paired_test
from jobs.pages.ablation import ablation_report
from jobs.pages.closing import ComparedArms
from jobs.pages.comparison import comparison_table, comparison_values
from jobs.plan.work import saved
from tests.support.jobs.report_ablations import ARMS, MEASURES, ablation_at, comparison_of, values_of
from tests.support.jobs.report_runs import Page


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


def test_each_comparison_has_its_own_and_every_table_says_it(tmp_path: Path) -> None:
    found = comparison_of(ARMS, values_of(ARMS, 60))
    first = found.frame.measures[0]
    questions = [arm.name for arm in ARMS if arm.family in ("always", "subsets") and arm.name != "original"]
    for arm in ARMS:
        one = found.by_arm[arm.name, first]
        if arm.name in questions:
            assert one.detectable == pytest.approx(solved(found, arm.name, len(questions)), rel=1e-3)
        elif arm.family == "grid":
            assert one.detectable == pytest.approx(solved(found, arm.name, 1), rel=1e-3)
        else:
            assert one.detectable is None
    values = json.loads(json.dumps(comparison_values(found), allow_nan=False))
    full = found.by_arm["full", first].detectable
    assert values["arms"][0]["measures"][first]["detectable"] == full
    console = Console(width=80, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(comparison_table(found))
    assert all(len(line) <= 80 for line in captured.get().splitlines())
    assert next(line for line in captured.get().splitlines() if line.startswith("full ")).split()[-2:][0] != "-"
    assert f"{full:.4f}" in captured.get()
    run = ablation_at(tmp_path)
    html = ablation_report(ComparedArms(run, None, saved(run), found, None, [], [], None))
    assert '<th scope="col">seen from</th>' in html
    baseline = html.partition("<small>baseline</small>")[2].partition("</tr>")[0]  # its cells stand under the same headings
    assert '<td>–</td><td class="drawn" data-parts=",">–</td><td>–</td><td class="verdict">' in baseline
    assert '<td>–</td><td>–</td><td class="drawn"' not in baseline
    page = Page(html)
    assert len(page.row("arms", "original baseline")) == len(page.row("arms", "full"))
    assert f">{full:.4f}</td>" in html


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


def test_a_clear_difference_is_mostly_greater_than_it() -> None:
    """A test that just finds a difference has an effect below the size that is found in four of five experiments."""
    error, freedom = np.array([0.01]), np.array([49.0])
    (size,) = detectable(error, freedom)
    assert size is not None
    assert size > stats.t.isf(ALPHA / 2, 49) * 0.01

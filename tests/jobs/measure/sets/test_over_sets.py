"""The comparison over sets of invented values: what it counts, corrects, leaves out and says."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from cluster.errors import ConfigError
from jobs.config.settings import TableSettings
from jobs.measure.compare.comparison import Comparison
from jobs.measure.export.sets_latex import sets_latex_table
from jobs.measure.sets.over_sets import SetsComparison, compare_over_sets
from jobs.measure.significance import false_discovery_rates, holm
from jobs.pages.sets.tables import sets_tables, sets_values
from jobs.terminal.tables import page_text
from tests.support.jobs.report_ablations import ARMS, MEASURES, ArmOf, comparison_of, values_of

NAMES = ("one", "two", "three", "four", "five", "six")


def on_sets(count: int, arms: list[ArmOf] = ARMS) -> dict[str, Comparison]:
    return {
        name: comparison_of(arms, values_of(arms, 30 + 10 * number, seed=number)) for number, name in enumerate(NAMES[:count])
    }


def over(count: int, arms: list[ArmOf] = ARMS) -> SetsComparison:
    return compare_over_sets(on_sets(count, arms))


def test_means_and_counts_are_of_sets_each_with_the_same_weight() -> None:
    sets = on_sets(3)
    found = compare_over_sets(sets)
    for arm in found.arms:
        for measure in MEASURES:
            one, of = found.over[arm, measure], [comparison.by_arm[arm, measure] for comparison in sets.values()]
            assert one.mean == pytest.approx(np.mean([other.mean for other in of]))
            assert one.difference == pytest.approx(np.mean([other.difference for other in of]), abs=1e-12)
            assert one.wins + one.ties + one.losses == 3
            better = [other for other in of if other.corrected is not None and other.corrected < 0.05 and other.difference > 0]
            assert one.better == len(better)
    assert found.over["original", MEASURES[0]].ties == 3


def test_corrections_are_by_family_and_leave_out_the_baseline_and_samples() -> None:
    found = over(2)
    asked = [arm.name for arm in ARMS if arm.family in ("always", "subsets") and arm.name != "original"]
    for measure in MEASURES:
        p = np.array([found.over[arm, measure].p for arm in asked])
        assert [found.over[arm, measure].p_holm for arm in asked] == pytest.approx(holm(p).tolist())
        grid = found.over["fuse.k=10", measure]
        assert grid.q == pytest.approx(false_discovery_rates(np.array([grid.p]))[0])
        assert grid.p_holm is None
        for arm in ("original", "full #2"):
            assert found.over[arm, measure].corrected is None
    assert found.over["full #2", MEASURES[0]].rank is None


@pytest.mark.slow
def test_six_sets_are_draws_and_five_are_not() -> None:
    five, six = over(5), over(6)
    assert all(np.isnan(one.p_sets) for one in five.over.values())
    assert any("no test over sets as draws: of 5 its p is 0.062 at least" in note for note in five.notes)
    differences = [one.by_arm["full", MEASURES[0]].difference for one in six.sets.values()]
    assert six.over["full", MEASURES[0]].p_sets == pytest.approx(stats.wilcoxon(differences, method="exact").pvalue)
    assert not any("no test over sets" in note for note in six.notes)


def test_mean_ranks_are_those_of_friedmans_test() -> None:
    found = over(4)
    contending = [arm for arm in found.arms if not arm.startswith("full #")]
    means = np.array([[one.by_arm[arm, MEASURES[0]].mean for one in found.sets.values()] for arm in contending])
    ranks = np.array([found.over[arm, MEASURES[0]].rank for arm in contending])
    count, sets = means.shape
    friedman = 12 * sets / (count * (count + 1)) * (np.sum(ranks**2) - count * (count + 1) ** 2 / 4)
    assert friedman == pytest.approx(stats.friedmanchisquare(*means).statistic)


def test_arms_that_some_sets_lack_and_sets_without_judgements_are_named() -> None:
    sets = on_sets(2)
    fewer = [arm for arm in ARMS if arm.name != "keyword"]
    sets["two"] = comparison_of(fewer, values_of(fewer, 20))
    found = compare_over_sets(sets, ["six"])
    assert "keyword" not in found.arms
    assert any(note.startswith("not in the table, since some sets have no arm of that name: keyword") for note in found.notes)
    assert any(note.startswith("warning: six is not measured") for note in found.notes)


def test_sets_with_other_baselines_or_no_measure_in_common_are_refused() -> None:
    sets = on_sets(2)
    other = comparison_of(ARMS, values_of(ARMS, 20), baseline="full")
    with pytest.raises(ConfigError, match=r"evaluate\.baseline"):
        compare_over_sets(sets | {"two": other})
    frame = replace(sets["two"].frame, measures=("AP", "RR", "R@1", "P@1"))
    renamed = tuple(replace(one, measure=frame.measures[MEASURES.index(one.measure)]) for one in sets["two"].differences)
    with pytest.raises(ConfigError, match="no measure is of all sets"):
        compare_over_sets(sets | {"two": replace(sets["two"], frame=frame, differences=renamed)})


def test_a_bound_is_never_best_and_has_no_test() -> None:
    arms = [*ARMS, ArmOf("best of two", effect=0.5, members=("full", "general"))]
    found = over(2, arms)
    assert found.ordered()[0] == "best of two"
    assert "best of two" not in found.places(None, MEASURES[0])
    assert found.over["best of two", MEASURES[0]].corrected is None
    assert "Upper bounds that choose by judgements: best of two" in sets_latex_table(found)


@pytest.mark.slow
def test_the_terminal_has_at_most_100_columns_and_says_which_sets_it_leaves_out() -> None:
    text = page_text(sets_tables(over(6)), 100)
    assert max(map(len, text.splitlines())) <= 100
    assert "five, six: see --json and the page" in text


def test_values_have_no_number_that_json_lacks() -> None:

    values = sets_values(over(2))
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert values["arms"][0]["measures"][MEASURES[0]]["p_sets"] is None


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 6])
def test_latex_rows_have_a_cell_for_each_column(count: int) -> None:
    found = over(count)
    table = sets_latex_table(found, TableSettings(measures=["P@5", "nDCG@10"]))
    groups = count + (count > 1)
    columns = 1 + 2 * groups + (count > 1)
    rows = [line for line in table.splitlines() if line.endswith(r"\\")][1:]
    assert [row.count(" & ") for row in rows] == [columns - 1] * len(rows)
    assert len(rows) == 1 + len(ARMS)
    assert ("W/T/L" in rows[0]) == (count > 1)


def test_arrows_have_the_direction_of_the_difference_and_best_is_among_the_chosen_arms() -> None:
    found = over(2, [ArmOf("original", "always", ()), ArmOf("low", effect=-0.4), ArmOf("high", effect=0.4)])
    table = sets_latex_table(found, TableSettings(arms=["low", "original"], marks="direction", digits=2))
    rows = {line.partition(" & ")[0]: line for line in table.splitlines() if line.endswith(r"\\")}
    assert list(rows)[-2:] == ["low", "original"]
    assert r"$^{\downarrow\downarrow}$" in rows["low"]
    assert "uparrow" not in rows["low"] + rows["original"]
    for number in range(1, 1 + 3 * len(MEASURES)):
        assert any("textbf" in rows[arm].split(" & ")[number] for arm in ("low", "original"))
    up = sets_latex_table(found, TableSettings(arms=["high"], marks="direction"))
    assert r"$^{\uparrow\uparrow}$" in up.partition(r"\midrule")[2]

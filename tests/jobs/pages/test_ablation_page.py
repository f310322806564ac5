"""The page of an ablation: its figures against those handed in, what it leaves out, what strangers' texts do to it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.measure.comparison import Comparison
from jobs.pages.ablation import MOST_ARMS, ComparedArms, ablation_report, pareto_front
from jobs.pages.comparison import Comparisons
from jobs.runs.saving import saved
from jobs.terminal.formats import figure
from tests.support.jobs.report_ablations import (
    ARMS,
    MEASURES,
    ArmOf,
    ablation_at,
    comparison_of,
    costs_of,
    funnel_of,
    values_of,
    worth_of,
)
from tests.support.jobs.report_runs import Page, query_id

KEYS = 60


def compared(arms: list[ArmOf] = ARMS, keys: int = KEYS, **further: Any) -> Comparison:
    return comparison_of(arms, values_of(arms, keys), **further)


def html(folder: Path, comparison: Comparison | None, arms: list[ArmOf] = ARMS, **options: Any) -> str:
    run = ablation_at(folder, arms)
    funnel, costs = funnel_of() if comparison else None, costs_of(arms, comparison)
    return ablation_report(
        ComparedArms(run, None, saved(run), Comparisons([comparison] if comparison else []), funnel, worth_of(), costs),
        **options,
    )


def signed(value: float) -> str:
    return figure(value, "+").replace("-", "−")


# ---------------------------------------------------------------- figures


def test_the_tables_have_the_figures_of_the_comparison(tmp_path: Path) -> None:
    found = compared()
    page = Page(html(tmp_path, found))
    for number, arm in enumerate(found.frame.arms):
        means = [f"{value:.4f}" for value in found.frame.values[number].mean(axis=1)]
        first, second = [[cell.strip() for cell in row[1:]] for row in page.rows["arms"] if row[0].strip() == arm]
        assert [cell.rstrip("¹²+-=") for cell in second] == means
        assert first[0].rstrip("¹² ") == means[0]
        if arm == found.baseline:
            assert first[1] == "baseline"
            continue
        one = found.by_arm[arm, MEASURES[0]]
        assert first[1:3] == [signed(one.difference), f"{signed(one.low)} to {signed(one.high)}"]
        assert first[5:] == [one.verdict_within(0.01), f"{one.wins} / {one.ties} / {one.losses}"]
    text = page.sections["verdict"]
    assert f"The best arm, {found.leader}, is better than original: nDCG@10" in text
    assert "9,600" in text


def test_best_and_second_best_are_marked_as_printed() -> None:
    arms = [ArmOf(name) for name in "abcde"] + [ArmOf("bound", members=("a",)), ArmOf("full #2", "samples")]
    values = np.tile(np.array([0.5, 0.50004, 0.4, 0.49999, 0.3, 0.9, 0.8])[:, None, None], (1, len(MEASURES), 4))
    found = comparison_of(arms, values, "e")
    assert found.best_two("P@5") == ({"a", "b", "d"}, {"c"})
    assert found.leader == "b"
    same = comparison_of(arms, np.full_like(values, 0.5), "e")
    assert same.best_two("P@5")[1] == frozenset()


@pytest.mark.parametrize(
    ("p_holm", "q", "p_equivalent", "moved", "said"),
    [
        (0.001, None, 0.04, 0.001, "better, by less than 0.01"),
        (None, 0.02, 0.5, 0.1, "better"),
        (None, None, 0.5, 0.1, "not tested"),
    ],
)
def test_verdicts_are_by_corrected_p(
    p_holm: float | None, q: float | None, p_equivalent: float, moved: float, said: str
) -> None:
    one = replace(compared().differences[0], p=0.0001, p_holm=p_holm, q=q, p_equivalent=p_equivalent, difference=moved)
    assert one.verdict_within(0.01) == said
    assert one.corrected == (q if p_holm is None else p_holm)


def test_leave_one_out_is_the_loss_to_the_whole(tmp_path: Path) -> None:
    comparison = compared()
    rows, frame = comparison.left_out(), comparison.frame
    whole = frame.values[frame.arms.index("full")]
    assert [np.mean(losses) for _, losses in rows] == sorted((np.mean(losses) for _, losses in rows), reverse=True)
    for strategy, losses in rows:
        without = frame.values[frame.arms.index(f"without {strategy}")]
        assert losses == pytest.approx((whole - without).mean(axis=1))
    cells = Page(html(tmp_path, comparison)).row("left-out", rows[0][0])
    assert cells == [*map(signed, rows[0][1]), signed(float(np.mean(rows[0][1])))]
    assert compared([arm for arm in ARMS if arm.family != "subsets"]).left_out() == []


def test_strategies_costs_and_queries_are_those_handed_in(tmp_path: Path) -> None:
    comparison = compared()
    page = Page(html(tmp_path, comparison))
    name, counts = next(iter(funnel_of().strategies.items()))
    assert page.row("strategies", name)[:5] == [str(n) for n in counts]
    cost = next(of for of in costs_of(ARMS, comparison) if of["arm"] == "full")
    assert page.row("cost", "full")[2:5] == [f"{cost[name]:,}" for name in ("requests", "searches", "pairs")]
    arm, base = (comparison.frame.arms.index(name) for name in (comparison.leader, "original"))
    moved = comparison.frame.values[arm, 0] - comparison.frame.values[base, 0]
    assert f"{(moved > 1e-9).sum()} queries gain nDCG@10, {(moved < -1e-9).sum()} lose" in page.sections["queries"]
    assert page.row("queries", f"query number {moved.argmax()}")[-1] == signed(float(moved.max()))
    drawings = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert len(drawings) == 2
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in drawings)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12))
def test_the_front_is_what_nothing_is_cheaper_and_better_than(points: list[tuple[int, int]]) -> None:
    spent = {str(n): float(x) for n, (x, _) in enumerate(points)}
    quality = {str(n): float(y) for n, (_, y) in enumerate(points)}
    front = pareto_front(spent, quality)

    def beaten(arm: str) -> bool:
        return any(
            spent[other] <= spent[arm]
            and quality[other] >= quality[arm]
            and (spent[other], quality[other]) != (spent[arm], quality[arm])
            for other in spent
        )

    assert {(spent[arm], quality[arm]) for arm in spent if not beaten(arm)} == {(spent[arm], quality[arm]) for arm in front}
    assert [spent[arm] for arm in front] == sorted({spent[arm] for arm in front})


@pytest.mark.slow
def test_of_many_arms_the_best_have_rows(tmp_path: Path) -> None:
    arms = [*ARMS, *(ArmOf(f"grid {n}", "grid", effect=n / 3000) for n in range(200))]
    page = Page(html(tmp_path, compared(arms, 20), arms))
    names = {row[0].strip() for row in page.rows["arms"]}
    assert {"original", "full"} <= names
    assert len(names - {"arm"}) == MOST_ARMS
    assert f"The best {MOST_ARMS} are shown" in page.sections["arms"]


# ---------------------------------------------------------------- the page as such


def test_nothing_that_somebody_wrote_is_on_a_page_without_texts(tmp_path: Path) -> None:
    queries = tuple(f"privateword {n}" for n in range(KEYS))
    comparison = compared(keys=KEYS, queries=queries)
    comparison = replace(comparison, frame=replace(comparison.frame, keys=queries))
    assert "privateword" in html(tmp_path / "a", comparison)
    closed = html(tmp_path / "b", comparison, texts=False)
    assert "privateword" not in closed
    assert re.search("|".join(query_id(n) for n in range(KEYS)), closed)


def test_without_judgements_costs_and_worth_are_left(tmp_path: Path) -> None:
    page = Page(html(tmp_path, None))
    assert "Nothing is measured: there are no relevance judgements" in page.sections["verdict"]
    assert set(page.sections) & {"arms", "left-out", "queries", "slices"} == set()
    assert page.row("cost", "full")
    assert page.row("strategies", "general")

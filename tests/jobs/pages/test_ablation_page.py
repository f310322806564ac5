"""The page of an ablation: its figures against those handed in, what it leaves out, what strangers' texts do to it."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.counts import QUANTITIES
from jobs.measure.comparison import Comparison
from jobs.measure.costs import ArmCost
from jobs.measure.judged_rows import AskedQuery
from jobs.measure.strategies import Funnel
from jobs.pages.ablation import ComparedArms, ablation_report, pareto_front
from jobs.pages.comparison import Comparisons
from jobs.runs.savings import saved
from jobs.terminal.formats import figure
from tests.support.jobs.run_folders import Page, Row, frame_of, query_id, write_folder
from tests.support.jobs.run_folders import arm as described

Floats = npt.NDArray[np.float64]
KEYS = 60
MEASURES = ("nDCG@10", "R@10", "P@5", "Success@5")
STRATEGIES = ("general", "keyword", "pseudo_answer", "core_content")


def made(name: str, family: str = "arms", strategies: Sequence[str] = STRATEGIES, effect: float = 0.0, **more: Any) -> Row:
    """Returns an arm as run.json has it; `effect` is what it adds to the values of the original."""
    return described(name, family, strategies=list(strategies), effect=effect, **more)


ARMS = [
    made("full", "always", effect=0.06),
    made("original", "always", ()),
    made("general", "always", ("general",), 0.01, original=False),
    made("keyword", "always", ("keyword",), -0.04, original=False),
    made("without general", "subsets", STRATEGIES[1:], 0.05),
    made("without keyword", "subsets", ("general", *STRATEGIES[2:]), 0.065),
    made("fuse.k=10", "grid", effect=0.055, changes={"fuse.k": 10}),
    made("full #2", "samples", effect=0.058),
    made("full #3", "samples", effect=0.061),
]
FOUND: dict[str, list[int | None]] = {name: [900 - n, 120 - n, 96 - n, 60 - n, 27 - n] for n, name in enumerate(STRATEGIES)}
FUNNEL = Funnel(300, 1500, 1200, FOUND)
WORTH = [
    {"strategy": name, "increment": 4.2 - 0.5 * n, "increment_share": 0.42 - 0.05 * n} for n, name in enumerate(STRATEGIES)
]
COSTS: list[ArmCost] = [
    dict.fromkeys((*QUANTITIES, *(f"alone_{name}" for name in QUANTITIES)), 0)
    | {
        "arm": arm["name"], "seconds": 12.0 + n, "device_seconds": 7.0 + n, "requests": 300 * len(arm["strategies"]),
        "searches": 600 + 20 * n, "pairs": 9000, "standalone_usd": 0.1 + 0.02 * n, "marginal_usd": 0.01,
    }
    for n, arm in enumerate(ARMS)
]  # fmt: skip


def comparison_of(arms: Sequence[Row], values: Floats, baseline: str = "original", **names: Any) -> Comparison:
    """Returns a comparison of these values."""
    counts = np.resize([1, 5, 8], values.shape[2]).tolist()
    frame = frame_of(
        values, arms=tuple(arm["name"] for arm in arms), measures=MEASURES, condensed=np.clip(values * 1.05, 0, 1),
        asked=tuple(AskedQuery(f"query number {n}", None, count) for n, count in enumerate(counts)),
        unjudged=np.linspace(0.1, 0.3, len(arms)), **names,
    )  # fmt: skip
    return Comparison(frame, baseline, 0.01, {arm["name"]: arm for arm in arms})


def compared(arms: list[Row] = ARMS, **names: Any) -> Comparison:
    """Returns a comparison of invented values: those of the original, moved on each key by the arm's effect and by chance."""
    random = np.random.default_rng(7)
    original = random.random((len(MEASURES), KEYS))
    moved = np.array([random.normal(arm["effect"], 0.1, original.shape) * (arm["effect"] != 0) for arm in arms])
    moved[..., random.random(KEYS) < 0.3] = 0  # ties
    return comparison_of(arms, np.clip(original + moved, 0, 1), **names)


def html(folder: Path, comparison: Comparison | None, **options: Any) -> str:
    counts = {"arm/full/requests/dmqr@m": 9600, "arm/full/searches/bm25@": 40000}
    costs = {"rewrite": {"dmqr@m": {"requests": 1100.0, "reused": 100.0}}, "retrieve": {"bm25@": {"searches": 5000.0}}}
    evaluate = {"qrels": "qrels.tsv", "measures": list(MEASURES)}
    run = write_folder(folder, {}, queries=3, arms=ARMS, strategies=STRATEGIES, counts=counts, costs=costs, evaluate=evaluate)
    lists, funnel = Comparisons([comparison] if comparison else []), FUNNEL if comparison else None
    return ablation_report(ComparedArms(run, None, saved(run), lists, funnel, WORTH, COSTS, {}), **options)


def signed(value: float) -> str:
    return figure(value, "+").replace("-", "−")


# ---------------------------------------------------------------- figures


def test_the_tables_have_the_figures_of_the_comparison(tmp_path: Path) -> None:
    found = compared()
    page = Page(html(tmp_path, found))
    for number, arm in enumerate(found.frame.arms):
        means = [f"{value:.4f}" for value in found.frame.values[number].mean(axis=1)]
        first, second = [[cell.strip() for cell in row[1:]] for row in page.rows["arms"] if row[0].strip() == arm]
        assert [cell.rstrip("+−=") for cell in second] == means
        assert first[0] == means[0]
        if arm == found.baseline:
            assert first[1] == "baseline"
            continue
        one = found.by_arm[arm, MEASURES[0]]
        assert first[1:3] == [signed(one.difference), f"{signed(one.low)} to {signed(one.high)}"]
        assert first[5:] == [one.verdict_within(0.01), f"{one.wins} / {one.ties} / {one.losses}"]
    text = page.sections["verdict"]
    assert f"The best arm, {found.leader}, is better than original: nDCG@10" in text


def test_samples_and_bounds_are_not_the_best_arm() -> None:
    arms = [made(name) for name in "abcde"] + [made("bound", members=["a"]), made("full #2", "samples")]
    values = np.tile(np.array([0.5, 0.50004, 0.4, 0.49999, 0.3, 0.9, 0.8])[:, None, None], (1, len(MEASURES), 4))
    assert comparison_of(arms, values, "e").leader == "b"


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
    assert compared([arm for arm in ARMS if arm["family"] != "subsets"]).left_out() == []


def test_strategies_costs_and_queries_are_those_handed_in(tmp_path: Path) -> None:
    comparison = compared()
    page = Page(html(tmp_path, comparison))
    name, counts = next(iter(FUNNEL.strategies.items()))
    assert page.row("strategies", name)[:5] == [str(n) for n in counts]
    cost = next(of for of in COSTS if of["arm"] == "full")
    assert page.row("cost", "full")[2:5] == [f"{cost[name]:,}" for name in ("requests", "searches", "pairs")]
    arm, base = (comparison.frame.arms.index(name) for name in (comparison.leader, "original"))
    moved = comparison.frame.values[arm, 0] - comparison.frame.values[base, 0]
    assert f"{(moved > 1e-9).sum()} queries gain nDCG@10, {(moved < -1e-9).sum()} lose" in page.sections["queries"]
    assert page.row("queries", f"query number {moved.argmax()}")[-1] == signed(float(moved.max()))
    drawings = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert len(drawings) == 1
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


# ---------------------------------------------------------------- the page as such


def test_nothing_that_somebody_wrote_is_on_a_page_without_texts(tmp_path: Path) -> None:
    queries = tuple(f"privateword {n}" for n in range(KEYS))
    comparison = compared()
    asked = tuple(AskedQuery(query, None, 1) for query in queries)
    comparison = replace(comparison, frame=replace(comparison.frame, keys=queries, asked=asked))
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

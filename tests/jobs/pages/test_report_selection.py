"""Reports, closing tables and comparisons of runs in which strategies give several texts, or are selected query by query."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cluster.storage import open_storage
from jobs.measure.diff.changed_queries import Share, moves
from jobs.measure.diff.diff import diff, diff_values
from jobs.pages.diff import diff_page
from jobs.pages.report.figures import Figures
from jobs.pages.report.spending import spending
from jobs.runs.folder import RunFolder, open_run
from jobs.runs.sums import Selected, selected_by_type
from tests.support.jobs.report_runs import PRICES, Make, Page, Query, RunMaker, page
from tests.support.jobs.terminals import printed

FUSION = "rag_fusion(n=3)"
POOL = ("keyword", FUSION, "hyde")
HITS = {("original", "bm25"): ["d01"]}
CHOSEN = [
    Query(
        "alpha",
        {"keyword": "alphakey", FUSION: ["alphaone", "alphatwo", "alphathree"]},
        hits=HITS | {(FUSION, "bm25"): ["d02"]},
        selected=("simple", ["keyword", FUSION], "why alphareason"),
    ),
    Query("bravo", {FUSION: ["bravoone"]}, {"hyde": ("cut", "raw")}, HITS, selected=("simple", [FUSION, "hyde"], "because")),
    Query("charlie", hits=HITS, selected=("keywords", [], "clear enough")),
]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return RunMaker(tmp_path)


def chosen(make: Make, select: Any = "adaptive", **more: Any) -> RunFolder:
    return make(CHOSEN, POOL, select=select, **more)


def said(found: Page, section: str) -> str:
    return " ".join(found.sections[section].split())


# ---------------------------------------------------------------- counts


def test_the_queries_of_a_strategy_have_texts_failed_or_were_not_selected(make: Make) -> None:
    figures = Figures(chosen(make))
    assert {one.strategy: (one.made, one.queries, one.failures, one.not_selected) for one in figures.rungs} == {
        "keyword": (1, 1, 0, 2), FUSION: (4, 2, 0, 1), "hyde": (0, 0, 1, 2),
    }  # fmt: skip
    assert all(one.queries + one.failures + one.not_selected == 3 for one in figures.rungs)
    assert figures.selected is not None
    assert (figures.selected.queries, figures.selected.mean_strategies) == (3, pytest.approx(4 / 3))
    assert figures.selected.mean_texts == pytest.approx(5 / 3)
    assert figures.selected_by_type["simple"].share(FUSION) == 1


def test_types_and_strategies_of_any_name_are_told_apart() -> None:
    counts = {
        "selections/a/b/2": 3,
        "selections/a/0": 1,
        "texts/a/b/5": 3,
        "texts/a/0": 1,
        "selected/a/b/x": 3,
        "selected/a/x": 0,
    }
    found = selected_by_type(counts, ["x"])
    assert list(found) == ["a/b", "a"]
    assert found["a/b"] == Selected(Counter(x=3), Counter({2: 3}), Counter({5: 3}))
    assert (found["a/b"] + found["a"]).texts == Counter({5: 3, 0: 1})


def test_a_run_that_selects_nothing_has_none_of_it(make: Make) -> None:
    run = make()
    assert Figures(run).selected is None
    assert not [key for key in run.counts if key.startswith(("selected/", "selections/", "texts/", "further_texts/"))]
    found = page(run)
    assert "selection" not in found.sections
    assert "not selected" not in "".join(found.sections.values())


# ---------------------------------------------------------------- costs


@pytest.mark.parametrize(("select", "joint"), [("adaptive", "dmqr_adaptive"), ("random_k", "dmqr")])
def test_a_request_of_several_is_paid_by_the_selected(make: Make, select: str, joint: str) -> None:
    run = chosen(make, select)
    assert {key.partition("@")[0] for key in run.spent["rewrite"]} == {joint, "start_up"}
    found = spending(Figures(run), PRICES)
    lines = {line.name: line for line in found.strategies}
    assert [lines[name]["requests"] for name in POOL] == pytest.approx([2 * 1 / 4, 2 * 2 / 4, 2 * 1 / 4])
    assert sum(line["requests"] for line in found.strategies) == pytest.approx(2)


def test_only_the_strategies_of_the_joint_request_share_it(make: Make) -> None:
    run = make(strategies=("general", "keyword", "hyde"))
    requests = [{"name": "dmqr"}, {"name": "hyde"}]
    run.record["identity"] = {"rewrite": {"rewriter": {"requests": requests}}}
    assert Figures(run).sharing == ["general", "keyword"]
    lines = {line.name: line for line in spending(Figures(run), None).strategies}
    assert [lines[name]["requests"] for name in ("general", "keyword")] == [1.5, 1.5]
    assert "hyde" not in lines
    assert "One request serves general, keyword of a query" in said(page(run), "cost")


def test_the_question_of_the_type_has_a_line_of_its_own(make: Make) -> None:
    run = chosen(make, calls="separate")
    run.tally.spent["rewrite"]["classify@writer"] = {"requests": 3}
    lines = {line.name: line for line in spending(Figures(run), None).strategies}
    assert lines["classify"]["requests"] == 3
    assert lines[FUSION]["requests"] == 2


# ---------------------------------------------------------------- two runs

IDENTITY = {"config": {"rewrite": {"engine": {"kind": "recorded"}}}, "rewrite": {"rewriter": {"strategies": [{"name": "s"}]}}}


def beside(tmp_path: Path, folder: str, queries: list[Query], select: str, identity: dict[str, Any] = IDENTITY) -> RunFolder:
    maker = RunMaker(tmp_path)
    maker.storage = open_storage(str(tmp_path / folder))  # type: ignore[assignment]
    run = maker(queries, POOL, select=select)
    config = identity["config"] | {"rewrite": identity["config"]["rewrite"] | ({} if select == "all" else {"select": select})}
    record = run.record | {"run_id": folder, "identity": identity | {"config": config}}
    run.storage.put("run.json", json.dumps(record).encode())
    return open_run(run.storage.root)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[RunFolder, RunFolder]:
    """A run with all strategies, and the same with selected ones."""
    every = [Query(one.name, dict.fromkeys(POOL, "text"), hits=HITS) for one in CHOSEN]
    run = beside(tmp_path, "small-0123456789aa", every, "all")
    return run, beside(tmp_path, "small-0123456789ab", CHOSEN, "adaptive")


# ---------------------------------------------------------------- diff


def test_what_only_one_run_selected_is_shown_as_such(pair: tuple[RunFolder, RunFolder]) -> None:
    found = moves(*pair, 10)
    by = {one.strategy: one for one in found.strategies}
    assert {name: (by[name].selected_a, by[name].selected_b) for name in POOL} == {
        "keyword": (Share(2, 2), Share(0, 0)), FUSION: (Share(1, 1), Share(0, 0)), "hyde": (Share(2, 2), Share(0, 0)),
    }  # fmt: skip
    bravo = next(one for one in found.listed if one.query == "bravo")
    assert bravo.selected == {"keyword": "A"}  # hyde was selected in both, and failed in B
    alpha = next(one for one in found.listed if one.query == "alpha")
    assert list(alpha.rewrites) == ["keyword", f"{FUSION} 1", f"{FUSION} 2", f"{FUSION} 3", "hyde"]
    assert alpha.rewrites[f"{FUSION} 2"] == (None, "alphatwo")
    text = " ".join(printed(diff_page(diff(*pair, None, None, 10))).split())
    assert "keyword 3 100.0 % 3 100.0 % selected in A only 2 66.7 %" in text
    assert "selected in A only: keyword, rag_fusion(n=3), hyde" in text
    assert "rewrites of a query, on average: A 3.00, B 1.67" in text
    assert diff_values(diff(*pair, None, None, 10))["rewrites"]["per_query"] == {"a": 3.0, "b": pytest.approx(5 / 3)}


def test_both_selecting_alike_differ_in_nothing(pair: tuple[RunFolder, RunFolder]) -> None:
    found = moves(pair[1], pair[1], 10)
    assert all((one.moved, one.selected_a, one.selected_b) == (Share(0, 0),) * 3 for one in found.strategies)
    assert found.listed == []

"""Differences of runs in which strategies give several texts, or are selected query by query."""

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
from jobs.runs.folder import RunFolder, open_run
from jobs.runs.sums import Selected, selected_by_type
from tests.support.jobs.run_folders import Query, RunMaker
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


def test_types_and_strategies_of_any_name_are_told_apart() -> None:
    counts = {"selections/a/b/2": 3, "selections/a/0": 1, "selected/a/b/x": 3, "selected/a/x": 0}
    found = selected_by_type(counts, ["x"])
    assert list(found) == ["a/b", "a"]
    assert found["a/b"] == Selected(Counter(x=3), Counter({2: 3}))
    assert (found["a/b"] + found["a"]).numbers == Counter({2: 3, 0: 1})


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
    same = moves(pair[1], pair[1], 10)
    assert all((one.moved, one.selected_a, one.selected_b) == (Share(0, 0),) * 3 for one in same.strategies)
    assert same.listed == []

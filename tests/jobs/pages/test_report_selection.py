"""Reports, closing tables and comparisons of runs in which strategies give several texts, or are selected query by query."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from cluster.storage import open_storage
from jobs.measure.diff.changed_queries import Share, moves
from jobs.measure.diff.diff import diff, diff_values
from jobs.measure.evaluate.evaluate import Evaluation
from jobs.measure.evaluate.stored_evaluation import store_evaluation
from jobs.measure.measures import MEASURES
from jobs.pages.diff import diff_page
from jobs.pages.report.all_and_selected import against
from jobs.pages.report.failures import failures
from jobs.pages.report.figures import Figures
from jobs.pages.report.flow import flow
from jobs.pages.report.samples import samples
from jobs.pages.report.selection import NARROW, WIDTH, histogram
from jobs.pages.report.spending import spending
from jobs.pages.summary import closing_table
from jobs.runs.folder import RunFolder, open_run
from jobs.runs.sums import Selected, selected_by_type
from jobs.tables import COMPLETIONS
from rewriters.outcome.retries import FIRST_TRY
from tests.support.jobs.report_runs import PRICES, Make, Page, Query, RunMaker, page, query_id

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


def test_the_closing_table_counts_texts_and_what_was_not_selected(make: Make) -> None:
    console = Console(width=120, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(closing_table(chosen(make), None, None))
    lines = [" ".join(line.split()) for line in captured.get().splitlines()]
    assert "rewrites 5 texts for 3 of 9 planned, 5 not selected (json 5)" in lines
    assert "keyword json 1; selected for 1 query" in lines
    assert f"{FUSION} json 4; texts for 2 queries; selected for 2 queries" in lines
    assert "hyde selected for 1 query" in lines


# ---------------------------------------------------------------- flow


def test_what_flows_in_flows_out(make: Make) -> None:
    run = chosen(make)
    drawn = flow(Figures(run))
    for node in drawn.nodes:
        if node.x > 1:
            assert node.into == pytest.approx(node.size), node.label
        if node.label in ("original", *POOL):
            assert node.out == pytest.approx(node.size), node.label
    counts = {node.label: node.count for node in drawn.nodes}
    assert (counts["json"], counts["not selected"], counts["truncated"], counts["as it is"]) == (5, 5, 1, 3)
    assert counts["bm25"] == 8  # three originals and five texts
    found = page(run)
    assert found.row("flow", "rewrite")[:2] == ["3 queries, 9 rewrites planned", "5 texts, 5 not selected, 1 failed"]
    assert "for 3 of 9 planned, 5 not selected" in said(found, "glance")


def test_many_texts_do_not_grow_out_of_the_drawing(make: Make) -> None:
    queries = [Query("alpha", {FUSION: [f"text {n}" for n in range(20)]}, hits=HITS)]
    for _, nodes in flow(Figures(make(queries, (FUSION,)))).columns:
        assert sum(node.size for node in nodes) <= 250.001


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


# ---------------------------------------------------------------- the page


def test_the_section_says_how_many_which_and_why(make: Make) -> None:
    found = page(chosen(make))
    text = said(found, "selection")
    assert "By select: adaptive 1.33 of 3 strategies were selected for an average query, which has 1.67 rewrites" in text
    assert found.row("selection", "simple") == ["2", "2.00", "2.50", "50.0 %", "100.0 %", "50.0 %"]
    assert found.row("selection", "keywords") == ["1", "0.00", "0.00", "0.0 %", "0.0 %", "0.0 %"]
    assert found.row("selection", "all") == ["3", "1.33", "1.67", "33.3 %", "66.7 %", "33.3 %"]
    labels = [values["aria-label"] or "" for tag, values in found.tags if tag == "svg" and "aria-label" in values]
    assert "selected strategies per query: 0: 1 queries, 33.3 %; 1: 0 queries, 0.0 %; 2: 2 queries, 66.7 %; 3: 0" in labels[0]
    assert labels[1].startswith("rewrites per query: 0: 1 queries")
    assert ("a", {"href": "#selection"}) in found.tags


def test_reasons_are_shown_where_no_type_says_why_and_texts_may_be(make: Make) -> None:
    queries = [Query(one.name, one.texts, hits=HITS, selected=(None, *one.selected[1:])) for one in CHOSEN if one.selected]
    run = make(queries, POOL, select="adaptive")
    text = said(page(run), "selection")
    assert "charlie noneclear enough" in text
    assert f"alpha keyword, {FUSION}why alphareason" in text
    closed = page(run, texts=False)
    assert "reason" not in said(closed, "selection")
    assert "alphareason" not in "".join(closed.sections.values())
    assert "not selected: hyde" in said(closed, "samples")


def test_samples_show_every_text_and_what_was_not_selected(make: Make) -> None:
    run = chosen(make)
    alpha = next(
        one for one in samples(Figures(run), failures(Figures(run), texts=True), 9, texts=True).queries if one.query == "alpha"
    )
    assert [row["name"] for row in alpha.rewrites] == ["keyword", f"{FUSION} 1", f"{FUSION} 2", f"{FUSION} 3"]
    assert next(hit for hit in alpha.hits if hit.doc_id == "d02").sources == {f"{FUSION} 1": [("bm25", 1)]}
    text = said(page(run), "samples")
    assert f"{FUSION} 3 jsonalphathree" in text
    assert "query type simple; not selected: hydewhy: why alphareason" in text
    assert "query type keywords; not selected: keyword, rag_fusion(n=3), hyde" in text
    assert f"{FUSION} jsonbravoone" in text  # the only one of its strategy has no number


def test_every_sample_of_a_request_is_shown(make: Make) -> None:
    run = chosen(make)
    rows = [
        {"query_id": query_id(0), "request": "r", "prompt": "p", "text": f"answer {n}", "finish_reason": "stop", "model": "m",
         "prompt_tokens": 1, "completion_tokens": 1, "start": 1, "sample": n}
        for n in (0, 1, FIRST_TRY + 1)
    ]  # fmt: skip
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([*rows, rows[0] | {"request": "classify"}], COMPLETIONS), sink)
    run.storage.put("completions/000000/more.parquet", sink.getvalue().to_pybytes())
    text = said(page(run), "samples")
    assert "r 1: 1 prompt tokens" in text
    assert "r 2: 1 prompt tokens" in text
    assert "r 2, try 2: 1 prompt tokens" in text
    assert text.index("classify: 1 prompt") < text.index("dmqr: 100 prompt") < text.index("r 1: 1 prompt")


def test_the_strategies_table_counts_texts_beside_queries(make: Make) -> None:
    found = page(chosen(make))
    assert found.row("rewrites", FUSION) == ["4", "4", "2", "0", "1", "–"]
    assert found.row("rewrites", "hyde") == ["0", "0", "0", "1", "2", "truncated"]


BAR = r'<rect x="([^"]*)" y="[^"]*" width="([^"]*)" height="([^"]*)"'
SHARE = r'class="share"[^>]*>([^<]*)<'


def test_bars_are_as_high_as_their_share_and_named_where_there_is_room() -> None:
    few, many = histogram("t", Counter({1: 1, 2: 3}), 4), histogram("t", Counter({20: 1}), 0)
    bars = [[float(number) for number in bar] for bar in re.findall(BAR, few.svg)]
    heights = [height for *_, height in bars]
    assert heights == pytest.approx([0, heights[2] / 3, heights[2], 0, 0], abs=0.05)
    assert re.findall(SHARE, few.svg) == ["25.0 %", "75.0 %"]
    assert few.mean == 1.75
    drawn = [[float(number) for number in bar] for bar in re.findall(BAR, many.svg)]
    assert WIDTH / len(drawn) < NARROW
    assert not re.findall(SHARE, many.svg)
    assert all(x + width <= WIDTH for x, width, _ in drawn)


# ---------------------------------------------------------------- all against selected

IDENTITY = {"config": {"rewrite": {"engine": {"kind": "recorded"}}}, "rewrite": {"rewriter": {"strategies": [{"name": "s"}]}}}


def evaluation(value: float, **more: Any) -> Evaluation:
    values = dict.fromkeys(MEASURES, value)
    return Evaluation(3, 0, values, values, None, queries=3, **more)


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
    store_evaluation(run.storage, evaluation(0.5))
    return run, beside(tmp_path, "small-0123456789ab", CHOSEN, "adaptive")


def test_a_run_that_differs_in_its_selection_alone_is_compared(pair: tuple[RunFolder, RunFolder]) -> None:
    found = page(pair[1], None, evaluation(0.25))
    text = said(found, "selection")
    assert "All strategies against adaptive selection" in text
    for words in ("nDCG@10 −0.2500", "Success@5 (H@5) −0.2500", "P@5 −0.2500", "rewrites per query −1.33"):
        assert words in text
    assert "small-0123456789aa is the newest finished run of this name" in text
    bars = [float(one["width"] or 0) for tag, one in found.tags if tag == "rect" and one.get("class") in ("all", "chosen")]
    assert bars[1] == pytest.approx(bars[0] / 2)
    assert bars[7] == pytest.approx(bars[6] * 5 / 9, abs=0.1)


def test_bars_of_other_judgements_do_not_stand_side_by_side(pair: tuple[RunFolder, RunFolder]) -> None:
    every, selects = pair
    for stored, mine, compared in (("aaa", "aaa", True), ("aaa", "bbb", False), (None, "bbb", True)):  # None: of before
        store_evaluation(every.storage, evaluation(0.5, judgements=stored))
        found = against(selects, evaluation(0.25, judgements=mine))
        assert (found is not None) == compared, (stored, mine)


@pytest.mark.parametrize("change", ["identity", "judgements", "log", "unmeasured"])
def test_other_runs_are_not_compared(pair: tuple[RunFolder, RunFolder], change: str) -> None:
    every, selects = pair
    mine: Evaluation | None = evaluation(0.25)
    if change == "identity":
        every.storage.put("run.json", json.dumps(every.record | {"identity": IDENTITY | {"rerank": "other"}}).encode())
    elif change == "judgements":
        mine = evaluation(0.25, rejected=0, key="query")
    elif change == "log":
        plan = json.loads(every.storage.get("shards.json") or b"")
        every.storage.put("shards.json", json.dumps(plan | {"inputs": []}).encode())
    else:
        mine = None
    text = said(page(selects, None, mine), "selection")
    assert "All strategies against" not in text


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
    console = Console(width=100, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(diff_page(diff(*pair, None, None, 10)))
    text = " ".join(captured.get().split())
    assert "keyword 3 100.0 % 3 100.0 % selected in A only 2 66.7 %" in text
    assert "selected in A only: keyword, rag_fusion(n=3), hyde" in text
    assert "rewrites of a query, on average: A 3.00, B 1.67" in text
    assert diff_values(diff(*pair, None, None, 10))["rewrites"]["per_query"] == {"a": 3.0, "b": pytest.approx(5 / 3)}


def test_both_selecting_alike_differ_in_nothing(pair: tuple[RunFolder, RunFolder]) -> None:
    found = moves(pair[1], pair[1], 10)
    assert all((one.moved, one.selected_a, one.selected_b) == (Share(0, 0),) * 3 for one in found.strategies)
    assert found.listed == []

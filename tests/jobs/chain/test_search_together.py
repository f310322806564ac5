"""Retrievers with `together`: the texts of a query are searched as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retrievers.joined import joined_text
from retrievers.retriever import JoinedText, SearchText, open_retriever
from tests.support.jobs.in_flight import RETRIEVED
from tests.support.jobs.workers import DEPTH, Block, Row, fuser, passed, plain, query, searches, written
from tests.support.jobs.workers import retriever as worker
from tests.support.jobs.workers import rewritten as block
from tests.support.retrievers.blocks import typed

ANSWER = "A lens threw the light of a lamp over the sea, and harbours fill with yeast and bread."
ROW = query("light of a lamp", keyword="lighthouse, lamp, sea", pseudo_answer=ANSWER)


@pytest.fixture
def together(bm25: Block) -> Block:
    return bm25 | {"together": True}


def listed(row: Row) -> list[tuple[str, str, int, float]]:
    """Of each list: strategy, retriever, text, weight."""
    return [(run["strategy"], run["retriever"], run["text"], run["weight"]) for run in row["runs"]]


def hits_of(settings: Block, text: SearchText | JoinedText) -> list[tuple[str, float]]:
    found = open_retriever("under_test", typed(settings)).search([text], DEPTH)
    return list(zip(found.doc_ids.to_pylist(), found.scores.tolist(), strict=True))


def original(row: Row) -> SearchText:
    return SearchText(row["query"])


def rewrites(row: Row, *strategies: str) -> tuple[SearchText, ...]:
    return tuple(
        SearchText(one["text"], one["search_as"]) for one in row["rewrites"] if one["strategy"] in strategies or not strategies
    )


def test_bm25_searches_one_text_with_the_original_repeated(together: Block, bm25: Block, tmp_path: Path) -> None:
    result = worker({"bm25": together}, run=tmp_path)(block(ROW, query("yeast")))
    assert result.schema == RETRIEVED
    first, second = plain(result)
    joined = JoinedText(original(ROW), rewrites(ROW))
    assert joined_text(joined).split("lighthouse")[0].count("light of a lamp") == 1
    assert listed(first) == [("together", "bm25", -1, 3.0)]
    assert listed(second) == [("original", "bm25", 0, 1.0)]
    assert (first["runs"][0]["position"], first["runs"][0]["position_weight"]) == (1, 1.0)
    assert passed(result) == written(tmp_path, result)
    assert passed(result)[ROW["query_id"], "together", "bm25"] == hits_of(bm25, SearchText(joined_text(joined)))
    assert (searches(result), searches(result, "saved")) == ([{"bm25": 1}, {"bm25": 1}], [{"bm25": 2}, {"bm25": 0}])


def test_the_weight_is_the_sum_of_those_that_the_lists_would_have_had(together: Block) -> None:
    row = query("sea", keyword="lamp", general="bread", core_content="moon")
    row["rewrites"][0] |= {"weight": 3.0, "position_weight": 0.5}
    row["rewrites"][1] |= {"weight": 9.0, "position_weight": 0.25}
    row["rewrites"][2] |= {"weight": 9.0, "position_weight": 0.0}
    weights = {"general": 2.0, "original/bm25": 0.5}
    (found,) = plain(worker({"bm25": together}, weights=weights, retriever_weights={"bm25": 7.0})(block(row)))
    assert listed(found) == [("together", "bm25", -1, 0.5 + 3.0 * 0.5 + 2.0 * 0.25)]
    joined = JoinedText(original(row), rewrites(row, "keyword", "general"))  # core_content has weight 0
    assert passed_hits(found) == hits_of(together, joined)


def passed_hits(row: Row) -> list[tuple[str, float]]:
    (run,) = row["runs"]
    return [(hit["doc_id"], hit["score"]) for hit in run["hits"]]


def test_texts_that_are_not_routed_there_stay_out(together: Block, bm25: Block) -> None:
    routes = {"keyword": ["one"], "pseudo_answer": ["two"]}
    (row,) = plain(worker({"one": bm25, "two": together}, routes)(block(ROW)))
    assert listed(row) == [("together", "two", -1, 2.0), ("original", "one", 0, 1.0), ("keyword", "one", 1, 1.0)]
    two = [(hit["doc_id"], hit["score"]) for hit in row["runs"][0]["hits"]]
    assert two == hits_of(bm25, JoinedText(original(ROW), rewrites(ROW, "pseudo_answer")))
    routes = {"original": ["one"], "keyword": ["one"], "pseudo_answer": ["two"]}
    (row,) = plain(worker({"one": bm25, "two": together}, routes)(block(ROW)))
    assert ("pseudo_answer", "two", 2, 1.0) in listed(row)  # a single text keeps its name
    assert "together" not in {run["strategy"] for run in row["runs"]}


def test_without_rewrites_nothing_changes(together: Block, bm25: Block) -> None:
    rows = [query("yeast"), query("zzz"), query("light of a lamp")]
    plain, joined = (worker({"bm25": one}, weights={"original": 0.0})(block(*rows)) for one in (bm25, together))
    assert joined.drop_columns("costs").equals(plain.drop_columns("costs"))
    assert searches(joined)[0] == searches(plain)[0] == {"bm25": 1}


def test_an_original_of_weight_0_stays_out_and_stands_in_where_nothing_is_found(together: Block, tmp_path: Path) -> None:
    found, none, failed = (query("sea", keyword="lamp", general="bread"), query("moon", keyword="zzz", general="qqq"),
                           query("yeast"))  # fmt: skip
    result = worker({"bm25": together}, weights={"original": 0.0}, run=tmp_path)(block(found, none, failed))
    lists = [listed(row) for row in plain(result)]
    assert lists == [[("together", "bm25", -1, 2.0)], [("original", "bm25", 0, 1.0)], [("original", "bm25", 0, 1.0)]]
    assert passed_hits(plain(result)[0]) == hits_of(together, JoinedText(None, rewrites(found)))
    assert searches(result) == [{"bm25": 1}, {"bm25": 2}, {"bm25": 1}]
    assert searches(result, "saved") == [{"bm25": 1}, {"bm25": 1}, {"bm25": 0}]
    fused = plain(fuser(weights={"original": 0.0})(result))
    assert [[one["reason"] for one in row["errors"]] for row in fused] == [[], ["original_stands_in"], ["original_stands_in"]]
    assert all(row["candidates"] for row in fused)
    assert {source["strategy"] for one in fused[0]["candidates"] for source in one["sources"]} == {"together"}


def test_a_retriever_of_weight_0_searches_the_original_alone(together: Block, bm25: Block) -> None:
    weights: dict[str, Any] = {"retriever_weights": {"two": 0.0}}
    (row,) = plain(worker({"one": bm25, "two": together}, **weights)(block(ROW)))
    assert [one for one in listed(row) if one[1] == "two"] == [("original", "two", 0, 1.0)]


def test_the_same_texts_are_searched_once_in_a_shard(together: Block) -> None:
    result = worker({"bm25": together})(block(ROW, ROW | {"query_id": "again"}))
    assert (searches(result), searches(result, "saved")) == ([{"bm25": 1}, {"bm25": 0}], [{"bm25": 2}, {"bm25": 3}])
    one, two = (row["runs"] for row in plain(result))
    assert one == two


@pytest.mark.slow
def test_dense_searches_the_mean_of_the_vectors(bm25: Block, dense: Block) -> None:
    retrievers = {"bm25": bm25, "dense": dense | {"together": True}}
    result = worker(retrievers)(block(ROW, query("yeast")))
    first, second = plain(result)
    assert [one for one in listed(first) if one[1] == "dense"] == [("together", "dense", -1, 3.0)]
    assert len(first["runs"]) == 4
    assert len(first["similarity"]) == 9  # of the lists of bm25
    assert ("original", "dense", 0, 1.0) in listed(second)
    hits = [(hit["doc_id"], hit["score"]) for hit in first["runs"][0]["hits"]]
    alone = hits_of(dense, JoinedText(original(ROW), rewrites(ROW)))
    assert [doc_id for doc_id, _ in hits] == [doc_id for doc_id, _ in alone]
    np.testing.assert_allclose([score for _, score in hits], [score for _, score in alone], atol=2e-6)
    assert searches(result) == [{"bm25": 3, "dense": 1}, {"bm25": 1, "dense": 1}]
    fused = plain(fuser()(result))
    assert {s["strategy"] for one in fused[0]["candidates"] for s in one["sources"]} == {
        "together", "original", "keyword", "pseudo_answer",
    }  # fmt: skip


def test_fusion_may_weigh_the_joined_list_otherwise(together: Block) -> None:
    result = worker({"bm25": together}, weights={"together": 0.5})(block(ROW))
    (before,) = plain(fuser(redundancy="overlap")(result))
    (after,) = plain(fuser(redundancy="overlap", weights={"together": 0.5})(result))
    assert before["candidates"][0]["score"] == 3.0
    assert after["candidates"][0]["score"] == 0.5

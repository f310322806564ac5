"""Retrievers with `together`: the texts of a query are searched as one."""

from pathlib import Path

import pytest

from retrievers.retriever import JoinedText, SearchText, open_retriever
from tests.support.jobs.workers import DEPTH, STRATEGIES, Block, Row, query, searches, written
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
    _, (row,) = worker({"one": bm25, "two": together}, routes).seen(block(ROW))
    assert listed(row) == [("together", "two", -1, 2.0), ("original", "one", 0, 1.0), ("keyword", "one", 1, 1.0)]
    assert first_hits(row) == hits_of(bm25, ROW, "pseudo_answer")
    routes = {"original": ["one"], "keyword": ["one"], "pseudo_answer": ["two"]}
    _, (row,) = worker({"one": bm25, "two": together}, routes).seen(block(ROW))
    assert ("pseudo_answer", "two", 2, 1.0) in listed(row)  # a single text keeps its name
    assert "together" not in {run["strategy"] for run in row["runs"]}


def test_an_original_of_weight_0_stays_out_and_stands_in_where_nothing_is_found(together: Block, tmp_path: Path) -> None:
    found, none, failed = (query("sea", keyword="lamp", general="bread"), query("moon", keyword="zzz", general="qqq"),
                           query("yeast"))  # fmt: skip
    result, rows = worker({"bm25": together}, weights={"original": 0.0}, run=tmp_path).seen(block(found, none, failed))
    lists = [listed(row) for row in rows]
    assert lists == [[("together", "bm25", -1, 2.0)], [("original", "bm25", 0, 1.0)], [("original", "bm25", 0, 1.0)]]
    assert first_hits(rows[0]) == hits_of(together, found, "keyword", "general", original=False)
    assert written(tmp_path, result).keys() == {
        ("sea", "together", "bm25"),
        ("moon", "original", "bm25"),
        ("yeast", "original", "bm25"),
    }
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

"""The ordering worker: candidates and their scores -> results, against plain Python."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.jobs.in_flight import FUSED, ORDERED, SCORED, UNSCORED
from tests.support.jobs.workers import fused, orderer, plain, scored

Row = dict[str, Any]
SOURCE = {"strategy": "original", "position": 1, "retriever": "bm25", "rank": 1, "score": 2.5}
Candidate = tuple[str, float, float]  # doc_id, fused score, score of the reranker


def query(name: str, candidates: list[Candidate], *, failed: bool = False) -> Row:
    return {
        "query_id": name, "query": name,
        "candidates": [
            {"doc_id": doc_id, "score": fused, "sources": [SOURCE | {"rank": rank}]}
            for rank, (doc_id, fused, _) in enumerate(candidates, start=1)
        ],
        "scores": None if failed else [{"doc_id": doc_id, "model": "m", "score": s} for doc_id, _, s in candidates],
    }  # fmt: skip


def by_hand(row: Row, how: str, keep: int) -> list[tuple[str, float, float, float | None]]:
    """(doc_id, score, fused_score, rerank_score) of the results."""
    candidates = {one["doc_id"]: one["score"] for one in row["candidates"]}
    if row["scores"] is None:
        return [(doc_id, fused, fused, None) for doc_id, fused in candidates.items()][:keep]
    reranked = {one["doc_id"]: one["score"] for one in row["scores"]}
    ordered = sorted(candidates, key=lambda doc_id: (-reranked[doc_id], doc_id))
    score = dict(reranked)
    if how == "blend":
        by_fusion = list(candidates)
        score = {d: round(1 / (21 + ordered.index(d)) + 1 / (21 + by_fusion.index(d)), 12) for d in candidates}
        ordered = sorted(candidates, key=lambda doc_id: (-score[doc_id], doc_id))
    return [(doc_id, score[doc_id], candidates[doc_id], reranked[doc_id]) for doc_id in ordered[:keep]]


def found(result: pa.Table) -> list[list[tuple[str, float, float, float | None]]]:
    names = ("doc_id", "score", "fused_score", "rerank_score")
    return [[tuple(one[name] for name in names) for one in row] for row in (one["hits"] for one in plain(result))]


CANDIDATES = st.lists(
    st.tuples(st.text("abc", max_size=3), st.sampled_from([0.1, 0.5, 2.0]), st.sampled_from([-3.0, 0.0, 0.25, 7.0])),
    max_size=6,
    unique_by=lambda one: one[0],
)
ROWS = st.lists(st.builds(query, st.just("q"), CANDIDATES, failed=st.booleans()), max_size=5)


@given(ROWS, st.sampled_from(["replace", "blend"]), st.integers(1, 7), st.integers(0, 5))
def test_results_are_those_of_the_formula_query_by_query(rows: list[Row], how: str, keep: int, cut: int) -> None:
    table = scored(rows)
    result = orderer(how, keep)(pa.concat_tables([table.slice(0, cut), table.slice(cut)]))  # in pieces, too
    assert result.schema == ORDERED
    assert found(result) == [by_hand(row, how, keep) for row in rows]


TIDES = [("d03", 0.9, 0.0), ("d07", 0.8, 1.0), ("d06", 0.7, 0.5)]


def test_without_a_reranker_the_fused_order_is_handed_on() -> None:
    rows = [query("a", TIDES), query("b", []), query("c", TIDES[:1])]
    result = orderer("blend", 1, reranked=False)(fused(rows))  # `keep` is the reranker's
    assert result.schema == UNSCORED
    assert found(result) == [[(c["doc_id"], c["score"], c["score"], None) for c in row["candidates"]] for row in rows]
    assert plain(result)[0]["hits"][0]["sources"] == [SOURCE]
    assert result.column("costs").to_pylist() == [[], [], []]


def test_the_sources_stay_with_their_document() -> None:
    ((hits),) = (row["hits"] for row in plain(orderer("replace", 3)(scored([query("a", TIDES)]))))
    assert [(one["doc_id"], one["sources"][0]["rank"]) for one in hits] == [("d07", 2), ("d06", 3), ("d03", 1)]


@pytest.mark.parametrize("schema", [FUSED, SCORED])
def test_a_block_without_any_candidate(schema: pa.Schema) -> None:
    result = orderer("blend", 3)(fused([query("a", []), query("b", [])], schema))
    assert found(result) == [[], []]

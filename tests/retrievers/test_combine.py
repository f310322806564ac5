"""From scores to results: replace and blend."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrievers.reranker import Reranked, combine
from retrievers.retriever import RetrieverError

IDS, FUSED = ["a", "b", "c"], [0.9, 0.8, 0.7]
any_score = st.one_of(st.sampled_from([0.0, 1.0, 2.0, math.nan]), st.floats(-5, 5))
candidates = st.lists(st.tuples(st.text(max_size=3), any_score), max_size=30, unique_by=lambda pair: pair[0])


def test_replace_orders_by_the_reranker() -> None:
    assert combine(IDS, FUSED, [1.0, 3.0, 2.0], "replace") == [
        Reranked("b", 3.0, 0.8),
        Reranked("c", 2.0, 0.7),
        Reranked("a", 1.0, 0.9),
    ]


def test_blend_adds_both_ranks() -> None:
    hits = combine(IDS, FUSED, [1.0, 3.0, 2.0], "blend")
    expected = {"a": 1 / (20 + 3) + 1 / (20 + 1), "b": 1 / (20 + 1) + 1 / (20 + 2), "c": 1 / (20 + 2) + 1 / (20 + 3)}
    assert {hit.doc_id: hit.score for hit in hits} == pytest.approx(expected, abs=1e-12)
    assert [hit.doc_id for hit in hits] == ["b", "a", "c"]


def test_equal_ones_stand_in_order_of_doc_id() -> None:
    assert [hit.doc_id for hit in combine(["c", "a", "b"], FUSED, [1.0, 1.0, 1.0], "replace")] == ["a", "b", "c"]
    # reranker the other way round than fusion: both blends are 1/21 + 1/22
    assert [hit.doc_id for hit in combine(["b", "a"], FUSED[:2], [1.0, 2.0], "blend")] == ["a", "b"]


def test_scores_that_are_no_numbers_come_last() -> None:
    hits = combine(IDS, FUSED, [math.nan, -7.0, math.nan], "replace")
    assert [hit.doc_id for hit in hits] == ["b", "a", "c"]
    assert hits[1].score == -math.inf


@given(candidates, st.sampled_from(["replace", "blend"]), st.integers(0, 35))
def test_results_are_ordered_candidates(found: list[tuple[str, float]], how: str, keep: int) -> None:
    ids, scores = [doc_id for doc_id, _ in found], [score for _, score in found]
    fused = [1.0 - i / 100 for i in range(len(ids))]
    hits = combine(ids, fused, scores, how, keep)
    assert hits == combine(ids, fused, scores, how, 100)[:keep]
    assert len(hits) == min(keep, len(ids))
    assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.doc_id))
    assert all(hit.fused_score == fused[ids.index(hit.doc_id)] for hit in hits)
    if how == "replace" and hits and keep >= len(ids):
        by_score = sorted(zip(ids, scores, strict=True), key=lambda p: (math.isnan(p[1]), -p[1], p[0]))
        numbers = [doc_id for doc_id, score in by_score if not math.isnan(score)]
        assert [hit.doc_id for hit in hits][: len(numbers)] == numbers


@given(st.lists(st.text(max_size=3), unique=True, max_size=20))
def test_a_reranker_that_agrees_changes_nothing(ids: list[str]) -> None:
    fused = [1.0 / (1 + i) for i in range(len(ids))]
    for how in ("replace", "blend"):
        assert [hit.doc_id for hit in combine(ids, fused, fused, how, 100)] == ids


def test_refusals() -> None:
    assert combine([], [], []) == []
    with pytest.raises(RetrieverError, match="unknown combine 'blen', did you mean 'blend'"):
        combine(IDS, FUSED, FUSED, "blen")
    with pytest.raises(ValueError, match="zip"):
        combine(IDS, FUSED, [1.0])

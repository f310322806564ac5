"""From the reranker's scores to results: replace and blend."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrievers.order import order

IDS = ["a", "b", "c"]
any_score = st.one_of(st.sampled_from([0.0, -0.0, 1.0, 2.0, math.nan, math.inf]), st.floats(-5, 5))
candidates = st.lists(st.tuples(st.text(max_size=3), any_score), max_size=30, unique_by=lambda pair: pair[0])
Hits = list[tuple[str, float]]


def ordered(queries: list[Hits], how: str, keep: int = 10) -> list[Hits]:
    """(doc_id, score) of each query's results, from its candidates in fused order with the reranker's scores."""
    doc_ids = [doc_id for query in queries for doc_id, _ in query]
    scores = np.array([score for query in queries for _, score in query], dtype=np.float64)
    offsets = np.cumsum([0, *map(len, queries)])
    found = order(offsets, pa.array(doc_ids, pa.string()), scores, how, keep)
    hits = [(doc_ids[place], score) for place, score in zip(found.places.tolist(), found.scores.tolist(), strict=True)]
    return [hits[begin:end] for begin, end in pairwise(found.offsets.tolist())]


def one(scores: list[float], how: str, ids: list[str] = IDS) -> Hits:
    (found,) = ordered([list(zip(ids, scores, strict=True))], how)
    return found


def by_sorting(query: Hits, how: str, keep: int) -> Hits:
    """The results of one query, by sorting tuples."""
    rows = [(doc_id, -math.inf if math.isnan(score) else score) for doc_id, score in query]
    by_reranker = sorted(rows, key=lambda row: (-row[1], row[0]))
    rank = {doc_id: place for place, (doc_id, _) in enumerate(by_reranker, start=1)}
    blended = [
        (doc_id, round(1 / (20 + rank[doc_id]) + 1 / (20 + place), 12)) for place, (doc_id, _) in enumerate(rows, start=1)
    ]
    results = by_reranker if how == "replace" else sorted(blended, key=lambda hit: (-hit[1], hit[0]))
    return results[: max(0, keep)]


def test_blend_adds_both_ranks() -> None:
    hits = one([1.0, 3.0, 2.0], "blend")
    expected = {"a": 1 / (20 + 3) + 1 / (20 + 1), "b": 1 / (20 + 1) + 1 / (20 + 2), "c": 1 / (20 + 2) + 1 / (20 + 3)}
    assert dict(hits) == pytest.approx(expected, abs=1e-12)
    assert [doc_id for doc_id, _ in hits] == ["b", "a", "c"]


@given(st.lists(candidates, max_size=4), st.sampled_from(["replace", "blend"]), st.integers(-1, 35))
def test_a_block_equals_its_queries_one_by_one(queries: list[Hits], how: str, keep: int) -> None:
    wanted = [[(doc_id, score.hex()) for doc_id, score in by_sorting(query, how, keep)] for query in queries]
    found = ordered(queries, how, keep)
    assert [[(doc_id, score.hex()) for doc_id, score in hits] for hits in found] == wanted


def test_refusals() -> None:
    assert ordered([], "blend") == []
    with pytest.raises(ValueError, match="3 candidates, 3 doc_ids, 1 scores"):
        order(np.array([0, 3]), pa.array(IDS), np.array([1.0]))

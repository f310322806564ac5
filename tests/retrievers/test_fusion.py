"""Fusion of whole blocks against plain loops over each query, to the last bit; and what it refuses."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retrievers.fusion import METHODS
from retrievers.lists import by_document
from retrievers.redundancy import REDUNDANCY
from tests.support.retrievers.fusion_oracle import Fused, Query, RunList, Similarity, as_lists, fuse_all, plain

ORIGINAL = RunList("original", 1, "bm25", ["a", "b", "c"], [9.0, 5.0, 1.0])
KEYWORD = RunList("keyword", 1, "bm25", ["b", "d"], [3.0, 1.0])


def test_refusals() -> None:
    similarity = Similarity([("original", 1)], np.eye(1))
    with pytest.raises(ValueError, match="a list of keyword, text 1 of query 0: there are 1 texts in similarity"):
        fuse_all([([ORIGINAL, KEYWORD], similarity)], redundancy="cosine")
    with pytest.raises(ValueError, match="two lists for keyword 1 from bm25 of query 0"):
        fuse_all([([KEYWORD, KEYWORD], None)])
    with pytest.raises(ValueError, match="2 hits of 4611686018427387904 queries are too many for one block"):
        by_document(as_lists([([KEYWORD], None)]), 1 << 62)


STRATEGIES = ["original", "general", "keyword"]
TEXTS = [(strategy, position) for position in (1, 2) for strategy in STRATEGIES]
# ids in code point order, which is not that of UTF-16; scores that round, tie, overflow a sum's last digit or are none
DOC_IDS = ["", "a", "B", "aa", "é", "漢", "\uffee", "\U0001d11e", "d1", "d10", "d2", "z"]
SCORES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, 2.5, 0.1, 0.3, 1e-13, 12345.678901234567, float("nan"), float("inf"), -float("inf")]),
    st.floats(-30, 30),
)
WEIGHTS = st.sampled_from([1.0, 1.0, 0.5, 0.37, 3.0, 0.0])


@st.composite
def queries(draw: st.DrawFn) -> Query:
    texts = [*TEXTS, ("together", 1)]
    keys = draw(st.lists(st.tuples(st.sampled_from(texts), st.sampled_from(["bm25", "dense"])), unique=True, max_size=12))
    runs = []
    for (strategy, position), retriever in keys:
        hits = draw(st.lists(st.tuples(st.sampled_from(DOC_IDS), SCORES), max_size=14))
        doc_ids, scores = [doc_id for doc_id, _ in hits], [score for _, score in hits]
        runs.append(RunList(strategy, position, retriever, doc_ids, scores, draw(WEIGHTS), draw(WEIGHTS)))
    if draw(st.booleans()):
        return runs, None
    vectors = np.random.default_rng(draw(st.integers(0, 99))).standard_normal((len(TEXTS), 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return runs, Similarity(draw(st.permutations(TEXTS)), (vectors @ vectors.T).round(6).astype(np.float32))


SETTINGS = st.fixed_dictionaries(
    {
        "method": st.sampled_from(list(METHODS)),
        "redundancy": st.sampled_from(REDUNDANCY),
        "depth": st.sampled_from([1, 3, 10, 30]),
        "keep": st.sampled_from([1, 4, 50]),
        "k": st.sampled_from([1, 60, 60.5]),
        "weights": st.sampled_from(
            [
                {},
                {"original": 0},
                {"general": 3, "general/dense": 0.3},
                {"keyword/bm25": 0},
                dict.fromkeys(STRATEGIES, 0),
                {"original+general": 0.5, "original+keyword": 0.25},
                {"general": 0, "original+general": 3},
            ]
        ),
        "divide": st.sampled_from(["none", "max"]),
        "retriever_weights": st.sampled_from([{}, {}, {"bm25": 0.3}, {"dense": 0}, {"bm25": 0, "dense": 0}]),
    }
)


def bits(fused: Fused) -> list[Any]:
    """All values, floats by every bit but the sign of zero: of 0.0 and -0.0 either is a list's lowest score."""
    sources = [[(*s[:4], (s.score + 0.0).hex()) for s in candidate.sources] for candidate in fused.candidates]
    scores = [(candidate.doc_id, candidate.score.hex()) for candidate in fused.candidates]
    return [scores, sources, fused.stood_in, fused.redundancy]


BESIDE = {"weights": {"original+keyword": 0.5, "original+general": 0.25, "original+hyde": 0.1}, "method": "weighted"}


@given(st.lists(queries(), max_size=4), SETTINGS)
@example([([ORIGINAL, KEYWORD], None), ([ORIGINAL, KEYWORD, KEYWORD._replace(strategy="general")], None)], BESIDE)
@example([([ORIGINAL, KEYWORD._replace(weight=0.0)], None)], BESIDE)
def test_a_block_equals_its_queries_one_by_one(block: list[Query], settings: dict[str, Any]) -> None:
    block.append(([], None))
    found = fuse_all(block, **settings)
    assert [bits(one) for one in found] == [bits(plain(runs, **settings, similarity=alike)) for runs, alike in block]

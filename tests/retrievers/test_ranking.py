"""The arithmetic that fusion and the final order share; and the best rows, exactly, with many equal scores."""

import math
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrievers.local import dense
from retrievers.local.dense import nearest_rows
from retrievers.order import order
from retrievers.ranking import among_best, order_by_score, ranks, rounded
from retrievers.retriever import top_rows


@given(st.lists(st.floats(allow_nan=False)), st.sampled_from([6, 12]))
def test_any_number_is_rounded_as_python_does_it(values: list[float], decimals: int) -> None:
    wanted = [round(value, decimals) + 0.0 for value in values]
    assert [value.hex() for value in rounded(np.array(values), decimals).tolist()] == [value.hex() for value in wanted]


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0, 3000.0, 1e6])
def test_numbers_halfway_between_two_are_rounded_as_python_does_it(scale: float) -> None:
    """np.round errs on these: its product with 10^12 is rounded before it is."""
    values = (np.random.default_rng(0).random(20_000) * scale).round(12) + 0.5e-12
    wanted = np.array([round(value, 12) for value in values.tolist()])
    assert (rounded(values) == wanted).all()
    assert (np.round(values, 12) != wanted).any()


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 3))),
    st.sampled_from([1e-13, 0.25, 1e4]),
    st.integers(1, 5),
)
def test_the_best_are_the_same_whether_all_are_sorted_or_those_that_may_be_among_them(
    entries: list[tuple[int, int, int]], scale: float, keep: int
) -> None:
    query = np.sort(np.array([number for number, _, _ in entries], dtype=np.int64))
    scores = np.array([high * scale + low * 3e-13 for _, high, low in entries])  # many are rounded to one

    def best(places: np.ndarray) -> list[int]:
        order = places[order_by_score(query[places], rounded(scores[places]))]
        found: list[int] = order[ranks(np.bincount(query[order], minlength=4)) <= keep].tolist()
        return found

    assert best(among_best(query, scores, keep)) == best(np.arange(len(query)))


few_values = st.lists(st.sampled_from([0.0, 0.5, 0.5, 1.0, 2.0, -1.0, math.nan]), max_size=60)


@given(few_values, st.integers(0, 70), st.sampled_from([-np.inf, 0.0, 0.5]))
def test_top_rows(scores: list[float], depth: int, floor: float) -> None:
    expected = sorted((i for i, score in enumerate(scores) if score > floor), key=lambda i: (-scores[i], i))[:depth]
    assert top_rows(np.array(scores, dtype=np.float64), depth, floor).tolist() == expected


@given(st.integers(1, 5), st.integers(1, 40), st.integers(0, 45), st.integers(1, 16), st.integers(0, 2**32 - 1))
def test_nearest(n: int, rows: int, depth: int, block: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    # small whole numbers: products are exact, so many scores are equal in every block
    queries = random.integers(-1, 2, (n, 4)).astype(np.float32)
    vectors = random.integers(-1, 2, (rows, 4)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dense, "_ROWS", block)
        found = nearest_rows(queries, vectors, depth)
    for query, (hits, scores) in zip(queries, found, strict=True):
        products = vectors @ query
        expected = sorted(np.flatnonzero(vectors.any(axis=1)).tolist(), key=lambda i: (-products[i], i))[:depth]
        assert hits.tolist() == expected
        assert scores.tolist() == [products[i] for i in expected]


def test_nearest_rounds_so_that_noise_does_not_order() -> None:
    vectors = np.array([[0.5, 0.0], [0.5 + 2e-7, 0.0], [0.6, 0.0]], dtype=np.float32)
    ((hits, scores),) = nearest_rows(np.array([[1.0, 0.0]], dtype=np.float32), vectors, 3)
    assert hits.tolist() == [2, 0, 1]
    assert scores[1] == scores[2] == 0.5
    ((hits, _),) = nearest_rows(np.array([[1.0, 0.0]], dtype=np.float32), vectors, 2)
    assert hits.tolist() == [2, 0]


any_score = st.one_of(st.sampled_from([0.0, -0.0, 1.0, 2.0, math.nan, math.inf]), st.floats(-5, 5))
candidates = st.lists(st.tuples(st.text(max_size=3), any_score), max_size=30, unique_by=lambda pair: pair[0])
Hits = list[tuple[str, float]]


def ordered(queries: list[Hits], how: str) -> list[Hits]:
    """(doc_id, score) of each query's results, from its candidates in fused order with the reranker's scores."""
    doc_ids = [doc_id for query in queries for doc_id, _ in query]
    scores = np.array([score for query in queries for _, score in query], dtype=np.float64)
    lengths = np.array([*map(len, queries)], dtype=np.int64)
    found = order(lengths, pa.array(doc_ids, pa.string()), scores, how)
    hits = [(doc_ids[place], score) for place, score in zip(found.places.tolist(), found.scores.tolist(), strict=True)]
    return [hits[begin:end] for begin, end in pairwise([0, *np.cumsum(lengths).tolist()])]


def by_sorting(query: Hits, how: str) -> Hits:
    """The results of one query, by sorting tuples."""
    rows = [(doc_id, -math.inf if math.isnan(score) else score) for doc_id, score in query]
    by_reranker = sorted(rows, key=lambda row: (-row[1], row[0]))
    rank = {doc_id: place for place, (doc_id, _) in enumerate(by_reranker, start=1)}
    blended = [
        (doc_id, round(1 / (20 + rank[doc_id]) + 1 / (20 + place), 12)) for place, (doc_id, _) in enumerate(rows, start=1)
    ]
    return by_reranker if how == "replace" else sorted(blended, key=lambda hit: (-hit[1], hit[0]))


@given(st.lists(candidates, max_size=4), st.sampled_from(["replace", "blend"]))
def test_a_block_equals_its_queries_one_by_one(queries: list[Hits], how: str) -> None:
    wanted = [[(doc_id, score.hex()) for doc_id, score in by_sorting(query, how)] for query in queries]
    found = ordered(queries, how)
    assert [[(doc_id, score.hex()) for doc_id, score in hits] for hits in found] == wanted

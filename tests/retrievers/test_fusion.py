"""Fusion on lists small enough to add up by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from retrievers.lists import by_document
from tests.support.retrievers.fusion_oracle import RunList, Similarity, Source, as_lists, fuse


def run(strategy: str, *hits: tuple[str, float], retriever: str = "bm25", **more: float) -> RunList:
    return RunList(strategy, 1, retriever, [doc for doc, _ in hits], [score for _, score in hits], **more)


def scores(runs: list[RunList], **settings: object) -> dict[str, float]:
    return {c.doc_id: c.score for c in fuse(runs, **({"redundancy": "none"} | settings)).candidates}  # type: ignore[arg-type]


ORIGINAL = run("original", ("a", 9.0), ("b", 5.0), ("c", 1.0))
KEYWORD = run("keyword", ("b", 3.0), ("d", 1.0))


def test_rrf() -> None:
    assert scores([ORIGINAL, KEYWORD], method="rrf", k=60) == pytest.approx(
        {"a": 1 / (60 + 1), "b": 1 / (60 + 2) + 1 / (60 + 1), "c": 1 / (60 + 3), "d": 1 / (60 + 2)}, abs=1e-12
    )


def test_minmax() -> None:
    assert scores([ORIGINAL, KEYWORD], method="minmax") == {"a": 1.0, "b": 0.5 + 1.0, "c": 0.0, "d": 0.0}


def test_minmax_takes_minimum_and_maximum_of_the_part_that_takes_part() -> None:
    assert scores([ORIGINAL], method="minmax", depth=2) == {"a": 1.0, "b": 0.0}


def test_minmax_of_one_hit_and_of_equal_scores_is_the_best_there_is() -> None:
    single, flat = run("keyword", ("d", 0.1)), run("general", ("e", 2.0), ("f", 2.0))
    assert scores([single, flat], method="minmax") == {"d": 1.0, "e": 1.0, "f": 1.0}


def test_weighted_and_best_of_one_retriever() -> None:
    weights = {"keyword": 2.0}
    assert scores([ORIGINAL, KEYWORD], method="weighted", weights=weights) == {"a": 9.0, "b": 11.0, "c": 1.0, "d": 2.0}
    assert scores([ORIGINAL, KEYWORD], method="best", weights=weights) == {"a": 9.0, "b": 6.0, "c": 1.0, "d": 2.0}


@pytest.mark.parametrize("method", ["weighted", "best"])
def test_two_retrievers_are_joined_by_rank(method: str) -> None:
    dense = run("original", ("d", 0.9), ("b", 0.8), retriever="dense")
    # bm25 orders a, b, c, d in both methods; dense d, b
    expected = {"a": 1 / 61, "b": 1 / 62 + 1 / 62, "c": 1 / 63, "d": 1 / 64 + 1 / 61}
    low = run("keyword", ("d", 0.5))
    assert scores([ORIGINAL, low, dense], method=method, k=60) == pytest.approx(expected, abs=1e-12)


def test_weights_replace_the_strategys_own_and_positions_multiply() -> None:
    own = KEYWORD._replace(weight=3.0, position_weight=0.5)
    assert scores([own], method="weighted") == {"b": 4.5, "d": 1.5}
    assert scores([own], method="weighted", weights={"keyword": 1.0}) == {"b": 1.5, "d": 0.5}
    assert scores([own], method="weighted", weights={"keyword": 1.0, "keyword/bm25": 2.0}) == {"b": 3.0, "d": 1.0}
    assert scores([own], method="weighted", weights={"keyword/dense": 9.0}) == {"b": 4.5, "d": 1.5}


DENSE = run("original", ("d", 0.9), ("b", 0.8), retriever="dense")


def test_a_retrievers_weight_multiplies_that_of_its_lists() -> None:
    weights: dict[str, object] = {"weights": {"keyword": 3.0}, "retriever_weights": {"bm25": 0.5}}
    found = scores([ORIGINAL, KEYWORD, DENSE], method="minmax", **weights)
    assert found == {"a": 0.5, "b": 0.5 * 0.5 + 1.5 + 0.0, "c": 0.0, "d": 0.0 + 1.0}
    found = scores([ORIGINAL, KEYWORD, DENSE], method="rrf", **weights)
    assert found["b"] == pytest.approx(0.5 / 62 + 1.5 / 61 + 1 / 62, abs=1e-12)


@pytest.mark.parametrize("method", ["weighted", "best"])
def test_a_retrievers_weight_multiplies_its_term_of_the_join(method: str) -> None:
    expected = {"a": 0.5 / 61, "b": 0.5 / 62 + 1 / 62, "c": 0.5 / 63, "d": 1 / 61}
    assert scores([ORIGINAL, DENSE], method=method, retriever_weights={"bm25": 0.5}) == pytest.approx(expected, abs=1e-12)
    alone = scores([ORIGINAL], method=method)
    assert scores([ORIGINAL], method=method, retriever_weights={"bm25": 0.5}) == alone  # there is no join


@pytest.mark.parametrize("method", ["rrf", "minmax", "weighted", "best"])
def test_a_retriever_of_weight_0_is_left_out(method: str) -> None:
    without = fuse([ORIGINAL, KEYWORD], method=method)
    assert fuse([ORIGINAL, KEYWORD, DENSE], method=method, retriever_weights={"dense": 0}) == without
    assert not without.stood_in


def test_the_original_of_a_retriever_of_weight_0_stands_in_last() -> None:
    weights = {"weights": {"original": 0}, "retriever_weights": {"dense": 0, "bm25": 0.5}}
    fused = fuse([ORIGINAL, DENSE], redundancy="none", **weights)
    assert fused.stood_in
    assert {candidate.doc_id: candidate.score for candidate in fused.candidates} == {"a": 0.5, "b": 0.25, "c": 0.0}
    fused = fuse([run("original"), DENSE], redundancy="none", **weights)
    assert fused.stood_in
    assert {candidate.doc_id: candidate.score for candidate in fused.candidates} == {"d": 1.0, "b": 0.0}


def test_the_list_of_texts_searched_together_resembles_no_other() -> None:
    together = ORIGINAL._replace(strategy="together", weight=5.0)
    similarity = Similarity([("original", 1)], np.eye(1))
    for redundancy in ("overlap", "cosine"):
        found = fuse([together, ORIGINAL], method="rrf", redundancy=redundancy, similarity=similarity)
        assert found.candidates[0].score == pytest.approx(5 / 61 + 1 / 61, abs=1e-12)


def test_weight_0_leaves_a_list_out() -> None:
    fused = fuse([ORIGINAL, KEYWORD], method="rrf", weights={"original": 0})
    assert [candidate.doc_id for candidate in fused.candidates] == ["b", "d"]
    assert {source.strategy for candidate in fused.candidates for source in candidate.sources} == {"keyword"}
    assert not fused.stood_in


@pytest.mark.parametrize("others", [[], [run("keyword")], [run("keyword", ("x", 1.0), weight=0.0)]])
def test_the_original_stands_in_only_where_nothing_else_is_left(others: list[RunList]) -> None:
    fused = fuse([ORIGINAL, *others], weights={"original": 0})
    assert fused.stood_in
    assert [candidate.doc_id for candidate in fused.candidates] == ["a", "b", "c"]
    assert fused.candidates[0].score > 0


def test_nothing_found_stays_nothing() -> None:
    for runs in ([], [run("original"), run("keyword")], [run("keyword", ("x", 1.0), weight=0.0)]):
        assert fuse(runs) == ([], False, "overlap")


def test_a_repeated_document_counts_once_at_its_best_rank() -> None:
    twice = run("keyword", ("b", 3.0), ("b", 2.0), ("d", 1.0))
    assert fuse([twice], method="rrf", redundancy="none") == fuse([KEYWORD], method="rrf", redundancy="none")


def test_overlap_shares_the_vote_of_lists_that_look_alike() -> None:
    alike, other = run("general", ("b", 3.0), ("d", 1.0)), run("core_content", ("x", 1.0))
    found = scores([KEYWORD, alike, other], method="rrf", redundancy="overlap")
    assert found == pytest.approx({"b": 2 * 0.5 / 61, "d": 2 * 0.5 / 62, "x": 1 / 61}, abs=1e-12)
    # a third of its documents shared: Jaccard 1 / 3
    partly = run("general", ("b", 3.0), ("y", 1.0))
    found = scores([KEYWORD, partly], method="rrf", redundancy="overlap")
    assert found["d"] == pytest.approx(1 / (1 + 1 / 3) / 62, abs=1e-12)


def test_overlap_looks_at_ten_documents_of_the_same_retriever() -> None:
    first = run("keyword", *[(f"k{i}", 20.0 - i) for i in range(10)], ("tail", 1.0))
    second = run("general", *[(f"g{i}", 20.0 - i) for i in range(10)], ("tail", 1.0))
    third = run("general", *[(f"k{i}", 20.0 - i) for i in range(10)], retriever="dense")
    plain = scores([first, second, third], method="minmax")
    assert scores([first, second, third], method="minmax", redundancy="overlap") == plain


def test_redundancy_sums_include_the_original_whatever_its_weight() -> None:
    twin = run("keyword", ("a", 3.0), ("b", 2.0), ("c", 1.0))
    found = scores([ORIGINAL, twin], method="rrf", redundancy="overlap", weights={"original": 0})
    assert found == pytest.approx({"a": 0.5 / 61, "b": 0.5 / 62, "c": 0.5 / 63}, abs=1e-12)


def test_cosine_shares_the_vote_of_texts_that_look_alike() -> None:
    similarity = Similarity([("keyword", 1), ("original", 1)], np.array([[1.0, 0.5], [0.5, 1.0]]))
    share = 1 / (1 + 0.5**4)
    found = fuse([ORIGINAL, KEYWORD], method="rrf", redundancy="cosine", similarity=similarity)
    assert found.redundancy == "cosine"
    assert found.candidates[0].score == pytest.approx(share / 62 + share / 61, abs=1e-12)
    opposite = similarity._replace(cosines=np.array([[1.0, -0.9], [-0.9, 1.0]]))
    found = fuse([ORIGINAL, KEYWORD], method="rrf", redundancy="cosine", similarity=opposite)
    assert found.candidates[0].score == pytest.approx(1 / 62 + 1 / 61, abs=1e-12)


def test_cosine_without_vectors_is_overlap_and_says_so() -> None:
    fused = fuse([ORIGINAL, KEYWORD], redundancy="cosine")
    assert fused == fuse([ORIGINAL, KEYWORD], redundancy="overlap")
    assert fused.redundancy == "overlap"


def test_a_list_without_its_text_is_a_mistake() -> None:
    similarity = Similarity([("original", 1)], np.eye(1))
    with pytest.raises(ValueError, match="a list of keyword, text 1 of query 0: there are 1 texts in similarity"):
        fuse([ORIGINAL, KEYWORD], redundancy="cosine", similarity=similarity)


def test_scores_that_are_no_numbers_count_as_the_lowest() -> None:
    odd = run("keyword", ("a", 4.0), ("b", math.nan), ("c", 2.0), ("d", math.inf))
    assert scores([odd], method="minmax") == {"a": 1.0, "b": 0.0, "c": 0.0, "d": 0.0}
    assert scores([run("keyword", ("a", math.nan))], method="weighted") == {"a": 0.0}


def test_sources_say_where_a_candidate_was_found() -> None:
    dense = run("keyword", ("b", 0.25), retriever="dense")
    best = fuse([dense, ORIGINAL, KEYWORD]).candidates[0]
    assert best.doc_id == "b"
    assert best.sources == (
        Source("keyword", 1, "bm25", 1, 3.0),
        Source("keyword", 1, "dense", 1, 0.25),
        Source("original", 1, "bm25", 2, 5.0),
    )


def test_equal_scores_stand_in_order_of_doc_id() -> None:
    runs = [run("keyword", ("b", 2.0), ("a", 1.0)), run("general", ("a", 2.0), ("b", 1.0))]
    for method in ("rrf", "minmax", "weighted", "best"):
        assert [c.doc_id for c in fuse(runs, method=method).candidates] == ["a", "b"]


def test_refusals() -> None:
    with pytest.raises(ValueError, match="two lists for keyword 1 from bm25 of query 0"):
        fuse([KEYWORD, KEYWORD])
    with pytest.raises(ValueError, match="2 hits of 4611686018427387904 queries are too many for one block"):
        by_document(as_lists([([KEYWORD], None)]), 1 << 62)

"""BM25 against its formula, and against bm25s's own scores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrievers.analyzer import open_analyzer
from retrievers.local.build import build_local_index
from retrievers.retriever import SearchText, open_retriever
from tests.support.retrievers.blocks import index_fields, typed

vocabulary = st.sampled_from(["sea", "moon", "bread", "lamp", "yeast", "the"])
K1, B = 1.2, 0.75
documents = st.lists(st.lists(vocabulary, max_size=8), min_size=1, max_size=12)


def by_formula(texts: list[str], query: str) -> list[float]:
    """Lucene's BM25, written out: idf = ln(1 + (N - df + .5) / (df + .5)), tf / (tf + k1 (1 - b + b len / mean))."""
    analyze = open_analyzer("english")
    terms = [analyze(text) for text in texts]
    mean = sum(map(len, terms)) / len(terms)
    scores = []
    for own in terms:
        counts = Counter(own)
        score = 0.0
        for term in analyze(query):
            df = sum(term in other for other in terms)
            if counts[term]:
                idf = math.log(1 + (len(terms) - df + 0.5) / (df + 0.5))
                score += idf * counts[term] / (counts[term] + K1 * (1 - B + B * len(own) / mean))
        scores.append(score)
    return scores


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(documents=documents, query=st.lists(vocabulary, max_size=6))
def test_scores_are_lucenes(
    write_corpus: Callable[..., Path], tmp_path: Path, documents: list[list[str]], query: list[str]
) -> None:
    texts, text = [" ".join(words) for words in documents], " ".join(query)
    ids = [f"{i:03}" for i in range(len(texts))]
    build_local_index(tmp_path / "index", write_corpus({"doc_id": ids, "text": texts}), index_fields("english"))
    found = open_retriever("bm25", typed({"kind": "local", "index": str(tmp_path / "index")})).search([SearchText(text)], 100)
    expected = {doc_id: score for doc_id, score in zip(ids, by_formula(texts, text), strict=True) if score > 0}
    assert dict(zip(found.doc_ids.to_pylist(), found.scores.tolist(), strict=True)) == pytest.approx(expected, rel=1e-5)


def test_the_order_of_words_does_not_move_the_last_bit(bm25_index: Path) -> None:
    bm25 = open_retriever("bm25", typed({"kind": "local", "index": str(bm25_index)}))
    found = bm25.search([SearchText("light moon sea lamp"), SearchText("sea lamp moon light")], 20)
    middle = found.offsets[1]
    assert found.scores[:middle].tolist() == found.scores[middle:].tolist()
    assert found.doc_ids[:middle].to_pylist() == found.doc_ids[middle:].to_pylist()


def test_words_that_no_document_has_find_nothing(bm25_index: Path) -> None:
    bm25 = open_retriever("bm25", typed({"kind": "local", "index": str(bm25_index)}))
    found = bm25.search([SearchText("xylophone"), SearchText("the of and"), SearchText("sea")], 20)
    assert found.offsets.tolist()[:3] == [0, 0, 0]
    assert len(found.doc_ids) == found.offsets[3] > 0


def test_a_corpus_without_terms(write_corpus: Callable[..., Path], tmp_path: Path) -> None:
    corpus = write_corpus({"doc_id": ["a", "b"], "text": ["", "the of"]})
    assert build_local_index(tmp_path / "index", corpus, index_fields("english")).documents == 2
    bm25 = open_retriever("bm25", typed({"kind": "local", "index": str(tmp_path / "index")}))
    assert len(bm25.search([SearchText("anything"), SearchText("")], 5).doc_ids) == 0

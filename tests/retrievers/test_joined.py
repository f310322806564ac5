"""The texts of one query as one BM25 query, or one vector."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrievers.analyzer import words
from retrievers.elastic.query import MOST_CLAUSES, bm25_query
from retrievers.elastic.settings import QuerySettings
from retrievers.joined import joined_text, repetitions, search_vectors
from retrievers.retriever import JoinedText, SearchText


def joined(original: str | None, *rewrites: str) -> JoinedText:
    return JoinedText(None if original is None else SearchText(original), tuple(SearchText(text) for text in rewrites))


@pytest.mark.parametrize(
    ("original", "rewrites", "times"),
    [
        ("sea lamp", ["sea lamp"], 1),
        ("sea lamp", ["word " * 19], 1),
        ("sea lamp", ["word " * 10, "word " * 10], 2),
        ("sea lamp", ["word " * 59], 5),
        ("C", ["word " * 50], 10),  # no word of two letters: counts as one
        ("東京タワー", ["東京タワーは夜に光る"], 1),
        (None, ["word"], 0),
    ],
)
def test_the_original_is_repeated_so_that_long_rewrites_do_not_drown_it(
    original: str | None, rewrites: list[str], times: int
) -> None:
    text = joined(original, *rewrites)
    assert repetitions(text) == times
    assert joined_text(text) == " ".join([original or ""] * times + rewrites)


# ---------------------------------------------------------------- vectors

VECTORS = {"a": [1.0, 0.0, 0.0], "b": [0.0, 1.0, 0.0], "not a": [-1.0, 0.0, 0.0], "c": [0.6, 0.8, 0.0]}


def encode(texts: object) -> np.ndarray:
    return np.array([VECTORS[text.text] for text in texts], dtype=np.float32)  # type: ignore[attr-defined]


def test_a_joined_vector_is_the_mean_scaled_to_length_1() -> None:
    found = search_vectors([SearchText("c"), joined("a", "b"), joined(None, "b", "c", "b")], encode)
    assert found.dtype == np.float32
    mean = np.array([0.2, 2.8 / 3, 0.0])
    np.testing.assert_allclose(found, [VECTORS["c"], [0.5**0.5, 0.5**0.5, 0], mean / np.linalg.norm(mean)], atol=1e-6)


def test_vectors_that_cancel_out_are_that_of_the_first() -> None:
    np.testing.assert_array_equal(search_vectors([joined("a", "not a")], encode), [VECTORS["a"]])


# ---------------------------------------------------------------- Elasticsearch's query


def clauses(query: dict[str, object]) -> Counter[str]:
    """Word -> boost, of a query of single words."""
    should = query["bool"]["should"]  # type: ignore[index]
    return Counter({one["match"]["text"]["query"]: one["match"]["text"]["boost"] for one in should})


@given(st.lists(st.text("abc 東é,", min_size=1, max_size=20), min_size=2, max_size=4))
def test_each_word_is_boosted_by_how_often_it_occurs(texts: list[str]) -> None:
    text = joined(*texts)
    assert clauses(bm25_query(text, "text", QuerySettings())) == Counter(joined_text(text).split())


def test_fields_have_their_boosts_and_are_searched_one_by_one() -> None:
    query = bm25_query(joined("sea", "sea lamp"), "text", QuerySettings(fields={"text": 1, "title": 2.5}))
    one, two = query["dis_max"]["queries"]
    assert clauses(one) == {"sea": 2, "lamp": 1}
    assert [each["match"]["title"]["boost"] for each in two["bool"]["should"]] == [5.0, 2.5]


def test_texts_with_too_many_words_keep_the_weight_of_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    rewrites = [" ".join(f"w{number}x{place}" for place in range(40)) for number in range(3)]
    text = joined("sea lamp", *rewrites)
    monkeypatch.setattr("retrievers.elastic.query.MAX_TERMS", 31)
    assert "should" in bm25_query(text, "text", QuerySettings())["bool"]
    monkeypatch.setattr("retrievers.elastic.query.MAX_TERMS", 30)
    original, others = bm25_query(text, "text", QuerySettings())["bool"]["should"]
    assert original["bool"] == {"must": bm25_query("sea lamp", "text", QuerySettings()), "boost": 12}
    assert others["more_like_this"]["max_query_terms"] == 30


@pytest.mark.parametrize("long", [" ".join(f"w{n}" for n in range(1100)), "東" * 1100, "a-" * 1100 + "b"])
def test_no_query_has_more_clauses_than_a_server_allows(long: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retrievers.elastic.query.MAX_TERMS", 1024)
    query = bm25_query(joined("sea", long, "lamp"), "text", QuerySettings())
    assert len(words(long)) > MOST_CLAUSES or "-" in long
    assert [list(one) for one in query["bool"]["should"]] == [["bool"], list(bm25_query(f"{long} lamp", "text",
        QuerySettings()))]  # fmt: skip

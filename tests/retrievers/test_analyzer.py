from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import RetrieverError
from retrievers.analyzer import analyzer_name, open_analyzer, words

english, unicode = open_analyzer("english"), open_analyzer("unicode")


def test_english_drops_stop_words_and_stems() -> None:
    assert english("The running of the DOGS is not a cat's") == ["run", "dog", "cat"]


def test_unicode_keeps_words_as_they_are() -> None:
    assert unicode("The running of the DOGS") == ["the", "running", "of", "the", "dogs"]
    assert open_analyzer("none")("The") == ["the"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("東京タワー", ["東京", "京タ", "タワ", "ワー"]),
        ("東", ["東"]),
        ("서울 시", ["서울", "시"]),
        ("日産Leafは良い", ["日産", "leaf", "は良", "良い"]),
        ("x東y", ["東"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),  # vowel signs and virama are marks, no letters
        ("cafe\u0301", ["café"]),  # composed
        ("İSTANBUL İ", ["istanbul"]),
        ("3.11 a I", ["11"]),
        ("snake_case", ["snake_case"]),
        ("", []),
        (" \n", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert unicode(text) == expected


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_has_terms_of_itself(text: str) -> None:
    once = words(text)
    assert once == words(text)
    assert all(term and not any(c.isspace() for c in term) for term in once)
    assert words(" ".join(once)) == once  # terms are words again: but for pairs, which overlap
    english(text)


@given(st.text(st.characters(max_codepoint=0x24F, exclude_characters="İ")))
def test_english_is_bm25s_own_tokenizer(text: str) -> None:
    bm25s = pytest.importorskip("bm25s")
    stemmer = pytest.importorskip("Stemmer").Stemmer("english")
    import unicodedata

    (expected,) = bm25s.tokenize(
        [unicodedata.normalize("NFC", text)], stopwords="en", stemmer=stemmer, return_ids=False, show_progress=False
    )
    assert english(text) == expected


def test_unknown_names() -> None:
    with pytest.raises(RetrieverError, match="unknown analyzer 'englsh'; did you mean 'english'"):
        analyzer_name("englsh")
    assert analyzer_name("none") == analyzer_name("unicode") == "unicode"

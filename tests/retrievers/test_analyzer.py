from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import RetrieverError
from retrievers.analysis.languages import WITH_STOP_WORDS, stop_words
from retrievers.analyzer import NAMES, analyzer_name, open_analyzer, words
from retrievers.local.settings import AnalyzerName

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
        ("ｊｒ ２０２４ ｶﾒﾗ ｶﾞｲﾄﾞ", ["jr", "2024", "カメ", "メラ", "ガイ", "イド"]),
        ("น้ำตก", ["น้ํา", "าต", "ตก"]),  # vowel signs and tone marks stay with their letter
        ("ປະເທດ", ["ປະ", "ະເ", "ເທ", "ທດ"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),  # vowel signs and virama are marks, no letters
        ("फ़िल्म २०२४", ["फिल्म", "2024"]),  # without nukta
        ("الكِتَاب كـــتاب", ["الكتاب", "كتاب"]),
        ("إدارة مدرسة على ٢٠٢٤", ["اداره", "مدرسه", "علي", "2024"]),
        ("کتاب‌های فارسی", ["كتاب", "هاي", "فارسي"]),
        ("cafe\u0301", ["café"]),  # composed
        ("İSTANBUL İ", ["istanbul", "i"]),
        ("x東y", ["x", "東", "y"]),
        ("vitamin C, vitamin D", ["vitamin", "c", "vitamin", "d"]),
        ("vitamin C's and the dog’s", ["vitamin", "c", "and", "the", "dog"]),
        ("3.11 of 10,000 kg, 5.", ["3.11", "of", "10,000", "kg", "5"]),
        ("3.5kg é 3.5kg", ["3.5", "kg", "é", "3.5", "kg"]),
        ("snake_case _", ["snake_case"]),
        ("", []),
        (" \n", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert unicode(text) == expected


def test_documents_have_single_characters_too_for_queries_of_one() -> None:
    documents = open_analyzer("unicode", documents=True)
    assert documents("绿茶 tea") == ["绿", "茶", "绿茶", "tea"]
    assert unicode("绿茶 tea") == ["绿茶", "tea"]
    assert unicode("茶") == ["茶"]


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_has_terms_of_itself(text: str) -> None:
    once = words(text)
    assert once == words(text)
    assert all(term and not any(c.isspace() for c in term) for term in once)
    assert set(once) <= set(words(text, every=True))  # what is asked can be found
    english(text)


@given(st.text(st.sampled_from("aI9' .,xyz_\"")))
def test_texts_of_ascii_have_the_words_that_they_have_among_others(text: str) -> None:
    assert words(text) == [word for word in words(f"{text} é") if word != "é"]


@pytest.mark.parametrize(
    ("language", "one", "other"),
    [
        ("german", "die Häuser der Strasse", "das Haus und die Straße"),
        ("french", "l’élève", "des élèves"),
        ("french", "les eleves", "l'élève"),
        ("spanish", "canciones", "la cancion"),
        ("italian", "l'università", "le universita"),
        ("russian", "ёлки", "елка"),
        ("turkish", "IŞIKLAR", "ışık"),
        ("turkish", "İstanbul'da", "istanbul"),
        ("arabic", "والكِتَاب", "كتاب"),
        ("arabic", "المكتبات", "مكتبة"),
        ("persian", "کتاب‌ها", "كتاب"),
        ("hindi", "किताबें", "किताब"),
        ("finnish", "talossa", "talo"),
    ],
)
def test_a_language_has_stop_words_stems_and_one_spelling(language: str, one: str, other: str) -> None:
    terms = open_analyzer(language)
    assert terms(one) == terms(other)
    assert len(terms(one)) in (1, 2)


@pytest.mark.parametrize("language", sorted(set(NAMES.values())))
def test_every_analyzer_takes_every_text(language: str) -> None:
    terms = open_analyzer(language)
    assert terms("") == []
    assert terms("東京 qzx ١٢")[0] == "東京"
    if language in WITH_STOP_WORDS:
        assert not [word for word in stop_words(language) if terms(word)]


def test_the_config_has_the_analyzers() -> None:
    assert set(get_args(AnalyzerName)) | {"none"} == set(NAMES)


# ---------------------------------------------------------------- version 1


def test_unknown_names() -> None:
    with pytest.raises(RetrieverError, match="unknown analyzer 'englsh'; did you mean 'english'"):
        analyzer_name("englsh")
    assert analyzer_name("none") == analyzer_name("unicode") == "unicode"

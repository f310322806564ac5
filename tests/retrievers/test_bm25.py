"""Terms of analyzers; local BM25, with weights of title and text (BM25F), against the formula."""

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from cluster.errors import RetrieverError
from jobs.index.index import outcome
from retrievers.analysis.words import split_words
from retrievers.analyzer import NAMES, WITH_STOP_WORDS, open_analyzer, stop_words
from retrievers.corpora.corpus import Built
from retrievers.local.build import build_local_index, local_indexes
from retrievers.local.settings import AnalyzerName
from retrievers.retriever import SearchText, open_retriever, retriever_identity
from tests.support.retrievers.blocks import typed

Write = Callable[..., Path]
Texts = Sequence[tuple[str, str]]  # title and text of each document
Block = dict[str, Any]
WORDS = ["sea", "moon", "lamps", "don't", "vitamin C", "3.11", "１２", "絵画", "ราคา", "é", "\u0301x", "", " "]
some_text = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
documents = st.lists(st.tuples(some_text, some_text), min_size=1, max_size=8)
weights = st.fixed_dictionaries({"title": st.integers(0, 4), "text": st.integers(0, 4)}).filter(lambda one: any(one.values()))
constants = st.sampled_from([{"k1": 1.2, "b": 0.75}, {"k1": 0.9, "b": 0.4}])


def block(path: Path, **more: Any) -> Block:
    return {"kind": "local", "index": str(path), "analyzer": "english", **more}


def build(path: Path, corpus: Path, **more: Any) -> Built:
    (fields,) = local_indexes({"bm25": typed(block(path, **more))}).values()
    return build_local_index(path, corpus, fields)


def scores(path: Path, query: str, **more: Any) -> dict[str, float]:
    found = open_retriever("bm25", typed(block(path, **more))).search([SearchText(query)], 100)
    return dict(zip(found.doc_ids.to_pylist(), found.scores.tolist(), strict=True))


def by_formula(texts: Texts, query: str, title: int, text: int, k1: float, b: float) -> dict[str, float]:
    """BM25F of Robertson, Zaragoza and Taylor (2004): weighted frequencies and lengths, one k1 and b; Lucene's idf."""
    of_documents, of_queries = open_analyzer("english", documents=True), open_analyzer("english")
    counts, lengths = [], []
    for one in texts:
        fields = [Counter(of_documents(field)) for field in one]
        counts.append({term: title * fields[0][term] + text * fields[1][term] for term in {*fields[0], *fields[1]}})
        lengths.append(title * fields[0].total() + text * fields[1].total())
    mean = sum(lengths) / len(lengths)
    found = {}
    for n, (own, length) in enumerate(zip(counts, lengths, strict=True)):
        score = 0.0
        for term in of_queries(query):
            df = sum(other.get(term, 0) > 0 for other in counts)
            if own.get(term, 0):
                idf = math.log(1 + (len(texts) - df + 0.5) / (df + 0.5))
                score += idf * own[term] / (own[term] + k1 * (1 - b + b * length / mean))
        if score:
            found[f"{n:03}"] = score
    return found


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(texts=documents, query=some_text, fields=weights, similarity=constants)
def test_scores_are_those_of_bm25f(
    write_corpus: Write, tmp_path: Path, texts: Texts, query: str, fields: dict[str, int], similarity: dict[str, float]
) -> None:
    titles, bodies = zip(*texts, strict=True)
    corpus = write_corpus({"doc_id": [f"{n:03}" for n in range(len(texts))], "title": titles, "text": bodies})
    more = {"fields": fields, "similarity": similarity}
    if not fields["text"] and not any(one.strip() for one, _ in texts):
        with pytest.raises(RetrieverError, match=r"fields\.text is 0 and no document of the corpus has a title"):
            build(tmp_path / "index", corpus, **more)
        return
    build(tmp_path / "index", corpus, **more)
    assert scores(tmp_path / "index", query, **more) == pytest.approx(
        by_formula(texts, query, **fields, **similarity), rel=1e-5
    )


def test_the_order_of_words_does_not_move_the_last_bit(bm25_index: Path) -> None:
    bm25 = open_retriever("bm25", typed({"kind": "local", "index": str(bm25_index)}))
    found = bm25.search([SearchText("light moon sea lamp"), SearchText("sea lamp moon light")], 20)
    middle = found.offsets[1]
    assert found.scores[:middle].tolist() == found.scores[middle:].tolist()
    assert found.doc_ids[:middle].to_pylist() == found.doc_ids[middle:].to_pylist()


def test_weights_of_one_are_the_index_without_weights(corpus: Path, tmp_path: Path) -> None:
    build(tmp_path / "plain", corpus)
    assert not build(tmp_path / "plain", corpus, fields={"title": 1}).built
    assert "fields" not in json.loads((tmp_path / "plain" / "index.json").read_text())["fields"]["bm25"]
    said = retriever_identity("bm25", typed(block(tmp_path / "plain", fields={"text": 1, "title": 1})))
    assert said == retriever_identity("bm25", typed(block(tmp_path / "plain")))
    assert {"fields", "weights"}.isdisjoint(said)


def test_other_weights_are_another_index(corpus: Path, tmp_path: Path) -> None:
    build(tmp_path / "index", corpus)
    built = build(tmp_path / "index", corpus, fields={"title": 3})
    assert (built.built, built.replaced) == (True, None)
    assert not build(tmp_path / "index", corpus, fields={"title": 3, "text": 1}).built
    identity = retriever_identity("bm25", typed(block(tmp_path / "index", fields={"title": 3})))
    assert identity["fields"] == {"title": 3, "text": 1}
    for more, asked in (({}, "{'title': 1, 'text': 1}"), ({"fields": {"title": 2}}, "{'title': 2, 'text': 1}")):
        with pytest.raises(RetrieverError) as refused:
            open_retriever("bm25", typed(block(tmp_path / "index", **more)))
        assert refused.value.code == "index-other"
        assert "\n" not in str(refused.value)
        assert f"was built with fields {{'title': 3, 'text': 1}}, the config asks for {asked}; set" in str(refused.value)
    build(tmp_path / "plain", corpus)
    with pytest.raises(RetrieverError, match=r"built with fields \{'title': 1, 'text': 1\}, the config asks for \{'title': 0"):
        retriever_identity("bm25", typed(block(tmp_path / "plain", fields={"title": 0})))


def test_titles_that_are_missing_are_said(write_corpus: Write, tmp_path: Path) -> None:
    some = write_corpus({"doc_id": list("abc"), "title": ["Sea", " ", None], "text": ["the shore", "the moon", "tides"]})
    none = write_corpus({"doc_id": ["a"], "text": ["the shore of a sea"]})

    def said(path: str, corpus: Path, **more: Any) -> str:
        return outcome(build(tmp_path / path, corpus, **more))

    assert said("some", some) == "built"
    assert said("some", some, fields={"title": 3}) == "built; 2 documents have no title"
    assert said("some", some, fields={"title": 3}) == "exists already, nothing to do; 2 documents have no title"
    wanted = "built; no document has a title, so fields.title changes nothing"
    assert said("none", none, fields={"title": 3}) == wanted
    assert scores(tmp_path / "none", "sea", fields={"title": 3}) != {}
    with pytest.raises(RetrieverError, match="so BM25 would find nothing; give text a weight, or name") as refused:
        build(tmp_path / "titles", none, fields={"text": 0})
    assert refused.value.code == "corpus"
    assert not (tmp_path / "titles").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"fields": {"title": 0, "text": 0}}, "title and text are both 0, so nothing would be searched"),
        ({"fields": {"title": 2}, "analyzer": None, "encoder": {"model": "m"}}, r"has fields \(BM25\) and encoder \(dense\)"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_weights_that_make_no_sense(tmp_path: Path, more: Block, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        typed(block(tmp_path, **more))


english, unicode = open_analyzer("english"), open_analyzer("unicode")


def test_english_drops_stop_words_and_stems() -> None:
    assert english("The running of the DOGS is not a cat's") == ["run", "dog", "cat"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The running of the DOGS", ["the", "running", "of", "the", "dogs"]),
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
    once = split_words(text)
    assert once == split_words(text)
    assert all(term and not any(c.isspace() for c in term) for term in once)
    assert set(once) <= set(split_words(text, every=True))  # what is asked can be found
    english(text)


@given(st.text(st.sampled_from("aI9' .,xyz_\"")))
def test_texts_of_ascii_have_the_words_that_they_have_among_others(text: str) -> None:
    assert split_words(text) == [word for word in split_words(f"{text} é") if word != "é"]


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
    assert NAMES["none"] == NAMES["unicode"] == "unicode"

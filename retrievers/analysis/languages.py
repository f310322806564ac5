"""The languages of analyzers: stop words and a stemmer for each."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache

from cluster.errors import RetrieverError
from retrievers.analysis.stopwords import OURS
from retrievers.analysis.words import words

_IN_BM25S = (  # languages of whose stop words bm25s has a list (MIT)
    "danish", "dutch", "english", "french", "german", "italian", "norwegian", "portuguese", "russian", "spanish", "swedish",
    "turkish",
)  # fmt: skip
_WITHOUT_STOP_WORDS = (
    "armenian", "basque", "esperanto", "estonian", "irish", "lithuanian", "nepali", "serbian", "sesotho", "tamil", "yiddish",
)  # fmt: skip
LANGUAGES = tuple(sorted((*_IN_BM25S, *OURS, *_WITHOUT_STOP_WORDS)))
"""Names of languages, as Snowball and Elasticsearch have them."""

WITH_STOP_WORDS = tuple(sorted((*_IN_BM25S, *OURS)))
_FOLDED = ("catalan", "french", "italian", "portuguese", "spanish")  # stems lose accents, as by Lucene's light stemmers
_ARABIC_PREFIXES = ("ال", "وال", "بال", "كال", "فال", "لل", "و")
_ARABIC_SUFFIXES = ("ها", "ان", "ات", "ون", "ين", "يه", "ه", "ي")


@cache
def stop_words(language: str) -> frozenset[str]:
    """Returns the stop words of a language, in the form of `words`."""
    listed: Iterable[str] = OURS.get(language, "").split()
    if language in _IN_BM25S:
        with _packages(language):
            from bm25s import stopwords
        listed = getattr(stopwords, "STOPWORDS_EN" if language == "english" else f"STOPWORDS_{language.upper()}")
    return frozenset(word for one in listed for word in words(one, turkish=language == "turkish"))


def open_stemmer(language: str) -> Callable[[str], str]:
    """Returns a function from a word to its stem."""
    if language == "arabic":
        return light_arabic
    with _packages(language):
        import Stemmer
    stem: Callable[[str], str] = Stemmer.Stemmer(language).stemWord
    if language == "persian":  # which has its own yeh and kaf
        return lambda word: stem(word.replace("ي", "ی").replace("ك", "ک"))
    if language in _FOLDED:
        return lambda word: _without_accents(stem(word))
    return stem


def light_arabic(word: str) -> str:
    """Returns a word without the article, conjunctions before it, and endings of number, gender and person.

    The light stemmer of Larkey, Ballesteros and Connell (Light Stemming for Arabic Information Retrieval, 2007): one prefix,
    and each suffix once, in the order of the list, as long as two letters are left (three after a conjunction alone).
    """
    for prefix in _ARABIC_PREFIXES:
        if word.startswith(prefix) and len(word) >= max(4, len(prefix) + 2):
            word = word[len(prefix) :]
            break
    for suffix in _ARABIC_SUFFIXES:
        if word.endswith(suffix) and len(word) >= len(suffix) + 2:
            word = word[: -len(suffix)]
    return word


def _without_accents(word: str) -> str:
    if word.isascii():
        return word
    return "".join(char for char in unicodedata.normalize("NFD", word) if not unicodedata.combining(char))


@contextmanager
def _packages(language: str) -> Iterator[None]:
    try:
        yield
    except ImportError as e:
        words = f"package {e.name!r} is missing; pip install bm25s PyStemmer"
        raise RetrieverError("package-missing", f"analyzer {language}: {words}") from None

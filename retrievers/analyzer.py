r"""Analyzers: text to index terms, the same for documents and queries.

- ``english``: words of two letters and more, without bm25s's English stop words, stemmed by Snowball's English stemmer.
- ``unicode``: the same words, without stop list and stemmer. ``none`` is an alias.

Both split a run of CJK characters (Han, kana, Hangul) into overlapping bigrams, as Lucene's CJKBigramFilter does; a single
such character is a term. On other text, ``english`` gives the terms of ``bm25s.tokenize`` with its default pattern and the
same stemmer, except that combining marks belong to their word (``\w`` alone splits Devanagari words at every vowel sign),
text is composed (NFC) first, and the dotted capital İ becomes a plain i.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache

from cluster.errors import RetrieverError, nearest

ANALYZE_VERSION = 1
"""Incremented when a text may give other terms; part of a run's fingerprint, and older indexes are then refused."""

NAMES = {"english": "english", "unicode": "unicode", "none": "unicode"}

_CJK = (
    "\u1100-\u11ff\u3005\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff"
    "\uf900-\ufaff\uff66-\uffdc\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_ASCII_WORD = re.compile(r"[a-z0-9_]{2,}")
_CACHED_WORDS = 1_000_000  # of which the term is cached; a full cache is cleared

Analyzer = Callable[[str], list[str]]


def analyzer_name(name: str) -> str:
    """Returns the canonical name of an analyzer.

    Raises:
        RetrieverError: The name is unknown.
    """
    if name not in NAMES:
        raise RetrieverError("config-value", f"unknown analyzer {name!r}{nearest(name, NAMES)}")
    return NAMES[name]


def open_analyzer(name: str) -> Analyzer:
    """Returns a function from a text to its terms, in order, repetitions included.

    Raises:
        RetrieverError: The name is unknown, or the package of the stemmer is missing.
    """
    if analyzer_name(name) == "unicode":
        return words
    stop, stem = _english()
    stems: dict[str, str] = dict.fromkeys(stop, "")

    def english(text: str) -> list[str]:
        terms = []
        for word in words(text):
            term = stems.get(word)
            if term is None:
                if len(stems) >= _CACHED_WORDS:
                    stems.clear()
                    stems.update(dict.fromkeys(stop, ""))
                term = stems[word] = stem(word)
            if term:
                terms.append(term)
        return terms

    return english


def words(text: str) -> list[str]:
    """Returns the words of a text in lower case: two letters or more; CJK runs as bigrams."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    word, cjk = _patterns()
    # lower() gives Turkish İ a combining dot, which queries for istanbul do not have
    lower = unicodedata.normalize("NFC", text).lower().replace("i\u0307", "i")
    found: list[str] = word.findall(lower)
    if not cjk.search(text):
        return [each for each in found if len(each) > 1]
    return [part for each in found for part in _split(each, cjk)]


def _split(word: str, cjk: re.Pattern[str]) -> Iterable[str]:
    """Yields the parts of a word that may mix scripts: its CJK runs as bigrams, the text between them unchanged."""
    last = 0
    for run in cjk.finditer(word):
        if run.start() - last > 1:
            yield word[last : run.start()]
        last = run.end()
        letters = run.group()
        if len(letters) == 1:
            yield letters
        else:
            yield from (letters[i : i + 2] for i in range(len(letters) - 1))
    if len(word) - last > 1:
        yield word[last:]


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Returns patterns of a word and of a CJK run; compiled for the first text that is not ASCII (20 ms)."""
    marks = [chr(c) for c in range(0x300, 0x20000) if unicodedata.category(chr(c))[0] == "M"]
    return re.compile(rf"[\w{''.join(marks)}]+"), re.compile(rf"[{_CJK}]+")


@cache
def _english() -> tuple[tuple[str, ...], Callable[[str], str]]:
    try:
        import Stemmer
        from bm25s.stopwords import STOPWORDS_EN
    except ImportError as e:
        raise RetrieverError(
            "package-missing", f"analyzer english: package {e.name!r} is missing; pip install bm25s PyStemmer"
        ) from None
    return tuple(STOPWORDS_EN), Stemmer.Stemmer("english").stemWord

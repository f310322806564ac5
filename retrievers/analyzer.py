"""Text to index terms, the same for documents and queries.

- ``english``: bm25s's English stop list, then Snowball's English stemmer; words of two letters and more.
- ``unicode``: the same words, neither stop list nor stemmer. ``none`` is another name for it.

In both, a run of CJK characters (Han, kana, Hangul) becomes its overlapping pairs, as in Lucene's CJKBigramFilter; a
single such character stands for itself. On text without them, `english` gives what ``bm25s.tokenize`` with its default
pattern and the same stemmer gives, except that combining marks belong to their word (``\\w`` alone would cut Devanagari
words at every vowel sign), text is composed (NFC) first, and the dotted capital İ becomes a plain i.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache

from retrievers.retriever import RetrieverError, unknown

VERSION = 1
"""Raised when the same text may give other terms: indexes built before are then refused."""

NAMES = {"english": "english", "unicode": "unicode", "none": "unicode"}

_CJK = (
    "\u1100-\u11ff\u3005\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff"
    "\uf900-\ufaff\uff66-\uffdc\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_ASCII_WORD = re.compile(r"[a-z0-9_]{2,}")
_MEMORY = 1_000_000  # words whose term is remembered; a full memory starts anew

Analyzer = Callable[[str], list[str]]


def analyzer_name(name: str) -> str:
    """The analyzer's one name.

    Raises:
        RetrieverError: there is none of that name.
    """
    if name not in NAMES:
        raise RetrieverError(unknown("analyzer", name, NAMES))
    return NAMES[name]


def open_analyzer(name: str) -> Analyzer:
    """A function from a text to its terms, in order, repeats kept.

    Raises:
        RetrieverError: unknown name; the stemmer's package is missing.
    """
    if analyzer_name(name) == "unicode":
        return words
    stop, stem = _english()
    memory: dict[str, str] = dict.fromkeys(stop, "")

    def english(text: str) -> list[str]:
        terms = []
        for word in words(text):
            term = memory.get(word)
            if term is None:
                if len(memory) >= _MEMORY:
                    memory.clear()
                    memory.update(dict.fromkeys(stop, ""))
                term = memory[word] = stem(word)
            if term:
                terms.append(term)
        return terms

    return english


def words(text: str) -> list[str]:
    """The words of a text, lower case: two letters or more; CJK runs as pairs."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    word, cjk = _patterns()
    # Turkish İ becomes i with a dot of its own, which no query for istanbul has
    lower = unicodedata.normalize("NFC", text).lower().replace("i\u0307", "i")
    found: list[str] = word.findall(lower)
    if not cjk.search(text):
        return [each for each in found if len(each) > 1]
    return [part for each in found for part in _split(each, cjk)]


def _split(word: str, cjk: re.Pattern[str]) -> Iterable[str]:
    """A word that may mix scripts: its CJK runs as pairs, what lies between as it is."""
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
    """Compiled when the first text that is not ASCII comes (20 ms: all combining marks are looked up)."""
    marks = [chr(c) for c in range(0x300, 0x20000) if unicodedata.category(chr(c))[0] == "M"]
    return re.compile(rf"[\w{''.join(marks)}]+"), re.compile(rf"[{_CJK}]+")


@cache
def _english() -> tuple[tuple[str, ...], Callable[[str], str]]:
    try:
        import Stemmer
        from bm25s.stopwords import STOPWORDS_EN
    except ImportError as e:
        raise RetrieverError(f"analyzer english: package {e.name!r} is missing; pip install bm25s PyStemmer") from None
    return tuple(STOPWORDS_EN), Stemmer.Stemmer("english").stemWord

"""Analyzers: text to index terms, of documents and of queries.

- A language (`german`): its stop words are left out, the others stemmed: by Snowball, in Arabic by a light stemmer.
- `unicode`: all words as they are; `none`, `cjk` and `thai` are other names of it.

All have the words of `retrievers.analysis.words`, so that scripts without spaces are searched by pairs of characters under
every name.
"""

from collections.abc import Callable
from functools import partial

from cluster.errors import RetrieverError, nearest
from retrievers.analysis.languages import LANGUAGES, open_stemmer, stop_words
from retrievers.analysis.words import split_words

__all__ = ["ANALYZE_VERSION", "Analyzer", "analyzer_name", "open_analyzer", "split_words"]

ANALYZE_VERSION = 2  # incremented when a text may give other terms; part of a run's fingerprint and of an index

_ALIASES = {"none": "unicode", "cjk": "unicode", "thai": "unicode"}
NAMES = {name: name for name in (*LANGUAGES, "unicode")} | _ALIASES

_CACHED_WORDS = 1_000_000  # of which the term is cached; a full cache is cleared

Analyzer = Callable[[str], list[str]]


def analyzer_name(name: str) -> str:
    """Returns the canonical name of an analyzer."""
    if name not in NAMES:
        raise RetrieverError("config-value", f"unknown analyzer {name!r}{nearest(name, NAMES)}; known: {', '.join(NAMES)}")
    return NAMES[name]


def open_analyzer(name: str, *, documents: bool = False) -> Analyzer:
    """Returns a function from a query, or from one of `documents`, to its terms, in order, repetitions included."""
    name = analyzer_name(name)
    split: Analyzer = partial(split_words, every=documents, turkish=name == "turkish")
    if name == "unicode":
        return split
    stop, stem = dict.fromkeys(stop_words(name), ""), open_stemmer(name)
    stems = dict(stop)

    def terms(text: str) -> list[str]:
        terms_of_text = []
        for word in split(text):
            term = stems.get(word)
            if term is None:
                if len(stems) >= _CACHED_WORDS:
                    stems.clear()
                    stems.update(stop)
                term = stems[word] = stem(word)
            if term:
                terms_of_text.append(term)
        return terms_of_text

    return terms

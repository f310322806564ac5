"""Analyzers: text to index terms, of documents and of queries.

- A language (`german`): its stop words are left out, the others stemmed: by Snowball, in Arabic by a light stemmer.
- `unicode`: all words as they are; `none`, `cjk` and `thai` are other names of it.

All have the words of `retrievers.analysis.words`, so that scripts without spaces are searched by pairs of characters under
every name.
"""

from collections.abc import Callable
from functools import lru_cache, partial

from cluster.errors import RetrieverError, nearest
from retrievers.analysis.languages import LANGUAGES, open_stemmer, stop_words
from retrievers.analysis.words import split_words

__all__ = ["ANALYZE_VERSION", "Analyzer", "analyzer_name", "open_analyzer", "split_words"]

ANALYZE_VERSION = 2  # incremented when a text may give other terms; part of a run's fingerprint and of an index

_ALIASES = {"none": "unicode", "cjk": "unicode", "thai": "unicode"}
NAMES = {name: name for name in (*LANGUAGES, "unicode")} | _ALIASES

_CACHED_WORDS = 1_000_000  # of which the term is cached

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
    stop, stem = stop_words(name), lru_cache(_CACHED_WORDS)(open_stemmer(name))
    return lambda text: [term for word in split(text) if word not in stop and (term := stem(word))]

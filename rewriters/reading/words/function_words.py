"""The language of a text in Latin letters, by words that hold sentences together and that no other of these languages has.

Only what is sure is said: two such words or more of one language (three in a rewrite), and none of another. Keywords have
none, so most of them are of no language here. Accents do not count, since queries leave them out.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from rewriters.reading.words import word_lists

_WORD = re.compile(r"[^\W\d_]+")
_SURE, _SURE_TITLE = 2, 3  # words; of a rewrite, which may have a title of another language


@cache
def _language_of() -> dict[str, str]:
    """Returns word -> its language, of the words that only one language has."""
    found: dict[str, str] = {}
    shared: set[str] = set()
    for language, words in word_lists()["function_words"].items():
        for word in set(words.split()):
            key = folded(word)
            shared |= {key} & set(found)
            found[key] = language
    return {word: language for word, language in found.items() if word not in shared}


def folded(text: str) -> str:
    """Returns a text in lower case without accents."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def language_of(text: str, least: int = _SURE) -> str | None:
    """Returns the language of a text in Latin letters; None if that is not sure."""
    languages = _language_of()
    found: dict[str, set[str]] = {}
    for word in _WORD.findall(folded(text)):
        if word in languages:
            found.setdefault(languages[word], set()).add(word)
    ((language, words),) = found.items() if len(found) == 1 else (("", set()),)
    return language if len(words) >= least else None


def translated(query: str, rewrite: str) -> bool:
    """Returns whether two texts are surely in different languages; a text that quotes the query is in neither."""
    mine, theirs = language_of(query), language_of(rewrite, _SURE_TITLE)
    return mine is not None and theirs is not None and mine != theirs

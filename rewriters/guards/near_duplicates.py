"""Near-duplicates: texts of one query that would find nearly the same.

Two texts are near-duplicates if the Jaccard index of their sets of words (`words`) is 0.9 or more and they differ in no
word with a digit. Case, punctuation, order and repetition do not count; nothing is stemmed. A text that is searched as a
passage and one that is searched as a query are near-duplicates only if their words are equal in order, too.
"""

from __future__ import annotations

from typing import NamedTuple

from rewriters.guards.words import words

LEAST = 0.9  # of the Jaccard index


class Compared(NamedTuple):
    """A text as it is compared."""

    search_as: str
    words: tuple[str, ...]
    known: frozenset[str]


def compared(text: str, search_as: str) -> Compared:
    """Returns a text as it is compared; one without words by its characters."""
    found = tuple(words(text)) or tuple(text.split())
    return Compared(search_as, found, frozenset(found))


def near_duplicates(one: Compared, other: Compared) -> bool:
    """Returns whether two texts of one query are near-duplicates; symmetric."""
    if one.search_as != other.search_as:
        return one.words == other.words
    if one.known == other.known:
        return True
    differing = one.known ^ other.known
    union = len(one.known | other.known)
    if union - len(differing) < LEAST * union:
        return False
    return not any(any(map(str.isdigit, word)) for word in differing)

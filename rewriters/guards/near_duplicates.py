"""Near-duplicates: texts of one query that would find nearly the same.

Two texts are near-duplicates if the Jaccard index of their sets of words (`words`) is 0.9 or more and they differ in no
word with a digit. Case, punctuation and repetition do not count; nothing is stemmed. The order of the words they share
counts, since "from London to Paris" is not "from Paris to London" to an encoder, unless one of them is a list with commas. A
text that is searched as a passage and one that is searched as a query are near-duplicates only if all their words are equal in
order.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rewriters.guards.words import words

LEAST = 0.9  # of the Jaccard index
_SEPARATOR = re.compile(r"[,;،、，；]")


class Compared(NamedTuple):
    """A text as it is compared."""

    search_as: str
    words: tuple[str, ...]
    known: frozenset[str]
    listed: bool


def compared(text: str, search_as: str) -> Compared:
    """Returns a text as it is compared; one without words by its characters."""
    found = tuple(words(text)) or tuple(text.split())
    return Compared(search_as, found, frozenset(found), _SEPARATOR.search(text) is not None)


def near_duplicates(one: Compared, other: Compared) -> bool:
    """Returns whether two texts of one query are near-duplicates; symmetric."""
    if one.search_as != other.search_as:
        return one.words == other.words
    if not (one.listed or other.listed) and _order(one, other.known) != _order(other, one.known):
        return False
    if one.known == other.known:
        return True
    differing = one.known ^ other.known
    union = len(one.known | other.known)
    if union - len(differing) < LEAST * union:
        return False
    return not any(any(map(str.isdigit, word)) for word in differing)


def _order(one: Compared, shared: frozenset[str]) -> list[str]:
    """Returns the words that another text has, too, by where each stands first."""
    return [word for word in dict.fromkeys(one.words) if word in shared]

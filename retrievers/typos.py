"""Typing errors in the text of a query, to measure how a search bears them.

The kinds are those of keyboards: single insertions, omissions, substitutions and transpositions, of which most misspellings
have exactly one (Damerau, A technique for computer detection and correction of spelling errors, CACM 1964). A query set with
typos is made as in the studies of dense retrieval with typos: each query gets a copy in which words are misspelled, letters
being swapped, dropped, inserted or replaced, also by a neighbour on the keyboard (Zhuang and Zuccon, Dealing with Typos for
BERT-based Passage Retrieval and Ranking, EMNLP 2021). What we choose: an inserted letter is a doubled one, a space may be
missed, and the first letter of a word stays, since it is seldom mistyped (Kukich, Techniques for Automatically Correcting
Words in Text, ACM Computing Surveys 1992).
"""

from __future__ import annotations

import hashlib
import random
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from retrievers.settings import TypoSettings

TYPOS_VERSION = 1  # raised when the same query, seed and rate give another text
SHORTEST = 4  # letters of the shortest word that is changed
_ROWS = (("qwertyuiop", 0.0), ("asdfghjkl", 0.25), ("zxcvbnm", 0.75))  # of the keyboard, with their indents in key widths
_PLACES = {key: (x + indent, y) for y, (row, indent) in enumerate(_ROWS) for x, key in enumerate(row)}
NEIGHBOURS = {
    key: "".join(
        other for other, (x2, y2) in _PLACES.items() if (y == y2 and abs(x - x2) == 1) or (abs(y - y2) == 1 and abs(x - x2) < 1)
    )
    for key, (x, y) in _PLACES.items()
}
"""Letter -> the letters on the keys that touch its key on a QWERTY keyboard."""

Item = TypeVar("Item")


class Word(NamedTuple):
    """A run of letters: where it begins and ends in the text, and its letters, each with the marks that follow it."""

    begin: int
    end: int
    letters: tuple[str, ...]


def with_typos(text: str, key: str, settings: TypoSettings | None) -> str:
    """Returns the text with typing errors: always the same for a key (the query_id) and settings, whatever other queries are.

    A word is a run of letters with their combining marks; those of at least 4 letters are eligible. Each eligible word is
    drawn with probability `rate`, independently; where none is drawn, and `rate` is above 0, the one that came nearest is, so
    that every query with an eligible word has a typo. So a higher rate keeps the typos of a lower one and adds some. A drawn
    word gets one typo, of a kind drawn evenly from those that it can have, at a place drawn evenly among that kind's:

    - transposed: two neighbouring letters that differ change places;
    - dropped: a letter is missing;
    - doubled: a letter stands twice;
    - replaced: a letter becomes one of a neighbouring key on a QWERTY keyboard;
    - joined: the white space to the next word is missing.

    The first letter of a word stays. Letters other than a to z are not doubled or replaced, and a word without any of these is
    only transposed or dropped from, since its keyboard is not known. Without settings the text stays as it is.
    """
    words = [word for word in _words(text) if len(word.letters) >= SHORTEST] if settings is not None else []
    if settings is None or not words or not settings.rate:
        return text
    chances = [_chance(settings.seed, key, number) for number in range(len(words))]
    draws = [chance.random() for chance in chances]
    changed, done = list[str](), 0
    for word, chance, draw in zip(words, chances, draws, strict=True):
        if draw < settings.rate or draw == min(draws):
            begin, end, replacement = _typo(text, word, chance)
            changed += [text[done:begin], replacement]
            done = end
    return "".join([*changed, text[done:]])


def _chance(seed: int, key: str, number: int) -> random.Random:
    """Returns the source of chance of one word; only its `random()` is used, whose values no version of Python changes."""
    digest = hashlib.sha256(f"{seed}\0{key}\0{number}".encode()).digest()
    return random.Random(int.from_bytes(digest, "big"))


def _words(text: str) -> Iterator[Word]:
    begin, letters = 0, list[str]()
    for place, character in enumerate(text):
        if character.isalpha():
            begin = begin if letters else place
            letters.append(character)
        elif letters and unicodedata.category(character)[0] == "M":
            letters[-1] += character
        elif letters:
            yield Word(begin, place, tuple(letters))
            letters = []
    if letters:
        yield Word(begin, len(text), tuple(letters))


def _typo(text: str, word: Word, chance: random.Random) -> tuple[int, int, str]:
    """Returns the begin and end of what a typo replaces, and what stands there then."""
    letters = word.letters
    inner = range(1, len(letters))
    on_keys = [i for i in inner if letters[i].lower() in NEIGHBOURS]
    places: dict[str, Sequence[int]] = {
        "transposed": [i for i in inner[:-1] if letters[i].casefold() != letters[i + 1].casefold()],
        "dropped": inner,
        "doubled": on_keys,
        "replaced": on_keys,
        "joined": [0] if on_keys and _space_after(text, word.end) else [],
    }
    kind = _one([kind for kind, found in places.items() if found], chance)
    i = _one(places[kind], chance)
    if kind == "joined":
        return word.end, word.end + _space_after(text, word.end), ""
    before, after = letters[:i], letters[i + 1 :]
    now: tuple[str, ...] = ()
    if kind == "transposed":
        now, after = (letters[i + 1], letters[i]), letters[i + 2 :]
    elif kind == "doubled":
        now = (letters[i], letters[i])
    elif kind == "replaced":
        other = _one(NEIGHBOURS[letters[i].lower()], chance)
        now = (other.upper() if letters[i].isupper() else other,)
    return word.begin, word.end, "".join((*before, *now, *after))


def _space_after(text: str, place: int) -> int:
    """Returns the number of white-space characters from here to a letter or digit; 0 if anything else comes first."""
    rest = text[place:]
    spaces = len(rest) - len(rest.lstrip())
    return spaces if rest[spaces : spaces + 1].isalnum() else 0


def _one(items: Sequence[Item], chance: random.Random) -> Item:
    return items[int(chance.random() * len(items))]

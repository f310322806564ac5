"""Sentences: how many a text has, the text split into them, and those of a passage that the token limit cut."""

import re
from itertools import pairwise

from rewriters.lengths import UNSPACED, length

LEAST_WORDS, LEAST_CHARACTERS = 5, 12  # of what is left of a passage; characters where a script has no spaces
_CLOSING = "\"'”’»)\\]）」』*_"
# A full stop behind a word of three letters or more, or behind a bracket, before a word that begins no sentence in its middle;
# the marks of scripts without capital letters wherever they stand.
_END = re.compile(
    rf"(?:(?<=[^\W\d_]{{3}})\.|(?<=[\d%)\]\"”])\.(?=\s)|[!?])[{_CLOSING}]*(?=\s+[^\sa-z,;]|\s*\Z)|[。！？।॥؟۔።။][{_CLOSING}]*"
)


def sentences(text: str) -> int:
    """Returns the number of sentences that end in a text."""
    return sum(1 for _ in _END.finditer(text))


def _ends(text: str) -> list[int]:
    """Returns 0 and where sentences end; a single word such as "Approx." is none alone."""
    ends = [0]
    for match in _END.finditer(text):
        if length(text[ends[-1] : match.end()]) > 1:
            ends.append(match.end())
    return ends


def split_sentences(text: str) -> list[str]:
    """Returns the sentences of a text, and what stands behind the last one."""
    parts = (text[begin:end].strip() for begin, end in pairwise([*_ends(text), len(text)]))
    return [part for part in parts if part]


def whole_sentences(text: str) -> str:
    """Returns a cut passage up to its last whole sentence; empty if less than LEAST_WORDS words are left.

    A full stop behind a digit at the very end may be one within a number, and ends nothing.
    """
    whole = text[: _ends(text)[-1]].rstrip()
    least = LEAST_CHARACTERS if UNSPACED.search(whole) else LEAST_WORDS
    return whole if length(whole) >= least else ""

"""The words of a text, as guards compare them."""

import re
import unicodedata
from functools import lru_cache

from rewriters.lengths import UNSPACED
from rewriters.normalise import normalise

_ASCII = re.compile(r"[a-z0-9]+")


def split_words(text: str) -> list[str]:
    """Returns the sequences of letters, marks and digits of the normal form, in order, without apostrophes.

    In scripts without spaces between words, a run gives its overlapping pairs of characters.
    """
    normal = normalise(text).replace("'", "").replace("’", "")
    if normal.isascii():
        return _ASCII.findall(normal)
    tokens = []
    for run in "".join(char if _is_kept(char) else " " for char in normal).split():
        tokens += _pairs(run) if UNSPACED.search(run) else [run]
    return tokens


@lru_cache(maxsize=8192)
def _is_kept(char: str) -> bool:
    return unicodedata.category(char)[0] in "LMN"


def _pairs(run: str) -> list[str]:
    pairs = []
    for part in re.findall(f"{UNSPACED.pattern}+|(?:(?!{UNSPACED.pattern}).)+", run):
        spaced = len(part) == 1 or not UNSPACED.match(part)
        pairs += [part] if spaced else [part[i : i + 2] for i in range(len(part) - 1)]
    return pairs

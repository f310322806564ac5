"""Words and phrases as whole words in a normalised text.

A word ends where no letter or digit of a script with spaces goes on: an English phrase is found in 买iphone手机. A phrase whose
own first or last letter is of a script without spaces is found wherever it stands, since such text says nothing of words;
only a vowel sign or tone mark of its last letter must not follow.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from rewriters.lengths import UNSPACED
from rewriters.normalise import normalise

_SPACED = rf"(?!{UNSPACED.pattern})\w"
_MARKS = "".join(char for char in map(chr, range(0x0E00, 0x1800)) if unicodedata.category(char)[0] == "M")


@lru_cache(maxsize=256)
def any_of(phrases: tuple[str, ...]) -> re.Pattern[str]:
    """Returns a pattern that finds any of the phrases as whole words in a text in normal form."""
    return re.compile("|".join(_whole(normalise(phrase)) for phrase in sorted(phrases, key=len, reverse=True)))


def _whole(phrase: str) -> str:
    before = "" if UNSPACED.match(phrase[:1]) else rf"(?<!{_SPACED})"
    after = rf"(?![{_MARKS}])" if UNSPACED.match(phrase[-1:]) else rf"(?!{_SPACED})"
    return before + re.escape(phrase) + after

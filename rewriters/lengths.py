"""Words of a text: its length in words, and phrases that are found as whole words.

A word ends where no letter or digit of a script with spaces goes on: an English phrase is found in 买iphone手机. A phrase whose
own first or last letter is of a script without spaces is found wherever it stands, since such text says nothing of words;
only a vowel sign or tone mark of its last letter must not follow.
"""

import re
import unicodedata
from functools import lru_cache

from rewriters.normalise import normalise

# Thai, Lao, Tibetan, Burmese, Khmer, kana, Han, half-width kana: scripts without spaces between their words.
UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff]"
)
_WORD = re.compile(r"[^\W_][^\s,;،、，；]*")  # what lies between separators and has a letter or digit, from the first one on
_SPACED = rf"(?!{UNSPACED.pattern})\w"
_MARKS = "".join(char for char in map(chr, range(0x0E00, 0x1800)) if unicodedata.category(char)[0] == "M")


def length(text: str) -> int:
    """Returns the number of words in a text; in scripts without spaces between words, the number of characters."""
    separate = text if text.isascii() else UNSPACED.sub(r" \g<0> ", text)
    return len(_WORD.findall(separate))


@lru_cache(maxsize=256)
def any_of(phrases: tuple[str, ...]) -> re.Pattern[str]:
    """Returns a pattern that finds any of the phrases as whole words in a text in normal form."""
    return re.compile("|".join(_whole(normalise(phrase)) for phrase in sorted(phrases, key=len, reverse=True)))


def _whole(phrase: str) -> str:
    before = "" if UNSPACED.match(phrase[:1]) else rf"(?<!{_SPACED})"
    after = rf"(?![{_MARKS}])" if UNSPACED.match(phrase[-1:]) else rf"(?!{_SPACED})"
    return before + re.escape(phrase) + after

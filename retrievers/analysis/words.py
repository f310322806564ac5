"""The words of a text, in any script.

- Compatibility forms are one (NFKC: full-width Latin, half-width kana, ligatures), and so are digits of all scripts and the
  spellings of Arabic, Persian and Indic scripts that writers mix: harakat, tatweel and nukta go, forms of alef, yeh, kaf and
  teh marbuta are one each.
- A word is a run of letters, marks, digits and underscores. A single letter is one, too ("vitamin C"), but not after a letter
  and an apostrophe: the English possessive is no word. Digits with a point or comma between them are one word (3.11).
- Scripts without spaces between words (Han, kana, Thai, Lao, Khmer, Burmese), and Hangul, give overlapping pairs of characters
  with their marks, as Lucene's CJKBigramFilter does; documents also the single ones, so that a query of one finds them. Only
  such queries use these, since single characters tell little of longer words.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from typing import NamedTuple

_ASCII_WORD = re.compile(r"[0-9]+(?:[.,][0-9]+)+|[a-z0-9_]{2,}|(?<![a-z0-9]')[a-z0-9]")
_BEYOND_GREEK = re.compile("[\u0400-\U0010ffff]")  # where the table below has letters
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\ua960-\ua97f\uaa60-\uaa7f\uac00-\ud7ff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_SAME = {  # letters of Arabic script and their one form
    "أ": "ا", "إ": "ا", "آ": "ا", "ٱ": "ا", "ى": "ي", "ی": "ي", "ې": "ي", "ے": "ي", "ک": "ك", "ة": "ه", "ۀ": "ه", "ہ": "ه",
    "ە": "ه", "ئ": "ي", "ؤ": "و", "ँ": "ं", "ё": "е",
}  # fmt: skip
# Tatweel, harakat, marks of the Quran, zero-width joiner; nukta of the Indic scripts.
_GONE = [0x640, *range(0x64B, 0x660), 0x670, *range(0x6D6, 0x6DD), 0x200D, 0x93C, 0x9BC, 0xA3C, 0xABC, 0xB3C, 0xCBC]


class _Patterns(NamedTuple):
    word: re.Pattern[str]
    unspaced: re.Pattern[str]
    cluster: re.Pattern[str]
    table: dict[int, str | None]


def split_words(text: str, *, every: bool = False, turkish: bool = False) -> list[str]:
    """Returns the words of a text in order, in lower case and normal form.

    Where `every`, of scripts without spaces the single characters, too, as documents are indexed. Where `turkish`, I is the
    capital of ı, not of i.
    """
    if text.isascii() and not turkish:
        return _ASCII_WORD.findall(text.lower())
    text = unicodedata.normalize("NFKC", text)
    if turkish:
        text = text.replace("I", "\u0131")
    # lower() gives Turkish İ a combining dot, which queries for istanbul do not have
    text = text.lower().replace("i\u0307", "i")
    patterns = _patterns()
    if not _BEYOND_GREEK.search(text):
        return patterns.word.findall(text)
    text = text.translate(patterns.table)
    tokens: list[str] = patterns.word.findall(text)
    if not patterns.unspaced.search(text):
        return tokens
    return [part for each in tokens for part in _split(each, patterns, every)]


def unspaced_letters(text: str) -> int:
    """Returns the number of characters of a text in scripts without spaces between words, or Hangul."""
    return 0 if text.isascii() else sum(len(run) for run in _patterns().unspaced.findall(text))


def _split(word: str, patterns: _Patterns, every: bool) -> Iterable[str]:
    """Yields the parts of a word that may mix scripts: pairs where there are no spaces, the text between them unchanged."""
    last = 0
    for run in patterns.unspaced.finditer(word):
        if run.start() > last:
            yield word[last : run.start()]
        last = run.end()
        letters = patterns.cluster.findall(run.group())
        if every or len(letters) == 1:
            yield from letters
        yield from map("".join, pairwise(letters))
    if last < len(word):
        yield word[last:]


@cache
def _patterns() -> _Patterns:
    """Returns the patterns for texts that are not ASCII; compiled for the first one (some 50 ms)."""
    chars = [chr(code) for code in range(0x80, 0x20000)]
    marks = "".join(char for char in chars if unicodedata.category(char)[0] == "M")
    table: dict[int, str | None] = {ord(char): str(unicodedata.digit(char)) for char in chars if char.isdecimal()}
    table |= {ord(char): same for char, same in _SAME.items()} | dict.fromkeys(_GONE)
    letter = rf"[\w{marks}]"
    return _Patterns(
        re.compile(rf"[0-9]+(?:[.,][0-9]+)+|{letter}{{2,}}|(?<![^\W_]['’])[^\W_]"),
        re.compile(rf"[{_UNSPACED}][{_UNSPACED}{marks}]*"),
        re.compile(rf"[^{marks}][{marks}]*|[{marks}]+"),
        table,
    )

r"""The words of version 1, by which indexes of that version are still searched.

Two letters and more, composed (NFC); runs of CJK characters as overlapping pairs. On other text these are the words of
`bm25s.tokenize` with its default pattern, except that combining marks belong to their word and İ becomes a plain i.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache

_CJK = (
    "\u1100-\u11ff\u3005\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff"
    "\uf900-\ufaff\uff66-\uffdc\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_ASCII_WORD = re.compile(r"[a-z0-9_]{2,}")


def first_words(text: str) -> list[str]:
    """Returns the words of a text in lower case: two letters or more; CJK runs as bigrams."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    word, cjk = _patterns()
    lower = unicodedata.normalize("NFC", text).lower().replace("i\u0307", "i")
    found: list[str] = word.findall(lower)
    if not cjk.search(text):
        return [each for each in found if len(each) > 1]
    return [part for each in found for part in _split(each, cjk)]


def _split(word: str, cjk: re.Pattern[str]) -> Iterable[str]:
    last = 0
    for run in cjk.finditer(word):
        if run.start() - last > 1:
            yield word[last : run.start()]
        last = run.end()
        letters = run.group()
        if len(letters) == 1:
            yield letters
        else:
            yield from (letters[i : i + 2] for i in range(len(letters) - 1))
    if len(word) - last > 1:
        yield word[last:]


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    marks = [chr(c) for c in range(0x300, 0x20000) if unicodedata.category(chr(c))[0] == "M"]
    return re.compile(rf"[\w{''.join(marks)}]+"), re.compile(rf"[{_CJK}]+")

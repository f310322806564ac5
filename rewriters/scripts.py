"""Which writing systems a text uses: enough to see that an answer came in another language than the query."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

# One Japanese sentence mixes these, and a kana query may well have a kanji rewrite; Han alone is shared with Chinese.
# Hangul stands for itself: a Korean query that comes back in Han alone has been translated.
_EAST_ASIAN = {
    "CJK": "han-kana",
    "HIRAGANA": "han-kana",
    "KATAKANA": "han-kana",
    "KATAKANA-HIRAGANA": "han-kana",
    "HENTAIGANA": "han-kana",
    "IDEOGRAPHIC": "han-kana",
    "BOPOMOFO": "han-kana",
}
_NO_SCRIPT = {"", "MODIFIER", "DOUBLE-STRUCK", "SCRIPT", "BLACK-LETTER", "INFORMATION", "ALEF"}


@lru_cache(maxsize=8192)
def _script(char: str) -> str:
    """The script of one letter, by the first word of its Unicode name; "" for what has none."""
    word = unicodedata.name(char, "").partition(" ")[0]
    return "" if word in _NO_SCRIPT else _EAST_ASIAN.get(word, word.casefold())


def scripts(text: str) -> set[str]:
    """The scripts of the letters of `text` (compatibility forms read as what they stand for); empty without letters."""
    return {_script(char) for char in set(unicodedata.normalize("NFKC", text)) if char.isalpha()} - {""}


def share_no_script(query: str, rewrite: str) -> bool:
    """Whether both have letters and none of a common script. A query of one letter (a symbol: π, µ) never counts,
    unless it is Han or kana, where one letter is a word."""
    wanted, found = scripts(query), scripts(rewrite)
    if sum(map(str.isalpha, query)) == 1 and "han-kana" not in wanted:
        return False
    return bool(wanted and found) and not wanted & found

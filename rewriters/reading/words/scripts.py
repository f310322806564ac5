"""Writing systems of texts; they tell whether a rewrite is in another language than its query."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

# Japanese mixes these scripts, and the rewrite of a kana query may be in kanji; Chinese has Han, too. Hangul is a script of its
# own: the rewrite of a Korean query in Han alone is a translation.
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
    """Returns the script of a letter, by the first word of its Unicode name; "" if it has none."""
    word = unicodedata.name(char, "").partition(" ")[0]
    return "" if word in _NO_SCRIPT else _EAST_ASIAN.get(word, word.casefold())


def scripts(text: str) -> set[str]:
    """Returns the scripts of the letters of a text, after NFKC; empty without letters."""
    return {_script(char) for char in set(unicodedata.normalize("NFKC", text)) if char.isalpha()} - {""}


def share_no_script(query: str, rewrite: str) -> bool:
    """Returns whether two texts have letters, but no script in common.

    False for a query of one letter (a symbol: π, µ), unless it is Han or kana, where one letter can be a word.
    """
    query_scripts, rewrite_scripts = scripts(query), scripts(rewrite)
    if sum(map(str.isalpha, query)) == 1 and "han-kana" not in query_scripts:
        return False
    return bool(query_scripts and rewrite_scripts) and not query_scripts & rewrite_scripts

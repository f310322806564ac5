"""Languages of texts: by writing systems and, of a text in Latin letters, by function words that no other language has.

Of a language only what is sure is said: two such words or more of one language (three in a rewrite), and none of another.
Keywords have none, so most of them are of no language here. Accents do not count, since queries leave them out.
"""

import re
import unicodedata
from collections import Counter
from functools import cache, lru_cache

from rewriters.normalise import normalise
from rewriters.reading.words import word_lists

_SURE, SURE_TITLE = 2, 3  # words; of a rewrite, which may have a title of another language


@cache
def _language_of() -> dict[str, str]:
    """Returns word -> its language, of the words that only one language has."""
    languages: dict[str, set[str]] = {}
    for language, function_words in word_lists()["function_words"].items():
        for word in function_words.split():
            languages.setdefault(folded(word), set()).add(language)
    return {word: of_word.pop() for word, of_word in languages.items() if len(of_word) == 1}


def folded(text: str) -> str:
    """Returns a text in lower case without accents."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def language_of(text: str, least: int = _SURE) -> str | None:
    """Returns the language of a text in Latin letters; None if that is not sure."""
    languages = _language_of()
    by_language: dict[str, set[str]] = {}
    for word in re.findall(r"[^\W\d_]+", folded(text)):
        if word in languages:
            by_language.setdefault(languages[word], set()).add(word)
    ((language, function_words),) = by_language.items() if len(by_language) == 1 else (("", set()),)
    return language if len(function_words) >= least else None


# Japanese mixes these scripts, and the rewrite of a kana query may be in kanji; Chinese has Han, too. Hangul is a script of its
# own: the rewrite of a Korean query in Han alone is a translation.
_EAST_ASIAN = dict.fromkeys(
    ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HENTAIGANA", "IDEOGRAPHIC", "BOPOMOFO"), "han-kana"
)
_WORD = re.compile(r"[^\W_]+")
_LEAST_GREEK = 3  # letters of a word
_NO_SCRIPT = {"", "MODIFIER", "DOUBLE-STRUCK", "SCRIPT", "BLACK-LETTER", "INFORMATION", "ALEF"}


@lru_cache(maxsize=8192)
def _script(char: str) -> str:
    """Returns the script of a letter, by the first word of its Unicode name; "" if it has none."""
    word = unicodedata.name(char, "").partition(" ")[0]
    return "" if word in _NO_SCRIPT else _EAST_ASIAN.get(word, word.casefold())


def scripts(text: str) -> set[str]:
    """Returns the scripts of the letters of a text, after NFKC; empty without letters."""
    if text.isascii():  # as most texts are; six times as fast
        return {"latin"} if any(map(str.isalpha, text)) else set()
    return {_script(char) for char in set(unicodedata.normalize("NFKC", text)) if char.isalpha()} - {""}


def language_scripts(text: str) -> set[str]:
    """Returns the scripts that tell the language of a text.

    Latin words stand in texts of any script as names and terms, so Latin counts only where nothing else does. A letter of
    another alphabet alone, and Greek ones within or as short as a term (β, αvβ8), are symbols.
    """
    scripts_of_text = scripts(text)
    if text.isascii():
        return scripts_of_text
    letters: Counter[str] = Counter()
    for word in _WORD.findall(unicodedata.normalize("NFKC", text)):
        of_word = Counter(_script(char) for char in word if char.isalpha())
        if of_word["latin"] or of_word["greek"] < _LEAST_GREEK:
            del of_word["greek"]
        letters.update(of_word)
    others = {script for script in scripts_of_text - {"latin"} if letters[script] > 1 or script == "han-kana"}
    return others or scripts_of_text & {"latin"} or scripts_of_text


def new_words(query: str, rewrite: str) -> list[str]:
    """Returns the words of a rewrite that the query does not have, in normal form."""
    known = set(_WORD.findall(normalise(query)))
    return [word for word in _WORD.findall(normalise(rewrite)) if word not in known]


def is_foreign(query: str, rewrite: str) -> bool:
    """Returns True if a rewrite has words that the query does not have, and none in the scripts of the query's language.

    False for a query of one letter (a symbol: π, µ), unless it is Han or kana.
    """
    if query.isascii() and rewrite.isascii():
        return False
    if sum(map(str.isalpha, query)) == 1 and "han-kana" not in scripts(query):
        return False
    new, wanted = scripts(" ".join(new_words(query, rewrite))), language_scripts(query)
    if not wanted or not new:
        return False
    if "latin" in wanted:  # of "iphone 16 price" the name stays in "iPhone 16 价格": the new words tell
        return not wanted & new and bool(new_words(rewrite, query))
    return not wanted & scripts(rewrite)

"""True if a text may be a romanised one in the script of its language ("aaj ka mausam" and "आज का मौसम").

Evidence is positive, without a dictionary. Scripts that spell sounds are compared by their consonants, coarsely, since no
two people romanise alike; Unicode's names of letters say how they sound. Han has no sounds of its own, so there the Latin
text must be nothing but syllables of Japanese or of Chinese (pinyin).
"""

import re
import unicodedata
from difflib import SequenceMatcher
from functools import lru_cache

from rewriters.reading.words import pattern, word_lists
from rewriters.reading.words.languages import folded, language_of

_LIKE = 0.8  # of two words' consonants
_LEAST_WHOLE = 3  # consonants of a text that is compared as a whole
# Consonants that are romanised as one another share a class; h, w, y and vowels have none.
_CLASSES = {letter: group[0] for group in ("pbvf", "sczjx", "kgq", "td", "rl", "nm") for letter in group}
_DIGITS = {"5": "k", "6": "t", "8": "g", "9": "k"}  # of Arabic chats; 2, 3 and 7 stand for what has no class
# The names of Cyrillic, Armenian and Georgian letters begin with the sound, but for EL, EM, EN, ER, ES, EF.
_AFTER_VOWEL = {"EL", "EM", "EN", "ER", "ES", "EF"}
_SILENT = {"ALEF", "AIN", "AYIN", "ALPHA", "EPSILON", "ETA", "IOTA", "OMICRON", "UPSILON", "OMEGA", "O", "ANG", "SARA", "MAI",
           "MAITAIKHU", "THANTHAKHAT"}  # fmt: skip
_LETTER = re.compile(r"(?:LETTER|CHARACTER|SYLLABLE|LIGATURE)(?: (?:SMALL|FINAL|VOCALIC|YERU|SHORT))* (?P<name>[A-Z]+)")
_ROMAJI, _PINYIN = pattern("romaji"), pattern("pinyin")
_HINDI_SCRIPTS = {"devanagari", "arabic"}


def is_romanised(latin: str, native: str, scripts: set[str], share: float = 0.6) -> bool:
    """Returns True if a text in Latin letters may say what a text in another script says.

    `scripts` are the other scripts of `native`, as `scripts.scripts` names them; `share` is of the Latin words with two
    consonants or more: how many must sound like a word of the other text.
    """
    latin_words = re.findall(r"[^\W_]+", folded(latin))
    own = folded(native)
    latin_words = [word for word in latin_words if any(map(str.isalpha, word)) and word not in own]
    if not latin_words:
        return False
    if "han-kana" in scripts and (all(map(_ROMAJI.fullmatch, latin_words)) or all(map(_PINYIN.fullmatch, latin_words))):
        return True
    hindi = word_lists()["hindi"].split()
    known = [word for word in latin_words if word in hindi]
    if scripts & _HINDI_SCRIPTS and len(known) > 1 and 3 * len(known) >= len(latin_words):
        return True
    if language_of(latin) is not None:
        return False
    native_words = re.findall(r"[\w\u0300-\u036f\u0900-\u0dff\u0e00-\u0eff]+", unicodedata.normalize("NFC", native))
    native_words = [word for word in native_words if not folded(word).isascii()]
    return _sound_alike(latin_words, native_words, share)


def _sound_alike(latin_words: list[str], native: list[str], share: float) -> bool:
    """Returns True if a `share` of the words with two or more consonants sounds like another word or a part of one."""
    mine = [sounds for word in latin_words if len(sounds := _of_latin(word)) > 1]
    theirs = [sounds for word in native if len(sounds := _of_native(word)) > 1]
    whole = "".join(map(_of_native, native))
    if len("".join(mine)) > _LEAST_WHOLE and SequenceMatcher(None, "".join(mine), whole, autojunk=False).ratio() >= _LIKE:
        return True
    alike = 0
    for sound in mine:
        other = next((sounds for sounds in theirs if _alike(sound, sounds)), None)
        if other is not None:
            theirs.remove(other)
        alike += other is not None or (len(sound) > 2 and sound in whole)
    return bool(mine) and alike >= max(min(2, len(mine)), share * len(mine))


def _alike(first: str, other: str) -> bool:
    if min(len(first), len(other)) < 3:
        return first == other
    return SequenceMatcher(None, first, other, autojunk=False).ratio() >= _LIKE


def _of_latin(word: str) -> str:
    word = word.replace("ph", "f").replace("ck", "k").replace("qu", "k").replace("x", "ks")
    word = re.sub(r"c(?![eiyh])", "k", word)
    return _undoubled("".join(_CLASSES.get(char) or _DIGITS.get(char, "") for char in word))


@lru_cache(maxsize=4096)
def _of_native(word: str) -> str:
    return _undoubled("".join(map(_sound, word)))


@lru_cache(maxsize=8192)
def _sound(char: str) -> str:
    """Returns the classes of the consonants of a letter, by its Unicode name."""
    name = unicodedata.name(char, "")
    match = _LETTER.search(name)
    if name.startswith("HANGUL SYLLABLE"):
        return _classes(name.rpartition(" ")[2].lower())
    if match is None or " SIGN " in name or match["name"] in _SILENT:
        return "n" if name.endswith("SIGN ANUSVARA") else ""
    sound = match["name"].lower()
    if match["name"] in _AFTER_VOWEL and "CYRILLIC" in name:
        return _classes(sound[1:])
    first = re.match(r"[^aeiou]+", sound)
    length = None if "CYRILLIC" in name else 1  # TSE and SHCHA are more than one consonant, KHA and TTHA are one
    return _classes(first.group()[:length] if first else "") + ("s" if sound in ("xi", "ksi", "psi") else "")


def _classes(letters: str) -> str:
    return "".join(_CLASSES.get(char, "") for char in letters)


def _undoubled(classes: str) -> str:
    return re.sub(r"(.)\1+", r"\1", classes)

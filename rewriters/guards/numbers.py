"""The numbers of a text, in whichever way they are written."""

from __future__ import annotations

import re
import unicodedata

from rewriters.guards.words import words

DIGITS = re.compile(r"\d+(?:[.,'’]\d+)*")
ROMAN = re.compile(r"(?<!\w)(?=[IVX])X{0,2}(?:IX|IV|V?I{0,3})(?!\w)")
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()  # noqa: SIM905
_FROM_ZERO = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
    "nineteen twenty"
)
_FROM_ONE = (  # English, and languages in which small numbers are often written out
    "once twice", "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth",
    "eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
    "un deux trois quatre cinq six sept huit neuf dix onze douze",
    "uno dos tres cuatro cinco seis siete ocho nueve diez", "uno due tre quattro cinque sei sette otto nove dieci",
    "um dois três quatro cinco seis sete oito nove dez", "een twee drie vier vijf zes zeven acht negen tien elf twaalf",
)  # fmt: skip
_WORDS = {word: n for line in _FROM_ONE for n, word in enumerate(line.split(), 1)}
_WORDS |= {word: n for n, word in enumerate(_FROM_ZERO.split())} | {"dozen": 12, "hundred": 100, "thousand": 1000}
_WORDS |= {word: 10 * n for n, word in enumerate("thirty forty fifty sixty seventy eighty ninety".split(), 3)}  # noqa: SIM905
_SCALES = {"k": 3, "thousand": 3, "m": 6, "mn": 6, "million": 6, "bn": 9, "billion": 9}


def numbers(text: str) -> set[str]:
    """Returns the forms of all numbers in a text: digits, words, ordinals, Roman numerals, names of months."""
    found: set[str] = set()
    for number in DIGITS.finditer(text):
        found |= forms(number.group())
        scale = re.match(r"\s?([a-z]+)", text[number.end() :].casefold())
        if scale and scale[1] in _SCALES:
            found.add(_scaled(number.group(), _SCALES[scale[1]]))
    for word in words(text):
        found |= {str(_WORDS[one]) for one in (word, word.removesuffix("s"), word.removesuffix("th")) if one in _WORDS}
        if word[:3] in _MONTHS:
            found.add(str(_MONTHS.index(word[:3]) + 1))
    found |= {str(_roman(match.group())) for match in ROMAN.finditer(text) if match.group()}
    return found | {str(int(value)) for char in set(text) if (value := unicodedata.numeric(char, -1)) >= 0 and value % 1 == 0}


def forms(number: str) -> set[str]:
    """Returns the ways to read digits with separators: without them, and without the zeros that end decimals."""
    digits = "".join(str(unicodedata.digit(char)) for char in number if char.isdigit())
    found = {digits.lstrip("0") or "0"}
    decimals = re.fullmatch(r"(\d+)[.,](\d*?)0*", number)
    if decimals:
        found.add((decimals[1] + decimals[2]).lstrip("0") or "0")
    return found


def _scaled(number: str, zeros: int) -> str:
    whole, _, decimals = number.replace(",", ".").partition(".")
    return (whole + decimals.ljust(zeros, "0")[:zeros]).lstrip("0")


def _roman(text: str) -> int:
    values = [{"I": 1, "V": 5, "X": 10}[char] for char in text]
    return sum(-one if one < following else one for one, following in zip(values, [*values[1:], 0], strict=True))

"""Numbers, names and quoted phrases of a query that a rewrite has lost.

By rule, and rather too few than too many, since a false alarm costs trust:

- numbers: sequences of digits, also with separators; a date or range is several. Written out, as an ordinal, a Roman numeral
  or the name of a month they are not lost, nor is their unit compared.
- names: words with a capital letter that begin no sentence, and words of letters with digits or with a capital inside (B57,
  iPhone); not in queries where capitals say nothing: without any, in capitals throughout, or with most words in capitals. An
  inflection, an abbreviation by initials or a corrected spelling is not lost. Scripts without case have no names; where one
  has no spaces either, its letters end a name: mate60 in 华为mate60多少钱.
- quoted phrases: word by word. What is inside counts as the phrase alone.
"""

import re
import unicodedata
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cache, lru_cache
from typing import NamedTuple

from rewriters.lengths import UNSPACED
from rewriters.normalise import normalise

_ASCII = re.compile(r"[a-z0-9]+")
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


def numbers(text: str) -> set[str]:
    """Returns the forms of all numbers in a text: digits, words, ordinals, Roman numerals, names of months."""
    shown: set[str] = set()
    for number in DIGITS.finditer(text):
        shown |= forms(number.group())
        scale = re.match(r"\s?([a-z]+)", text[number.end() :].casefold())
        if scale and scale[1] in _SCALES:
            whole, _, decimals = number.group().replace(",", ".").partition(".")
            zeros = _SCALES[scale[1]]
            shown.add((whole + decimals.ljust(zeros, "0")[:zeros]).lstrip("0"))
    for word in split_words(text):
        shown |= {str(_WORDS[one]) for one in (word, word.removesuffix("s"), word.removesuffix("th")) if one in _WORDS}
        if word[:3] in _MONTHS:
            shown.add(str(_MONTHS.index(word[:3]) + 1))
    shown |= {str(_roman(match.group())) for match in ROMAN.finditer(text) if match.group()}
    return shown | {str(int(value)) for char in set(text) if (value := unicodedata.numeric(char, -1)) >= 0 and value % 1 == 0}


def forms(number: str) -> set[str]:
    """Returns the ways to read digits with separators: without them, and without the zeros that end decimals."""
    digits = "".join(str(unicodedata.digit(char)) for char in number if char.isdigit())
    written = {digits.lstrip("0") or "0"}
    decimals = re.fullmatch(r"(\d+)[.,](\d*?)0*", number)
    if decimals:
        written.add((decimals[1] + decimals[2]).lstrip("0") or "0")
    return written


def _roman(text: str) -> int:
    values = [{"I": 1, "V": 5, "X": 10}[char] for char in text]
    return sum(-one if one < following else one for one, following in zip(values, [*values[1:], 0], strict=True))


NUMBER, NAME, PHRASE = "lost_number", "lost_name", "lost_phrase"

_QUOTED = re.compile(
    r"""(?<!\w)["“„](\S(?:[^"“”„]*\S)?)["”“](?!\w) | «\s?([^«»]+?)\s?» | 「([^「」]+)」 | 『([^『』]+)』""", re.VERBOSE
)
_UNSPACED_LETTER = re.compile(rf"(?!\d){UNSPACED.pattern}")
_CUT = "\0"  # in place of such a letter: ends a word, and unlike a space begins no sentence
_TOKEN = re.compile(rf"[^\s{_CUT}]+")
_ADDRESS = re.compile(r"@|://|^www\.", re.IGNORECASE)
_EDGES = re.compile(r"^[^\w$€£¥#+-]+|[^\w%°€$£¥+#]+$")
_NAME = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
# Letters first: B57, H2O, covid-19.
_MIXED = re.compile(r"(?=\w*\d)(?=\w*[^\W\d_])(?<!\w)[^\W\d_]\w*|(?<!\w)[^\W\d_]{1,12}-\d\w*")
_INSIDE = re.compile(r"[^\W\d_][^\W\d_]*[A-ZÀ-ÞΑ-ΩА-Я][^\W\d_]*")
_BRACKETS = re.compile(r"\([^()]*\)")
_BEFORE_BRACKETS = 40  # characters
_SEVERAL = re.compile(r"(?<!\w)[^\W\d_a-zß-ÿ][^\W\d_]+(?: [^\W\d_a-zß-ÿ][^\W\d_]+)+(?!\w)")
_ARTICLE = re.compile(r"^(?:the|an?) (?=\S)", re.IGNORECASE)
_OPENERS = set('.!?:;…。！？：；|/\\([{"“”„«»—–-*•')  # what a sentence or an item may follow
_SMALL = set(  # words that are in capitals for emphasis, or in titles
    "a all an and any are at by for from how in is no not of on only or the to vs what when where which who why with".split()  # noqa: SIM905
)
_LEAST_RATIO = 0.75  # of a corrected spelling


class Part(NamedTuple):
    """A number, name or phrase of a query; `shown` is appended where it is to be repaired."""

    flag: str
    value: str
    shown: str
    instead: str = ""  # a text that may stand for it: initials, or what the query adds in brackets


def parts(query: str) -> list[Part]:
    """Returns the parts that a rewrite of the query should have, in the order of the query; phrases first."""
    protected, rest = [], query
    for quoted in _QUOTED.finditer(query):
        phrase = next(filter(None, quoted.groups()))
        if split_words(phrase) and split_words(phrase) != split_words(query):
            protected.append(Part(PHRASE, _ARTICLE.sub("", phrase), quoted.group()))
        rest = rest.replace(quoted.group(), " " * len(quoted.group()), 1)
    cased = _has_names(_UNSPACED_LETTER.sub(_CUT, query))
    brackets = [found for found in _BRACKETS.finditer(rest) if any(map(str.isupper, found.group()))]
    rest = _BRACKETS.sub(
        lambda found: found.group() if found.group().strip("()").isdecimal() else " " * len(found.group()), rest
    )
    rest = _UNSPACED_LETTER.sub(_CUT, rest)
    for token in _TOKEN.finditer(rest):
        if not _ADDRESS.search(token.group()):
            near = (one.group() for one in brackets if 0 < one.start() - token.start() <= _BEFORE_BRACKETS)
            protected += [part._replace(instead=next(near, "")) for part in _of_token(rest, token, cased)]
    for names in _SEVERAL.finditer(rest):
        initials = "".join(word[0] for word in names.group().split())
        inside = set(names.group().split())
        protected = [part._replace(instead=part.instead or initials) if part.value in inside else part for part in protected]
    return list({(part.flag, normalise(part.value)): part for part in reversed(protected)}.values())[::-1]


def lost(text: str, wanted: list[Part]) -> list[Part]:
    """Returns the parts that a text does not have."""
    if not wanted:
        return []
    rewritten = _Text(text)
    return [part for part in wanted if not rewritten.has(part)]


def repaired(text: str, missing: list[Part], separator: str | None) -> str:
    """Returns the text with the missing parts after it, as the query writes them."""
    return (separator or " ").join([text, *dict.fromkeys(part.shown for part in missing)])


def _of_token(query: str, token: re.Match[str], cased: bool) -> Iterator[Part]:
    """Yields the parts of a word between spaces, or between letters of a script without them."""
    bare = _EDGES.sub("", token.group())
    numbered = any(map(str.isdigit, bare))
    is_address = bare.count(".") > 1 and not bare.replace(".", "").isdigit()
    mixed = list(_MIXED.finditer(bare)) if numbered and not is_address else []
    for part in mixed:
        yield Part(NAME, part.group(), bare)
    for number in DIGITS.finditer(bare) if numbered else ():
        if not any(one.start() <= number.start() < one.end() for one in mixed):
            yield Part(NUMBER, number.group(), bare)
    for name in _NAME.finditer(bare):
        word = re.sub(r"['’]s$", "", name.group())
        inside = _INSIDE.fullmatch(word) is not None and not word.isupper()
        before = query[: token.start() + token.group().find(bare) + name.start()].rstrip()
        if any(one.start() <= name.start() < one.end() for one in mixed) or (name.start() and bare[name.start() - 1].isdigit()):
            continue
        begins = not before or before[-1] in _OPENERS
        capital = cased and len(word) > 1 and word[0].isupper() and not begins
        if (inside and cased) or (capital and word.casefold() not in _SMALL and not ROMAN.fullmatch(word)):
            yield Part(NAME, word, word)


def _has_names(query: str) -> bool:
    """Returns True if capital letters tell names: the query has small letters, too, and most longer words begin with one."""
    heads = [word[0] for word in re.findall(r"[^\W\d_]{4,}", query)] or [word[0] for word in re.findall(r"[^\W\d_]+", query)]
    capitals = sum(map(str.isupper, heads))
    return any(map(str.islower, query)) and capitals * 2 <= len(heads) + 1


class _Text:
    def __init__(self, text: str) -> None:
        self._words = [_folded(word) for word in split_words(text)]
        self._spaced = f" {' '.join(split_words(text))} "
        self._joined = "".join(self._words)
        self._numbers = cache(lambda: numbers(text))

    def has(self, part: Part) -> bool:
        if part.flag == PHRASE:
            return f" {' '.join(split_words(part.value))} " in self._spaced
        if part.flag == NUMBER:
            return bool(forms(part.value) & self._numbers()) or _joined(part.shown) in self._joined
        instead = " ".join(split_words(part.instead))
        return self._has_name(_folded(part.value)) or (instead != "" and f" {instead} " in self._spaced)

    def _has_name(self, name: str) -> bool:
        joined = _joined(name)
        initials = "".join(word[:1] for word in self._words)
        if joined in self._joined or (2 <= len(joined) <= 6 and joined in initials):
            return True
        least = max(3, -(-len(joined) * 3 // 5))
        return any(
            word[:least] == joined[:least]
            or (word[:1] == joined[:1] and len(joined) > 3 and SequenceMatcher(None, joined, word).ratio() >= _LEAST_RATIO)
            for word in self._words
            if len(word) >= min(3, len(joined))
        )


@lru_cache(maxsize=8192)
def _folded(word: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFD", normalise(word)) if not unicodedata.combining(char))


def _joined(text: str) -> str:
    return "".join(char for char in _folded(text) if char.isalnum())

"""Whether a text is in another language than its query, by scripts and by function words.

By rule, and rather too few than too many: a text is in another language if it lacks a script other than Latin that the query
has, or has no script in common with it, or if the function words of both tell two different languages. Texts and queries with
fewer than two function words, or whose function words fit two languages alike, say nothing.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from itertools import pairwise

from rewriters.guards.words import words
from rewriters.reading.words.scripts import scripts, share_no_script

LEAST_WORDS = 2  # different function words of a language, in the query and in the text
_LATIN = "latin"

_FUNCTION_WORDS = {
    "english": "the of and to in is are was for on with how what why who when where which does do can an at by from it that"
    " this not be or my you your should between during without",
    "german": "der die das und ist sind nicht ein eine einen einer eines zu im am für mit auf von bei wie was warum wer wann"
    " wo welche kann wird werden den dem des ich es oder aus nach ohne zwischen",
    "french": "le la les des du un une et est sont pour dans sur avec par qui que quoi comment pourquoi quand ou où au aux en"
    " ce cette il elle je ne pas quel quelle entre sans combien",
    "spanish": "el la los las un una unos unas de del y es son para por con en que qué como cómo cuando cuándo donde dónde"
    " cuanto cuánto cual cuál mi su no se al entre sin porque puede",
    "italian": "il lo la gli le un una uno di del della dei delle e è sono per con in su che chi come perché quando dove"
    " quanto quale non si al alla nel nella tra senza può",
    "portuguese": "o os as um uma uns umas de do da dos das e é são para por com em que como quando onde quanto qual não"
    " se ao no na nos nas entre sem porque pode meu minha",
    "dutch": "de het een en is zijn van voor met op in te dat die wat hoe waarom wie wanneer waar welke kan niet er bij naar"
    " om uit zonder tussen mijn",
    "scandinavian": "og och på til till av er är det den de en et ett som hva hvad vad hvordan hvorfor varför når hvor var med"
    " for för fra från ikke inte kan jeg jag mellom mellem mellan",
    "polish": "w z na do i jest są nie się jak co dlaczego kto kiedy gdzie czy dla od po przez który która bez między mój",
    "turkish": "ve bir bu ne nasıl neden için ile mi mı mu mü kim zaman nerede hangi kadar olarak var yok daha gibi",
    "indonesian": "yang dan di ke dari untuk dengan adalah apa bagaimana mengapa kenapa siapa kapan mana ini itu tidak atau"
    " pada cara berapa",
    "vietnamese": "và là của có không cho với các những một trong khi như thế nào tại sao gì được bao nhiêu cách",
    "russian": "и в на с по для не что как это почему кто когда где какой какая из от до или без между ли",
    "ukrainian": "і в на з по для не що як це чому хто коли де який яка від до або без між чи та",
}


def _folded(word: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFD", word) if not unicodedata.combining(char))


# Queries are typed without accents, so each word counts without them, too.
_KNOWN = {name: {form for word in listed.split() for form in (word, _folded(word))} for name, listed in _FUNCTION_WORDS.items()}

_ANY = frozenset().union(*_KNOWN.values())


def other_language(query: str, text: str) -> bool:
    """Returns whether a text is in another language than its query, or in another script."""
    if not (query.isascii() and text.isascii()) and any(map(str.isalpha, text)):
        dropped = scripts(query) - {_LATIN} - scripts(text)
        if share_no_script(query, text) or (dropped and _has_word(query, dropped)):
            return True
    asked = _language(query)
    return asked is not None and _language(text) not in (None, asked)


def _has_word(text: str, of: set[str]) -> bool:
    """Returns whether two letters of these scripts stand side by side; a single one is a symbol."""
    known = [bool(scripts(char) & of) for char in text]
    return any(one and other for one, other in pairwise(known))


@lru_cache(maxsize=4096)
def _language(text: str) -> str | None:
    """Returns the only language of which a text has most function words, and enough; None: it cannot be told."""
    found = _ANY.intersection(words(text))
    counts = sorted(((len(found & known), name) for name, known in _KNOWN.items()), reverse=True)
    (most, name), (second, _) = counts[:2]
    return name if most >= LEAST_WORDS and most > second else None

"""The language of a text in Latin letters, by words that hold sentences together and that no other of these languages has.

Only what is sure is said: two such words or more of one language (three in a rewrite), and none of another. Keywords have
none, so most of them are of no language here. Accents do not count, since queries leave them out.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_WORDS = {
    "English": (
        "the of and what how why which where when who whose are does did do was were is to for with from it "
        "its this that these can should would could have has my your their there about into than between "
        "without best"
    ),
    "German": (
        "der das und ist ich nicht ein eine einen einem einer wie warum welche welcher welches wann wer sind "
        "hat wird werden kann mit für von auf aus bei nach über zum zur vom oder auch gibt mein meine dem"
    ),
    "French": (
        "les des du et est une dans pour avec sur pas qui quel quelle quels quelles comment pourquoi quand "
        "sont ont peut faire mon ma mes aux cette ces leur combien entre meilleur"
    ),
    "Spanish": (
        "el los las del y es una por para con como que cual cuales cuando donde cuanto cuanta cuesta porque "
        "son esta hay puede hacer mi mis entre mejor mejores desde hasta sobre"
    ),
    "Portuguese": (
        "os um uma do da dos das em no na nos nas com para qual quais quando onde quanto porque sao esta "
        "fazer meu minha entre melhor pelo pela ate"
    ),
    "Italian": (
        "il lo gli di della delle dei nel nella per con che cosa come quando dove quanto perche sono fare mio "
        "mia tra migliore dal alla"
    ),
    "Dutch": (
        "het een van en niet wat hoe waarom welke wanneer wie zijn heeft wordt kan met voor naar bij uit ook mijn tussen beste"
    ),
    "Polish": "jak jest nie czy dla ktory ktora ktore kiedy gdzie ile dlaczego sa przez oraz sie moj moja najlepszy",
    "Swedish": "och att det ar inte vad hur varfor vilken vilka nar vem med fran till hos mellan basta",
    "Indonesian": ("yang dan di ke dari untuk dengan apa bagaimana mengapa kapan berapa adalah tidak bisa cara terbaik antara"),
    "Turkish": "ve bir bu icin ile nasil neden hangi nerede kac midir olan gibi en daha nedir",
    "Vietnamese": "cua khong nhung cach lam nao tai bao nhieu nhat",
}
_WORD = re.compile(r"[^\W\d_]+")
_SURE, _SURE_TITLE = 2, 3  # words; of a rewrite, which may have a title of another language


@lru_cache(maxsize=1)
def _language_of() -> dict[str, str]:
    """Returns word -> its language, of the words that only one language has."""
    found: dict[str, str] = {}
    shared: set[str] = set()
    for language, words in _WORDS.items():
        for word in set(words.split()):
            key = folded(word)
            shared |= {key} & set(found)
            found[key] = language
    return {word: language for word, language in found.items() if word not in shared}


def folded(text: str) -> str:
    """Returns a text in lower case without accents."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def language_of(text: str, least: int = _SURE) -> str | None:
    """Returns the language of a text in Latin letters; None if that is not sure."""
    languages = _language_of()
    found: dict[str, set[str]] = {}
    for word in _WORD.findall(folded(text)):
        if word in languages:
            found.setdefault(languages[word], set()).add(word)
    ((language, words),) = found.items() if len(found) == 1 else (("", set()),)
    return language if len(words) >= least else None


def translated(query: str, rewrite: str) -> bool:
    """Returns whether two texts are surely in different languages; a text that quotes the query is in neither."""
    mine, theirs = language_of(query), language_of(rewrite, _SURE_TITLE)
    return mine is not None and theirs is not None and mine != theirs

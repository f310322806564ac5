"""Analyzers: text to index terms, of documents and of queries.

- A language (`german`): its stop words are left out, the others stemmed: by Snowball, in Arabic by a light stemmer.
- `unicode`: all words as they are; `none`, `cjk` and `thai` are other names of it.

All have the words of `retrievers.analysis.words`, so that scripts without spaces are searched by pairs of characters under
every name.
"""

import unicodedata
from collections.abc import Callable, Iterable
from functools import cache, lru_cache, partial

from retrievers.analysis.words import split_words

ANALYZE_VERSION = 2  # incremented when a text may give other terms; part of a run's fingerprint and of an index

OURS = {
    "arabic": "في من على إلى الى عن مع هذا هذه ذلك تلك الذي التي الذين ما لا لم لن قد كان كانت هو هي هم أو او ثم أن إن ان أي "
    "كل بين عند بعد قبل حتى إذا لكن ليس كما هل حيث منذ و به بها له لها فيه فيها منه منها عليه عليها يكون تكون",
    "catalan": "el la els les l un una uns unes de del dels d a al als en i o que qui per amb com és són era eren no més se "
    "es seu seva aquest aquesta això hi ha han ser està entre sobre però si ja molt també fins quan on pel pels",
    "czech": "a i o u v k s z na do od po za pro při před přes bez nad pod mezi je jsou byl byla bylo byli být se si že aby "
    "ale nebo jako který která které co to ten ta tento tato toto jeho její jejich není tak také už když kde kdy jak ve ke ze",
    "finnish": "ja on ei se ne hän he minä sinä me te että joka jotka mikä mitä oli ovat olla ollut kun kuin jos mutta tai "
    "sekä myös niin vain nyt tämä tämän tätä tuo sen niiden hänen heidän siitä siinä sitä ole oli olivat vielä jo voi",
    "greek": "ο η το οι τα του της των τον την τους τις ένας μια ένα και να με σε από για που πως ότι θα δεν μη είναι ήταν "
    "στο στη στην στον στα στις στους ως αλλά ή αν όταν όπως αυτό αυτή αυτός κατά μετά πριν μας σας πολύ πιο",
    "hindi": "का की के में से को पर ने और या है हैं था थी थे हो होता होती होते यह ये वह वे इस उस इन उन जो कि तो ही भी नहीं एक "
    "तक लिए साथ बाद अपने अपना अपनी कर करना करने किया गया गई कुछ क्या कैसे जब हुआ हुई हुए",
    "hungarian": "a az és is hogy nem ez egy van volt meg de ha csak már mint vagy el ki be fel le azt ezt aki ami amely "
    "ahol amikor mert még sem után között alatt szerint minden lesz lehet ezek azok ő ők én te mi ti nagyon pedig így úgy",
    "indonesian": "yang dan di ke dari untuk pada dengan ini itu adalah atau tidak akan oleh dalam sebagai juga karena "
    "telah sudah dapat bisa ada saat lebih para agar seperti saya anda kami kita mereka dia ia hanya namun tetapi jika maka",
    "persian": "و در به از که را این آن با برای است بود شد می ها های هم یک تا بر یا اما اگر نیز هر هیچ چه چون شود شده کرد "
    "کند باشد بودند هستند او ما شما آنها خود دیگر پس پیش بین روی",
    "polish": "i w z na do o od po za dla przy przed przez bez nad pod między jest są był była było być się że aby ale lub "
    "albo jak który która które co to ten ta tego tej jego jej ich nie tak także już gdy gdzie kiedy a ze we u czy tym oraz",
    "romanian": "și si în in de la cu pe din pentru prin un o unui unei al a ale ai că ca nu este sunt era au fost fi se să "
    "sau dar mai care ce cum când unde dacă după între până foarte acest această aceasta lui ei lor îl îi le",
}
"""Stop words of languages that bm25s has no list for, written for this project: the most frequent words that join others."""
_IN_BM25S = (  # languages of whose stop words bm25s has a list (MIT)
    "danish", "dutch", "english", "french", "german", "italian", "norwegian", "portuguese", "russian", "spanish", "swedish",
    "turkish",
)  # fmt: skip
_WITHOUT_STOP_WORDS = (
    "armenian", "basque", "esperanto", "estonian", "irish", "lithuanian", "nepali", "serbian", "sesotho", "tamil", "yiddish",
)  # fmt: skip
LANGUAGES = tuple(sorted((*_IN_BM25S, *OURS, *_WITHOUT_STOP_WORDS)))  # as Snowball and Elasticsearch name them

WITH_STOP_WORDS = tuple(sorted((*_IN_BM25S, *OURS)))
_FOLDED = ("catalan", "french", "italian", "portuguese", "spanish")  # stems lose accents, as by Lucene's light stemmers
_ARABIC_PREFIXES = ("ال", "وال", "بال", "كال", "فال", "لل", "و")
_ARABIC_SUFFIXES = ("ها", "ان", "ات", "ون", "ين", "يه", "ه", "ي")


@cache
def stop_words(language: str) -> frozenset[str]:
    """Returns the stop words of a language, in the form of `split_words`."""
    listed: Iterable[str] = OURS.get(language, "").split()
    if language in _IN_BM25S:
        from bm25s import stopwords

        listed = getattr(stopwords, "STOPWORDS_EN" if language == "english" else f"STOPWORDS_{language.upper()}")
    return frozenset(word for one in listed for word in split_words(one, turkish=language == "turkish"))


def open_stemmer(language: str) -> Callable[[str], str]:
    """Returns a function from a word to its stem."""
    if language == "arabic":
        return light_arabic
    import Stemmer

    stem: Callable[[str], str] = Stemmer.Stemmer(language).stemWord
    if language == "persian":  # which has its own yeh and kaf
        return lambda word: stem(word.replace("ي", "ی").replace("ك", "ک"))
    if language in _FOLDED:
        return lambda word: _without_accents(stem(word))
    return stem


def light_arabic(word: str) -> str:
    """Returns a word without the article, conjunctions before it, and endings of number, gender and person.

    The light stemmer of Larkey, Ballesteros and Connell (Light Stemming for Arabic Information Retrieval, 2007): one prefix,
    and each suffix once, in the order of the list, as long as two letters are left (three after a conjunction alone).
    """
    for prefix in _ARABIC_PREFIXES:
        if word.startswith(prefix) and len(word) >= max(4, len(prefix) + 2):
            word = word[len(prefix) :]
            break
    for suffix in _ARABIC_SUFFIXES:
        if word.endswith(suffix) and len(word) >= len(suffix) + 2:
            word = word[: -len(suffix)]
    return word


def _without_accents(word: str) -> str:
    if word.isascii():
        return word
    return "".join(char for char in unicodedata.normalize("NFD", word) if not unicodedata.combining(char))


Analyzer = Callable[[str], list[str]]
NAMES = {name: name for name in (*LANGUAGES, "unicode")} | {"none": "unicode", "cjk": "unicode", "thai": "unicode"}
"""Name of an analyzer -> its canonical name."""
_CACHED_WORDS = 1_000_000  # of which the term is cached


def open_analyzer(name: str, *, documents: bool = False) -> Analyzer:
    """Returns a function from a query, or from one of `documents`, to its terms, in order, repetitions included."""
    name = NAMES[name]
    split: Analyzer = partial(split_words, every=documents, turkish=name == "turkish")
    if name == "unicode":
        return split
    stop, stem = stop_words(name), lru_cache(_CACHED_WORDS)(open_stemmer(name))
    return lambda text: [term for word in split(text) if word not in stop and (term := stem(word))]

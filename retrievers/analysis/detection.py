"""The language of a corpus, told by its stop words and scripts.

Deterministic and without a model. A language is told where it has a fair share of the words, more than any other, and is that
of most documents; a few letters tell it from neighbours that have no list here (Ukrainian and Bulgarian are not Russian). Of
short texts, such as names of products, nothing may be told.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from retrievers.analysis.words import split_words, unspaced_letters
from retrievers.analyzer import WITH_STOP_WORDS, stop_words

SAMPLE = 1000  # documents that are looked at, at most

_CHARS = 1000  # of each
_LEAST_DIFFERENT = 4  # stop words of a language in the sample
_LEAST_SHARE = 0.15  # of the words of a text that are its language's stop words; prose has 0.25 and more
_MARGIN = 1.05  # hits of a language to those of the next
_AGREE = 0.8  # hits in one document to those of its best language, for it to count as of this language
_MOST = 2 / 3  # of the documents
_LEAST_ASCII = 0.97  # of the letters, where English is taken although nothing tells so
# Frequent letters, and missing in neighbours without a list.
_OWN_LETTERS = {"czech": "ěř", "finnish": "y", "polish": "łęą", "russian": "ы"}
_LEAST_OWN = 0.003  # of the letters


class Told(NamedTuple):
    """An analyzer, and why."""

    analyzer: str
    why: str
    recognised: bool = False  # whether it is that of a language that the texts show, not only of their letters


def corpus_analyzer(texts: Iterable[str]) -> Told:
    """Returns the analyzer for the language of `SAMPLE` documents, or of all of fewer; the same sample gives the same."""
    stop = {language: stop_words(language) for language in WITH_STOP_WORDS}
    letters, unspaced, total, documents = Counter[str](), 0, 0, 0
    hits, of_documents, seen = Counter[str](), list[dict[str, int]](), set[str]()
    for whole in texts:
        text = whole[:_CHARS].lower()
        documents += 1
        letters.update(char for char in text if char.isalpha())
        unspaced += unspaced_letters(text)
        counts = Counter(split_words(text))
        here = {one: sum(counts[word] for word in counts.keys() & listed) for one, listed in stop.items()}
        total += counts.total()
        seen |= counts.keys()
        hits.update(here)
        if any(here.values()):
            of_documents.append(here)
    looked_at = f"{documents:,} document{'s' * (documents != 1)}"
    all_letters = max(1, letters.total())
    if unspaced * 2 > all_letters:
        return Told("unicode", f"most letters of {looked_at} are of scripts without spaces, or Hangul")
    able = [
        language
        for language in stop
        if language not in _OWN_LETTERS or sum(letters[c] for c in _OWN_LETTERS[language]) >= _LEAST_OWN * all_letters
    ]
    ranked = sorted(able, key=lambda language: -hits[language])
    best, second = ranked[0], ranked[1]
    ascii_letters = sum(count for char, count in letters.items() if char.isascii())
    few = hits[best] < _LEAST_SHARE * total or len(seen & stop[best]) < _LEAST_DIFFERENT
    if few or hits[best] < _MARGIN * hits[second]:
        if ascii_letters >= _LEAST_ASCII * letters.total():
            return Told("english", f"no language is recognised in {looked_at}, whose letters English has")
        return Told("unicode", f"no language is recognised in {looked_at}")
    agree = sum(here[best] >= _AGREE * max(here[language] for language in able) for here in of_documents)
    share = agree / len(of_documents)
    if share < _MOST:
        return Told("unicode", f"several languages: only {100 * share:.0f} % of {looked_at} look {best.capitalize()}")
    return Told(best, f"{100 * share:.0f} % of {looked_at} look {best.capitalize()}", True)


def other_language(analyzer: str, texts: Iterable[str]) -> str | None:
    """Returns in words that a sample of documents is plainly of another language than an analyzer's; None: it is not known."""
    if analyzer not in WITH_STOP_WORDS:
        return None
    told = corpus_analyzer(texts)
    return f"analyzer {analyzer}, but {told.why}" if told.recognised and told.analyzer != analyzer else None

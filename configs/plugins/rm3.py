"""RM3: the words of a query, and those of the first documents that it finds, with weights.

Lavrenko and Croft, Relevance-Based Language Models (SIGIR 2001), estimate how likely a word is in a relevant document from the
documents that a query finds first. Abdul-Jaleel et al., UMass at TREC 2004: Novelty and HARD, mix that with the query's own
words, which is called RM3.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, Any, ClassVar

from pydantic import Field

from rewriters.python.given import FirstLists, Reads
from rewriters.python.strategy import PythonStrategy
from rewriters.python.words import weighted_words
from rewriters.query import Query

_SAY_LITTLE = (
    "a about after all also an and any are as at be because been but by can could did do does for from had has have he her his "
    "how i if in into is it its just may me more most my no not of on one only or other our out over she should so some such "
    "than that the their them then there these they this those to too up us was we were what when where which who why will "
    "with would you your"
)
STOP = frozenset(_SAY_LITTLE.split())


class Rm3(PythonStrategy):
    """The original's words and the commonest of the first documents', by pseudo-relevance feedback."""

    fields: ClassVar[dict[str, Any]] = {"label": "RM3", "max_chars": 4000}
    terms: Annotated[int, Field(ge=1)] = 10
    """Words of the documents."""
    documents: Annotated[int, Field(ge=1)] = 10
    """That they are taken from."""
    original: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of the query's own words in the weights."""
    by: str | None = None
    """The retriever whose list is read; null: the first."""

    @property
    def reads(self) -> Reads:
        """The first documents of one list, with their texts."""
        return Reads(documents=self.documents, by=() if self.by is None else (self.by,))

    def rewrite(self, query: Query, lists: FirstLists | None = None) -> list[str]:
        """Returns one text, in which each word stands as often as its weight says."""
        (hits,) = (lists or {}).values()
        own = Counter(words(query.text))
        feedback = relevance_model([(one.score, words(one.text or "")) for one in hits], self.terms)
        if not own and not feedback:
            return []
        share = 1.0 if not feedback else self.original if own else 0.0
        weights = {word: share * count / own.total() for word, count in own.items()}
        for word, weight in feedback.items():
            weights[word] = weights.get(word, 0.0) + (1 - share) * weight
        return [weighted_words(weights)]


def words(text: str) -> list[str]:
    """Returns the words of a text, without those that say little."""
    return [word for word in re.findall(r"\w\w+", text.casefold()) if word not in STOP]


def relevance_model(found: list[tuple[float, list[str]]], terms: int) -> dict[str, float]:
    """Returns the likeliest words of the documents with their weights, whose sum is 1.

    A document counts by its score in place of its likelihood, which a search engine does not tell.
    """
    likely = dict[str, float]()
    for score, of_document in found:
        for word, count in Counter(of_document).items():
            likely[word] = likely.get(word, 0.0) + max(0.0, score) * count / len(of_document)
    best = dict(sorted(likely.items(), key=lambda one: (-one[1], one[0]))[:terms])
    whole = sum(best.values())
    return {word: weight / whole for word, weight in best.items()} if whole else {}

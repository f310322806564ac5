"""Pre-retrieval predictors of query performance: how well a text will do against an index, from document frequencies.

Of Hauff, Hiemstra and de Jong 2008, those that need nothing else: the mean and the highest idf, ln(documents / documents with
the term), of the text's distinct terms. Terms that no document has are left out; a text without any other is predicted the
least of all. SCQ needs collection frequencies and VAR term frequencies, which a local index does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from retrievers.hybrid.retriever import Hybrid
from retrievers.kinds import RetrieverSettings
from retrievers.retriever import JoinedText, Retriever, SearchText

PREDICTORS_VERSION = 1
"""Raised when a predictor gives other values for the same text and index."""
PREDICTORS: dict[str, Callable[[np.ndarray], Any]] = {"avg_idf": np.mean, "max_idf": np.max}


@runtime_checkable
class TermStatistics(Protocol):
    """A retriever that knows in how many documents the terms of a text stand."""

    @property
    def documents(self) -> int:
        """Returns the number of documents."""
        ...

    def document_frequencies(self, text: SearchText | JoinedText) -> np.ndarray:
        """Returns how many documents have each of the text's distinct known terms, shape (terms,), int64."""
        ...


def predicted(texts: Sequence[SearchText | JoinedText], predictor: str, statistics: TermStatistics) -> np.ndarray:
    """Returns the predicted performance of each text, shape (texts,), to 6 decimals; -inf without a known term.

    The predictor is a key of `PREDICTORS`; filters of the texts do not matter.
    """
    values = np.full(len(texts), -np.inf)
    for place, text in enumerate(texts):
        frequencies = statistics.document_frequencies(text)
        if len(frequencies):
            values[place] = PREDICTORS[predictor](np.log(statistics.documents / frequencies))
    return values.round(6)


def lexical_retriever(retrievers: Mapping[str, RetrieverSettings]) -> str | None:
    """Returns the name of the first retriever that searches a local index by BM25, alone or in a hybrid; None: none does."""
    for name, settings in retrievers.items():
        if any(one.is_lexical for one in settings.indexed(name).values()):
            return name
    return None


def statistics_of(opened: Retriever) -> TermStatistics:
    """Returns the term statistics of a retriever that `lexical_retriever` names."""
    parts = opened.parts if isinstance(opened, Hybrid) else [opened]
    return next(part for part in parts if isinstance(part, TermStatistics))

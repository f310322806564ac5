"""The texts of one query searched as one: one BM25 query, or one vector.

The original is repeated so that long rewrites do not drown it: max(1, words of the rewrites // (5 x its own words)) times.
After MuGI (Zhang et al. 2024, "Exploring the Best Practices of Query Expansion with Large Language Models").
"""

from collections.abc import Callable, Sequence

import numpy as np

from retrievers.analysis.words import split_words
from retrievers.retriever import JoinedText, Search, SearchText

JOINED_VERSION = 2
"""Of what is joined where a strategy has `as_one: with_original`; in the fingerprint of a run with `together` that has one.
In version 1 its original was left out where the original's own list had weight 0."""
_REWRITES_TO_ORIGINAL = 5  # words of the rewrites for each word of an original


def repetitions(text: JoinedText) -> int:
    """Returns the number of times that the original stands in the joined text."""
    if text.original is None:
        return 0
    own = max(1, len(split_words(text.original.text)))
    return max(1, sum(len(split_words(rewrite.text)) for rewrite in text.rewrites) // (_REWRITES_TO_ORIGINAL * own))


def joined_text(text: Search) -> str:
    """Returns the text of a BM25 query: the original, repeated, then the rewrites, separated by spaces."""
    if isinstance(text, SearchText):
        return text.text
    originals = [] if text.original is None else [text.original.text] * repetitions(text)
    return " ".join([*originals, *(rewrite.text for rewrite in text.rewrites)])


def search_vectors(texts: Sequence[Search], encode: Callable[[Sequence[SearchText]], np.ndarray]) -> np.ndarray:
    """Returns the vector of each search, shape (n, dim), float32: the text's own, or the mean of the joined texts' vectors.

    A mean is scaled to length 1, as the vectors that it is made of. Vectors that cancel out have none: that of the first text
    is taken. `encode` encodes each text as what it is, query or passage.
    """
    parts = [(text,) if isinstance(text, SearchText) else text.texts for text in texts]
    vectors = encode([part for of_text in parts for part in of_text])
    begins = np.cumsum([0, *(len(of_text) for of_text in parts)])[:-1]
    means: np.ndarray = vectors[begins]
    for number, of_text in enumerate(parts):
        if len(of_text) > 1:
            mean = vectors[begins[number] : begins[number] + len(of_text)].astype(np.float64).mean(axis=0)
            length = np.linalg.norm(mean)
            if length > 1e-6:
                means[number] = mean / length
    return means

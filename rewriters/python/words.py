"""Weighted words as a text: searched by BM25, a word counts as often as it stands there."""

from __future__ import annotations

from collections.abc import Mapping

WORDS = 100
"""Of a text. A weight of all words together is so rounded to hundredths, and a word below half of one is left out."""


def weighted_words(weights: Mapping[str, float], words: int = WORDS) -> str:
    """Returns a text in which each word stands as often as its share of all weights says, the heaviest first.

    BM25 of local indexes and of Elasticsearch counts a repeated word as often as it is repeated, so that this is a search with
    weights, up to rounding. An encoder reads it as it stands: route such texts to BM25 (`retrieve.routes`).

    Args:
        weights: Word -> weight, of which none is below 0.
        words: Of the text, about.

    Raises:
        ValueError: A weight is below 0, or none is above.
    """
    whole = sum(weights.values())
    if whole <= 0 or min(weights.values()) < 0:
        raise ValueError("weights of words should be 0 or more, and one of them above 0")
    heaviest = sorted(weights, key=lambda word: (-weights[word], word))
    return " ".join(word for word in heaviest for _ in range(round(words * weights[word] / whole)))

"""The cosines between the texts of each query."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jobs.chain.search_texts import Text
from retrievers.ranking import offsets_of
from retrievers.redundancy import Similarity


def similarity(rows: int, texts: Sequence[Text], vectors: np.ndarray | None) -> Similarity:
    """Returns the cosines between the texts of each row, rounded to 6 decimals: the seventh depends on the batch."""
    if vectors is None:
        return Similarity(np.zeros(rows + 1, dtype=np.int64), np.zeros(0, dtype=np.float32))
    counts = np.bincount([text.row for text in texts], minlength=rows)
    squares = [part @ part.T for part in np.split(vectors, np.cumsum(counts)[:-1])]
    flat = np.concatenate([square.ravel() for square in squares]).round(6).astype(np.float32)
    return Similarity(offsets_of(counts**2), flat)

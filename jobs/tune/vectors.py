"""Cosines between the texts of judged queries, computed again: a run stores no vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from cluster.errors import RetrieverError
from jobs.chain.search_texts import Text
from jobs.chain.stages import cosines
from jobs.runs.folder import RunFolder
from retrievers.encoder import encoder_differences, encoder_identity, open_encoder
from retrievers.joined import search_vectors
from retrievers.redundancy import Similarity
from retrievers.retriever import SearchText


class TextVectors(Protocol):
    """Encodes texts as the run did."""

    def encode(self, texts: Sequence[SearchText]) -> np.ndarray:
        """Returns one vector of length 1 per text, shape (n, dim), float32."""
        ...


def open_vectors(run: RunFolder) -> tuple[TextVectors | None, str | None]:
    """Returns the encoder of the run's first dense retriever, or None and why there is none.

    The index is not opened: vectors of texts need the weights alone.
    """
    name = run.config.dense_retriever
    settings = None if name is None else run.config.retrieve.retrievers[name].encoder
    if name is None or settings is None:
        return None, "no retriever is dense"
    indexes: Mapping[str, Any] = run.record.get("identity", {}).get("indexes", {})
    stored = indexes.get(name, {}).get("encoder")
    try:
        differences = encoder_differences(stored, encoder_identity(settings)) if stored else ""
        if differences:
            return None, f"the encoder of {name} is not the run's any more ({differences})"
        return open_encoder(settings), None
    except RetrieverError as error:
        return None, f"the encoder of {name} cannot be opened ({error})"


def similarity(vectors: TextVectors, texts: Sequence[Sequence[Text]]) -> Similarity:
    """Returns the cosines between the texts of each query, as those of the run."""
    flat = [text for of_query in texts for text in of_query]
    return cosines.similarity(len(texts), flat, search_vectors([text.search for text in flat], vectors.encode))

"""A dense encoder at a server with OpenAI's Embeddings (`POST /v1/embeddings`)."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from retrievers.ranking import distinct
from retrievers.retriever import SearchText
from retrievers.served.client import PROBE, ModelServer, in_order
from retrievers.settings import OpenaiEncoderSettings


class OpenaiEncoder:
    """An encoder at a server; its vectors are normalised here, as those of `retrievers.encoder.Encoder`.

    Cost: a request for each `batch` distinct texts, `max_in_flight` of them at a time.
    """

    def __init__(self, settings: OpenaiEncoderSettings, *, patient: bool = False) -> None:
        """Asks the server for the model, and for one vector; waits for it where `patient`, as `ModelServer`."""
        self.settings = settings
        self._server = server = ModelServer("encoder", settings, "embedding", patient=patient)
        self._facts = facts = server.facts
        self._body: dict[str, Any] = {"model": settings.model, "encoding_format": "float"}
        if settings.dimensions is not None:
            self._body["dimensions"] = settings.dimensions
        if facts.api == "vllm":
            self._body["truncate_prompt_tokens"] = -1  # otherwise it refuses texts that are too long for the model
        self._prefix = {"query": settings.query_prefix, "passage": settings.passage_prefix}
        self._url = f"{server.base}/embeddings"
        body = self._body | {"input": [PROBE]}
        (probe,) = server.probe(self._url, body, lambda found: _vectors(found, 1, None), "vectors", "embeds")
        self.dim = len(probe)
        if settings.dimensions not in (None, self.dim):
            problem = f"its vectors have {self.dim} dimensions, not {settings.dimensions}"
            raise server.error("model", f"{problem}; remove dimensions, or name another model")

    def identity(self) -> dict[str, Any]:
        """Returns the identity of the vectors, as far as the server says it, as JSON values.

        It is never that of weights on this machine: which are the server's, and how it pools, cannot be checked from here.
        """
        settings = self.settings
        length = {} if self._facts.max_length is None else {"max_length": self._facts.max_length}
        prefixes = {"query_prefix": settings.query_prefix, "passage_prefix": settings.passage_prefix}
        return {"kind": "openai", "model": settings.model, "dim": self.dim, **self._facts.identity, **length, **prefixes}

    def encode(self, texts: Sequence[SearchText]) -> np.ndarray:
        """Returns one vector of length 1 per text, shape (n, dim), float32; equal texts of one kind are encoded once.

        A blank passage has none, since many servers refuse it: its vector is 0. Raises TextRefused, or RetrieverError.
        """
        vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        rows = [row for row, text in enumerate(texts) if text.kind == "query" or text.text.strip()]
        unique, inverse = distinct([texts[row] for row in rows])
        if rows:
            encoded: list[np.ndarray] = self._server.answers([unique], self._send)
            vectors[rows] = np.stack(encoded)[inverse]
        return vectors

    def _send(self, texts: Sequence[SearchText], stop: threading.Event) -> list[np.ndarray]:
        texts_sent = [self._prefix[text.kind] + text.text or " " for text in texts]  # TEI refuses an empty text
        body = self._body | {"input": texts_sent}
        return list(self._server.ask(self._url, body, lambda answer: _vectors(answer, len(texts), self.dim), stop=stop))


def _vectors(answer: Any, count: int, dim: int | None) -> np.ndarray:
    """Returns the vectors of an answer in the order of its request, scaled to length 1; raises ValueError if it is invalid."""
    listed = in_order(answer.get("data") if isinstance(answer, dict) else None, count, "embeddings")
    try:
        vectors = np.array([one.get("embedding") for one in listed], dtype=np.float32)
    except (TypeError, ValueError):
        raise ValueError("an embedding is no list of numbers, or they differ in length") from None
    if vectors.ndim != 2 or vectors.shape[1] != (dim or vectors.shape[1]):
        raise ValueError(f"its embeddings have shape {vectors.shape[1:]}, where {dim} dimensions were before")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and (lengths > 0).all()):
        raise ValueError("an embedding is not finite, or zero")
    return vectors / lengths

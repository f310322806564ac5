"""Rerankers: relevance scores of (original query, document) pairs; retrievers/order.py sorts by them."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from cluster.errors import RetrieverError
from cluster.plugins import own_errors
from retrievers.encoder import TextEncoder, encoder_identity, open_encoder
from retrievers.ranking import distinct
from retrievers.rerankers import cross_encoder
from retrievers.rerankers.cross_encoder import LlmReranker
from retrievers.rerankers.qwen3 import TEMPLATE_VERSION, Qwen3Reranker
from retrievers.rerankers.settings import RerankerSettings
from retrievers.retriever import SearchText, error_context
from retrievers.served.reranker import ServerReranker
from retrievers.settings import AnyEncoderSettings, RerankSettings


@runtime_checkable
class Reranker(Protocol):
    """Scores pairs of query and passage; higher is more relevant. Opened in the worker that uses it."""

    def score(self, queries: Sequence[str], passages: Sequence[str]) -> np.ndarray:
        """Returns one score per pair, shape (n,), float64."""


def open_reranker(settings: RerankerSettings, device: str = "cpu") -> Reranker | None:
    """Returns the reranker of the config's `rerank` on a device, "cpu" or "cuda:0"; None for `kind: none`.

    A `cross_encoder` is an encoder with one logit or, by its files, an LLM with its template. A server is waited for.
    """
    if not isinstance(settings, RerankSettings):
        return OfPlugin(settings, device)
    if settings.kind == "none":
        return None
    if settings.kind == "server":
        _refuse_keys(settings)
        return ServerReranker(settings, patient=True)
    if settings.kind == "bi_encoder":
        return BiEncoder(open_encoder(_bi_encoder(settings), device, patient=True))
    loaded = {"encoder": cross_encoder.CrossEncoder, "llm": LlmReranker, "qwen3": Qwen3Reranker}
    return loaded[cross_encoder.checked_architecture(settings)](settings, device)


def reranker_identity(settings: RerankerSettings) -> dict[str, Any]:
    """Returns the identity of the scores, as JSON values; loads no model. `dtype: auto` is that of a CPU."""
    if not isinstance(settings, RerankSettings):
        with own_errors(type(settings), f"{type(settings).__name__}.check failed", RetrieverError, "rerank"):
            settings.check()
        return settings.known_by()
    if settings.kind == "none":
        return {"kind": "none"}
    if settings.kind == "server":
        _refuse_keys(settings)
        return ServerReranker(settings).identity()
    if settings.kind == "bi_encoder":
        with error_context("rerank.encoder"):
            return {"kind": "bi_encoder", "encoder": encoder_identity(_bi_encoder(settings))}
    qwen3 = cross_encoder.checked_architecture(settings) == "qwen3"
    template = {"architecture": "qwen3", "template": TEMPLATE_VERSION} if qwen3 else {}
    return cross_encoder.cross_encoder_identity(settings) | template


def _bi_encoder(settings: RerankSettings) -> AnyEncoderSettings:
    _refuse_keys(settings)
    assert settings.encoder is not None, "a config without one is refused"
    return settings.encoder


def _refuse_keys(settings: RerankSettings) -> None:
    for key in cross_encoder.non_default_settings(settings):
        problem = f"rerank.{key} is a key of a cross-encoder, and kind is {settings.kind}; remove it"
        instead = ", or set it in encoder" if settings.kind == "bi_encoder" else ""
        raise RetrieverError("config-value", f"{problem}{instead}")


class OfPlugin:
    """The reranker of a plug-in; its scores are checked, and equal pairs are scored once per call."""

    def __init__(self, settings: RerankerSettings, device: str = "cpu") -> None:
        with own_errors(type(settings), f"{type(settings).__name__}.open failed", RetrieverError, "rerank"):
            self._settings, self._opened = settings, settings.open(device)

    def score(self, queries: Sequence[str], passages: Sequence[str]) -> np.ndarray:
        unique, inverse = distinct(list(zip(queries, passages, strict=True)))
        if not unique:
            return np.empty(0)
        scores = np.asarray(self._opened.score([one for one, _ in unique], [one for _, one in unique]), dtype=np.float64)
        whole = scores.shape == (len(unique),)
        if not whole or not np.isfinite(scores).all():
            what = "a score that is no finite number" if whole else f"scores of the shape {scores.shape}"
            raise ValueError(f"{type(self._settings).__name__}.score gives {what} for {len(unique)} pairs")
        return scores[inverse]


class BiEncoder:
    """A reranker by the cosine of the vectors of query and passage; equal texts are encoded once per call."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder

    def score(self, queries: Sequence[str], passages: Sequence[str]) -> np.ndarray:
        pairs = list(zip(queries, passages, strict=True))
        left = self._encoder.encode([SearchText(query, "query") for query, _ in pairs])
        right = self._encoder.encode([SearchText(passage, "passage") for _, passage in pairs])
        return cross_encoder.rounded_scores(np.einsum("nd,nd->n", left, right).astype(np.float64))

"""Rerankers: relevance scores of (original query, document) pairs; retrievers/order.py sorts by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

import numpy as np

from cluster.errors import RetrieverError
from cluster.plugins import own_errors
from retrievers.encoder import encoder_identity, open_encoder
from retrievers.rerankers.cross_encoder import (
    CrossEncoder,
    checked_architecture,
    cross_encoder_identity,
    non_default_settings,
    rounded_scores,
)
from retrievers.rerankers.llm import LlmReranker
from retrievers.rerankers.qwen3 import Qwen3Reranker, qwen3_identity
from retrievers.rerankers.settings import RerankerSettings
from retrievers.retriever import SearchText, distinct, error_context
from retrievers.served.reranker import ServerReranker
from retrievers.settings import AnyEncoderSettings, RerankSettings


@runtime_checkable
class Reranker(Protocol):
    """Scores pairs of query and passage; higher is more relevant. Opened in the worker that uses it."""

    def score(self, queries: Sequence[str], passages: Sequence[str]) -> np.ndarray:
        """Returns one score per pair, shape (n,), float64."""
        ...

    def identity(self) -> dict[str, Any]:
        """Returns all that determines the scores, as JSON values."""
        ...


def open_reranker(settings: RerankerSettings, device: str = "cpu") -> Reranker | None:
    """Returns the reranker of the config's `rerank` on a device, "cpu" or "cuda:0"; None for `kind: none`.

    `cross_encoder` is an encoder with one logit or, by its files, an LLM with its template; `bi_encoder` scores by the
    cosine of query and passage; `server` asks a server, and waits for it if it is away.

    Raises:
        RetrieverError: There is no such model, it is no reranker, a setting belongs to another architecture, or the device
            does not exist; its server refuses the key or has no such model, or stays away.
    """
    if not isinstance(settings, RerankSettings):
        return OfPlugin(settings, device)
    if settings.kind == "none":
        return None
    if settings.kind == "server":
        _refuse_keys(settings)
        return ServerReranker(settings, patient=True)
    if settings.kind == "bi_encoder":
        return BiEncoder(_bi_encoder(settings), device)
    loaded = {"encoder": CrossEncoder, "llm": LlmReranker, "qwen3": Qwen3Reranker}
    return loaded[checked_architecture(settings)](settings, device)


def reranker_identity(settings: RerankerSettings, device: str = "cpu") -> dict[str, Any]:
    """Returns the `Reranker.identity` without loading the model; the device determines the precision for `dtype: auto`.

    Raises:
        RetrieverError: There is no such model, it is no reranker, or a setting belongs to another architecture.
    """
    if not isinstance(settings, RerankSettings):
        with _own_errors(settings, "check"):
            settings.check()
        return settings.known_by()
    if settings.kind == "none":
        return {"kind": "none"}
    if settings.kind == "server":
        _refuse_keys(settings)
        return ServerReranker(settings).identity()
    if settings.kind == "bi_encoder":
        return _bi_identity(_bi_encoder(settings), device)
    architecture = checked_architecture(settings)
    return qwen3_identity(settings, device) if architecture == "qwen3" else cross_encoder_identity(settings, device)


def _bi_encoder(settings: RerankSettings) -> AnyEncoderSettings:
    _refuse_keys(settings)
    assert settings.encoder is not None, "a config without one is refused"
    return settings.encoder


def _refuse_keys(settings: RerankSettings) -> None:
    """Refuses keys of weights that are loaded here."""
    for key in non_default_settings(settings):
        instead = ", or set it in encoder" if settings.kind == "bi_encoder" else ""
        raise RetrieverError(
            "config-value", f"rerank.{key} is a key of a cross-encoder, and kind is {settings.kind}; remove it{instead}"
        )


def _bi_identity(settings: AnyEncoderSettings, device: str) -> dict[str, Any]:
    with error_context("rerank.encoder"):
        return {"kind": "bi_encoder", "encoder": encoder_identity(settings, device)}


def _own_errors(settings: RerankerSettings, method: str) -> AbstractContextManager[None]:
    """Says in one line what a method of a plug-in raises."""
    return own_errors(type(settings), f"{type(settings).__name__}.{method} failed", RetrieverError, "rerank")


class OfPlugin:
    """The reranker of a plug-in; what it gives is checked, and equal pairs are scored once per call."""

    def __init__(self, settings: RerankerSettings, device: str = "cpu") -> None:
        """Has the plug-in load what it needs."""
        with _own_errors(settings, "open"):
            self._settings, self._opened = settings, settings.open(device)

    def identity(self) -> dict[str, Any]:
        """Returns the code by content, and the settings that decide scores."""
        return self._settings.known_by()

    def requests(self, queries: Iterable[str]) -> Counter[str]:
        """Returns no requests: none is counted."""
        return Counter()

    def score(self, queries: Sequence[str], passages: Sequence[str]) -> np.ndarray:
        """Returns the score of each pair, shape (n,), rounded where the plug-in rounds.

        Raises:
            ValueError: The numbers of queries and passages differ, or the scores are not one finite number for each pair.
        """
        unique, inverse = distinct(list(zip(queries, passages, strict=True)))
        if not unique:
            return np.empty(0)
        scores = np.asarray(self._opened.score([one for one, _ in unique], [one for _, one in unique]), dtype=np.float64)
        if scores.shape != (len(unique),) or not np.isfinite(scores).all():
            what = (
                f"scores of the shape {scores.shape}" if scores.shape != (len(unique),) else "a score that is no finite number"
            )
            raise ValueError(f"{type(self._settings).__name__}.score gives {what} for {len(unique)} pairs")
        found: np.ndarray = scores[inverse]
        return found


class BiEncoder:
    """A reranker by the cosine of the vectors of query and passage; equal texts are encoded once per call."""

    def __init__(self, settings: AnyEncoderSettings, device: str = "cpu") -> None:
        """Loads the encoder, with the errors of `open_encoder`."""
        self._settings, self._device = settings, device
        self._encoder = open_encoder(settings, device, patient=True)

    def identity(self) -> dict[str, Any]:
        """Returns the identity of the encoder."""
        return _bi_identity(self._settings, self._device)

    def score(self, queries: Sequence[str], passages: Sequence[str]) -> np.ndarray:
        """Returns the rounded cosine of each pair, shape (n,).

        Raises:
            ValueError: The numbers of queries and passages differ.
        """
        if len(queries) != len(passages):
            raise ValueError(f"{len(queries)} queries, {len(passages)} passages")
        left = self._encoder.encode([SearchText(query, "query") for query in queries])
        right = self._encoder.encode([SearchText(passage, "passage") for passage in passages])
        return rounded_scores(np.einsum("nd,nd->n", left, right).astype(np.float64))

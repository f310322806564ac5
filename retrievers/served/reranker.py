"""A cross-encoder at a server: `POST /rerank` of text-embeddings-inference, or Jina's form of it as vLLM and others have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from retrievers.rerankers.cross_encoder import rounded_scores
from retrievers.served.client import ModelServer, in_order
from retrievers.served.facts import served_facts
from retrievers.served.pairs import PairsAtServer
from retrievers.settings import RerankSettings


class ServerReranker(PairsAtServer):
    """A cross-encoder at a server."""

    def __init__(self, settings: RerankSettings, *, patient: bool = False) -> None:
        """Asks the server for the model, and for one score.

        Where `patient`, the run's plan has reached the server: it is waited for.

        Raises:
            RetrieverError: The server is away or refuses the key; it does not have the model, or the model gives no scores.
        """
        self._settings = settings
        server = ModelServer("rerank: model", settings, patient=patient)
        self._facts = facts = served_facts(server, "reranker")
        known = facts.max_length or settings.max_length
        self._max_length = known if facts.api == "tei" else min(settings.max_length, known)
        url = f"{server.root if facts.api == 'tei' else server.base}/rerank"
        super().__init__(server, url, min(settings.batch, facts.max_batch or settings.batch))
        self.probe()

    def identity(self) -> dict[str, Any]:
        """Returns the identity of the scores, as far as the server says it, as JSON values."""
        settings = self._settings
        instructions = {
            name: value
            for name in ("query_instruction", "passage_instruction")
            if (value := getattr(settings, name)) is not None
        }
        raw = {"raw_scores": self._facts.api != "openai"}
        length = {} if self._facts.api == "openai" else {"max_length": self._max_length}
        return {"kind": "server", "model": settings.model, **raw, **self._facts.identity, **length, **instructions}

    def body(self, query: str, passages: Sequence[str]) -> dict[str, Any]:
        """Returns the body of a request."""
        settings = self._settings
        query = (settings.query_instruction or "") + query or " "  # TEI refuses an empty text
        texts = [(settings.passage_instruction or "") + passage or " " for passage in passages]
        if self._facts.api == "tei":
            return {"query": query, "texts": texts, "raw_scores": True, "truncate": True}
        body: dict[str, Any] = {"model": settings.model, "query": query, "documents": texts}
        if self._facts.api == "vllm":  # logits, and cut as a cross-encoder here
            longest_query = self._max_length * 3 // 4
            body |= {
                "use_activation": False, "truncate_prompt_tokens": self._max_length, "max_tokens_per_query": longest_query,
            }  # fmt: skip
        return body

    def read(self, answer: Any, count: int) -> list[float]:
        """Returns the scores of an answer in the order of its request; raises ValueError if it is invalid."""
        return _scores(answer, count)

    def rounded(self, scores: np.ndarray) -> np.ndarray:
        """Returns probabilities or logits as they are compared."""
        return super().rounded(scores) if self._facts.api == "openai" else rounded_scores(scores)


def _scores(answer: Any, count: int) -> list[float]:
    """Returns the scores of an answer in the order of its request; raises ValueError if it is invalid."""
    listed = in_order(answer.get("results") if isinstance(answer, dict) else answer, count, "scores")
    scores: list[Any] = [one.get("relevance_score", one.get("score")) for one in listed]
    if not all(isinstance(score, int | float) and math.isfinite(score) for score in scores):
        raise ValueError("a score is no finite number")
    return [float(score) for score in scores]

"""A cross-encoder at a server: `POST /rerank` of text-embeddings-inference, or Jina's form of it as vLLM and others have."""

import math
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from retrievers.ranking import distinct
from retrievers.rerankers.cross_encoder import rounded_scores
from retrievers.served.client import PROBE, ModelServer, in_order
from retrievers.settings import RerankSettings

_DECIMALS = 6  # of probabilities: 4, as of logits, would tie all that is irrelevant
_Pair = tuple[str, str]


class ServerReranker:
    """A cross-encoder at a server. Cost: one request for each query and `batch` of its passages."""

    def __init__(self, settings: RerankSettings, *, patient: bool = False) -> None:
        """Asks the server for the model, and for one score; waits for it where `patient`, as `ModelServer`."""
        self._settings = settings
        self._server = server = ModelServer("rerank: model", settings, "reranker", patient=patient)
        self._facts = facts = server.facts
        known = facts.max_length or settings.max_length
        self._max_length = known if facts.api == "tei" else min(settings.max_length, known)
        self._url = f"{server.root if facts.api == 'tei' else server.base}/rerank"
        self._sent: Counter[str] = Counter()
        self._lock = threading.Lock()
        server.probe(self._url, self._body(PROBE, [PROBE]), lambda found: _scores(found, 1), "scores", "reranks")

    def identity(self) -> dict[str, Any]:
        settings = self._settings
        raw = {"raw_scores": self._facts.api != "openai"}
        length = {} if self._facts.api == "openai" else {"max_length": self._max_length}
        return {"kind": "server", "model": settings.model, **raw, **self._facts.identity, **length}

    def score(self, queries: Sequence[str], passages: Sequence[str]) -> np.ndarray:
        unique, inverse = distinct(list(zip(queries, passages, strict=True)))
        of_query: dict[str, list[_Pair]] = {}
        for pair in unique:
            of_query.setdefault(pair[0], []).append(pair)
        results = self._server.answers([*of_query.values()], self._send)
        known = dict(zip(chain.from_iterable(of_query.values()), results, strict=True))
        scores = np.array([known[pair] for pair in unique])[inverse]
        return np.round(scores, _DECIMALS) if self._facts.api == "openai" else rounded_scores(scores)

    def requests(self, queries: Iterable[str]) -> Counter[str]:
        """Returns the requests that were sent for each of these queries since it was last asked for."""
        with self._lock:
            return Counter({query: self._sent.pop(query) for query in set(queries) & self._sent.keys()})

    def _send(self, pairs: Sequence[_Pair], stop: threading.Event) -> list[float]:
        query = pairs[0][0]
        body = self._body(query, [passage for _, passage in pairs])

        def count() -> None:
            with self._lock:
                self._sent[query] += 1

        return self._server.ask(self._url, body, lambda answer: _scores(answer, len(pairs)), stop=stop, sending=count)

    def _body(self, query: str, passages: Sequence[str]) -> dict[str, Any]:
        settings = self._settings
        query, texts = query or " ", [passage or " " for passage in passages]  # TEI refuses an empty text
        if self._facts.api == "tei":
            return {"query": query, "texts": texts, "raw_scores": True, "truncate": True}
        body: dict[str, Any] = {"model": settings.model, "query": query, "documents": texts}
        if self._facts.api == "vllm":  # logits, and cut as a cross-encoder here
            body |= {"use_activation": False, "truncate_prompt_tokens": self._max_length}
            body["max_tokens_per_query"] = self._max_length * 3 // 4
        return body


def _scores(answer: Any, count: int) -> list[float]:
    """Returns the scores of an answer in the order of its request; raises ValueError if it is invalid."""
    listed = in_order(answer.get("results") if isinstance(answer, dict) else answer, count, "scores")
    scores: list[Any] = [one.get("relevance_score", one.get("score")) for one in listed]
    if not all(isinstance(score, int | float) and math.isfinite(score) for score in scores):
        raise ValueError("a score is no finite number")
    return [float(score) for score in scores]

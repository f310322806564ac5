"""Scores of pairs by a server, whatever the form of its requests: batches, retries, equal pairs, and what was sent."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from retrievers.retriever import distinct
from retrievers.served.client import PROBE, ModelServer

_DECIMALS = 6  # of probabilities: 4, as of logits, would tie all that is irrelevant
_Pair = tuple[str, str]


class PairsAtServer(ABC):
    """A reranker at a server. Cost: one request for each query and `batch` of its passages."""

    def __init__(self, server: ModelServer, url: str, batch: int) -> None:
        """Sends nothing.

        Args:
            server: That scores.
            url: To which requests are posted.
            batch: Passages of a request, at most.
        """
        self._server, self._url, self._batch = server, url, batch
        self._sent: Counter[str] = Counter()
        self._lock = threading.Lock()

    @abstractmethod
    def body(self, query: str, passages: Sequence[str]) -> Any:
        """Returns the body of a request."""

    @abstractmethod
    def read(self, answer: Any, count: int) -> list[float]:
        """Returns the scores of an answer in the order of its request; raises ValueError if it is invalid."""

    def rounded(self, scores: np.ndarray) -> np.ndarray:
        """Returns scores as they are compared."""
        found: np.ndarray = np.round(scores, _DECIMALS)
        return found

    def probe(self) -> None:
        """Asks for one score.

        Raises:
            RetrieverError: The server is away or refuses the key, or gives no scores.
        """
        self._server.probe(self._url, self.body(PROBE, [PROBE]), lambda found: self.read(found, 1), "scores", "reranks")

    def score(self, queries: Sequence[str], passages: Sequence[str]) -> np.ndarray:
        """Returns the rounded score of each pair, shape (n,); equal pairs are scored once.

        Raises:
            ValueError: The numbers of queries and passages differ.
            TextRefused: The server does not take one of the pairs.
            RetrieverError: The server gives no good answer for `patience_minutes`, or refuses the key.
        """
        unique, inverse = distinct(list(zip(queries, passages, strict=True)))
        if not unique:
            return np.empty(0)
        of_query: dict[str, list[_Pair]] = {}
        for pair in unique:
            of_query.setdefault(pair[0], []).append(pair)
        batches = [
            pairs[start : start + self._batch] for pairs in of_query.values() for start in range(0, len(pairs), self._batch)
        ]
        parts = self._server.answers(batches, self._send)
        found = {
            pair: score for batch, scores in zip(batches, parts, strict=True) for pair, score in zip(batch, scores, strict=True)
        }
        return self.rounded(np.array([found[pair] for pair in unique])[inverse])

    def requests(self, queries: Iterable[str]) -> Counter[str]:
        """Returns the requests that were sent for each of these queries since it was last asked for."""
        with self._lock:
            return Counter({query: self._sent.pop(query) for query in set(queries) & self._sent.keys()})

    def _send(self, pairs: Sequence[_Pair], stop: threading.Event) -> list[float]:
        query = pairs[0][0]
        body = self.body(query, [passage for _, passage in pairs])
        return self._server.ask(
            self._url, body, lambda found: self.read(found, len(pairs)), stop=stop, sending=lambda: self._count(query)
        )

    def _count(self, query: str) -> None:
        with self._lock:
            self._sent[query] += 1

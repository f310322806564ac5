"""A reranker at a server with requests of a form of its own: what the author of a plug-in derives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from cluster.settings import NOT_IDENTITY
from retrievers.rerankers.settings import RerankerSettings
from retrievers.served.client import ModelServer
from retrievers.served.pairs import PairsAtServer
from retrievers.settings import Address, ServerSettings


class HostedReranker(RerankerSettings, ServerSettings):
    """A reranker over HTTP, with the batches, requests in flight, retries and patience of a `kind: server`.

    A class of yours says where requests are posted (`path`), what their bodies are, and where scores stand in an answer.
    """

    path: ClassVar[str] = "/rerank"
    """Behind `base_url`."""
    base_url: Annotated[Address, NOT_IDENTITY]
    """Of the server."""

    def body(self, query: str, passages: Sequence[str]) -> Any:
        """Returns the body of a request, as JSON values."""
        raise NotImplementedError(f"{type(self).__name__} has no method body")

    def scores(self, answer: Any) -> Sequence[float]:
        """Returns the scores in an answer, in the order of the request's passages."""
        raise NotImplementedError(f"{type(self).__name__} has no method scores")

    def check(self) -> None:
        """Asks for one score; a server that does not answer within seconds is refused."""
        HostedScores(self)

    def open(self, device: str) -> HostedScores:
        """Returns its client, after a first request; as a worker of a job, it waits for a server that is away."""
        return HostedScores(self, patient=True)


class HostedScores(PairsAtServer):
    """The client of a hosted reranker."""

    def __init__(self, settings: HostedReranker, *, patient: bool = False) -> None:
        """Asks for one score.

        Raises:
            RetrieverError: The server is away or refuses the key, or gives no scores.
        """
        self._settings = settings
        super().__init__(
            ModelServer("rerank: model", settings, patient=patient),
            f"{settings.base_url.rstrip('/')}{settings.path}",
            settings.batch,
        )
        self.probe()

    def identity(self) -> dict[str, Any]:
        """Returns what decides the scores."""
        return self._settings.known_by()

    def body(self, query: str, passages: Sequence[str]) -> Any:
        """Returns the body of a request."""
        return self._settings.body(query, passages)

    def read(self, answer: Any, count: int) -> list[float]:
        """Returns the scores of an answer; raises ValueError if they are not one for each passage."""
        try:
            found = list(self._settings.scores(answer))
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"it has another form: {type(error).__name__}: {error}") from error
        if len(found) != count:
            raise ValueError(f"it holds {len(found)} scores for {count} texts")
        if not all(isinstance(one, int | float) and math.isfinite(one) for one in found):
            raise ValueError("a score is no finite number")
        return [float(one) for one in found]

"""A reranker behind a web service whose requests have a form of their own.

The service is invented: it takes a question with numbered candidates, and answers how relevant each is, from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from retrievers.rerankers.hosted import HostedReranker


class Hosted(HostedReranker):
    """Asks the service; batches, retries and patience are those of any server."""

    path: ClassVar[str] = "/judgements"
    detail: Literal["fast", "thorough"] = "thorough"
    """How closely the service reads."""

    def body(self, query: str, passages: Sequence[str]) -> Any:
        """Returns a question with its candidates, numbered from 0."""
        candidates = [{"number": number, "content": passage} for number, passage in enumerate(passages)]
        return {"judge": self.model, "detail": self.detail, "question": query, "candidates": candidates}

    def scores(self, answer: Any) -> list[float]:
        """Returns the relevance of each candidate, in order of the numbers."""
        relevance = {one["number"]: one["relevance"] for one in answer["judged"]}
        return [relevance[number] for number in range(len(relevance))]

"""The documents of a retriever that has no texts: pages of the web, lists that another system made."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.errors import RetrieverError
from retrievers.retriever import Alive, no_heartbeat


class NoDocuments:
    """A store of no documents; implements `retrievers.retriever.DocumentStore`."""

    def __init__(self, where: str, why: str) -> None:
        """`where` is the place in the config, `why` says why there is none and what to do; for messages."""
        self._where, self._why = where, why

    def texts(self, doc_ids: Sequence[str], alive: Alive = no_heartbeat) -> list[str]:
        """Returns nothing; raises as `DocumentStore.texts`."""
        for doc_id in doc_ids:
            raise RetrieverError("index-other", f"{self._where}: no document {doc_id!r}: {self._why}")
        return []

    def places(self, doc_ids: Sequence[str]) -> list[str]:
        """Returns that none is known."""
        return [""] * len(doc_ids)

    def known(self, doc_ids: Sequence[str]) -> list[bool]:
        """Returns that none is known."""
        return [False] * len(doc_ids)

    def some(self, count: int) -> list[str]:
        """Returns no text."""
        return []

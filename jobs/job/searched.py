"""The indexes that retrievers search, by settings and identities alone: workers are given them, and open no index for that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from retrievers.hybrid.settings import indexed_identities
from retrievers.kinds import RetrieverSettings, all_indexed


class SearchedIndex(NamedTuple):
    """A retriever of a job with an index of its own, and the identity of the index."""

    name: str
    settings: RetrieverSettings
    identity: Mapping[str, Any]

    @property
    def place(self) -> str:
        """Returns the name of its index."""
        return self.settings.place(self.identity)


def searched_indexes(
    retrievers: Mapping[str, RetrieverSettings], indexes: Mapping[str, Mapping[str, Any]]
) -> tuple[SearchedIndex, ...]:
    """Returns the indexes that retrievers (name -> settings) search, with their identities (name -> identity)."""
    identities = indexed_identities(indexes)
    return tuple(SearchedIndex(name, one, identities[name]) for name, one in all_indexed(retrievers).items())

"""The indexes that retrievers search, by settings and identities alone: workers are given them, and open no index for that."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from retrievers.kinds import RetrieverSettings, indexed_identities


class SearchedIndex(NamedTuple):
    """A retriever of a job with an index of its own, and the identity of the index."""

    name: str
    settings: RetrieverSettings
    identity: Mapping[str, Any]
    member: str = ""  # the prefix of its documents' ids, in a union

    @property
    def location(self) -> str:
        return self.settings.location(self.identity)


def searched_indexes(
    retrievers: Mapping[str, RetrieverSettings], indexes: Mapping[str, Mapping[str, Any]]
) -> tuple[SearchedIndex, ...]:
    """Returns the indexes that retrievers (name -> settings) search, with their identities (name -> identity)."""
    identities = indexed_identities(indexes)
    return tuple(
        SearchedIndex(key, index, identities[key], settings.member(key))
        for name, settings in retrievers.items()
        for key, index in settings.indexed(name).items()
    )


def corpus_of(searched: Iterable[SearchedIndex]) -> Any:
    """Returns the identity of the documents of a retriever's indexes, of a union by member; None: it has none."""
    corpora = {member: index.identity.get("corpus") for member, index in text_sources(searched).items()}
    return corpora.get("") if corpora.keys() <= {""} else corpora


def text_sources(searched: Iterable[SearchedIndex]) -> dict[str, SearchedIndex]:
    """Returns the first index of each member of a union, which has its texts; of a retriever that is none "" -> its first."""
    sources: dict[str, SearchedIndex] = {}
    for index in searched:
        sources.setdefault(index.member, index)
    return sources

"""Engines, retrievers and rerankers that workers open: their settings, and the identity of the results of each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jobs.job.corpora import SearchedIndex, searched_indexes, text_sources
from retrievers.analyzer import ANALYZE_VERSION
from retrievers.elastic.settings import FOREIGN
from retrievers.join import JOINED_VERSION
from rewriters.settings import identity_fields

if TYPE_CHECKING:  # workers of most stages need no more than what they are given
    from retrievers.kinds import RetrieverSettings
    from retrievers.rerankers.settings import RerankerSettings
    from rewriters.engines.settings import EngineSettings

SCORES_VERSION = 3  # of what stored scores are known by; of 2, by the ids of documents


@dataclass(frozen=True)
class AnsweredBy:
    """An engine: resolved settings, and its identity, by which completions are known."""

    settings: EngineSettings
    identity: Mapping[str, Any]

    @cached_property
    def key(self) -> str:
        """Returns the key that tells it from other engines of a worker."""
        return digest([self.settings.model_dump(), self.space])

    @cached_property
    def space(self) -> str:
        """Returns the space of its completions."""
        return digest(self.identity)


@dataclass(frozen=True)
class OpenedBy:
    """A retriever as workers open it.

    Attributes:
        name: In the config, for messages.
        settings: Without `together` and `score_floor`, which a search has.
        identity: Of its index.
        depth: Hits that are fetched.
        states: Of its indexes that may change in place: their states now, by place.
    """

    name: str
    settings: RetrieverSettings
    identity: Mapping[str, Any]
    depth: int
    states: Mapping[str, Any] = field(default_factory=dict)

    @property
    def searched(self) -> tuple[SearchedIndex, ...]:
        """Returns the spaces of its texts, that of its documents first."""
        return searched_indexes({self.name: self.settings}, {self.name: self.identity})

    @property
    def of_pages(self) -> bool:
        """Returns True if its hits bring their texts, as those of the web do: there is neither an index nor a given list."""
        return not self.searched and not self.settings.originals_only

    @property
    def search_names(self) -> dict[str, str | None]:
        """Returns the names that its searches are counted under, each with the model of its encoder."""
        return self.settings.search_names(self.name)

    @property
    def space(self) -> str:
        """Returns the space of this retriever's lists.

        The identity has the analyzer by which the index was built. How often the original stands among texts that are searched
        as one (`retrievers/join.py`), and which texts are long for Elasticsearch, is by the words of this version.
        """
        if self.of_pages:  # what is asked of the provider
            return digest({"web": dict(self.identity)})
        known: dict[str, Any] = {"index": dict(self.identity), "settings": identity_fields(self.settings), "depth": self.depth}
        known["versions"] = [ANALYZE_VERSION, JOINED_VERSION]
        return digest(known | {"states": dict(self.states)} if self.states else known)

    @property
    def texts(self) -> str:
        """Returns the key that tells the texts of its documents from those of other indexes."""
        if not self.searched:  # pages of the web bring theirs with them
            return digest({"corpus": None})
        spaces = {member: self._texts_of(index) for member, index in text_sources(self.searched).items()}
        return spaces[""] if "" in spaces else digest(spaces)

    def _texts_of(self, index: SearchedIndex) -> str:
        corpus, settings = index.identity.get("corpus"), index.settings
        # read with the filter of the searches: what it leaves out, arms with another filter may find
        only = {"filter": index.identity["filter"]} if "filter" in index.identity else {}
        if not str(corpus).startswith(FOREIGN):
            return digest({"corpus": corpus} | only)
        known = {"corpus": corpus, "field": settings.searched_field} | only  # which field is the text depends on the retriever
        return digest(known | {"dense": settings.encoder is not None, "state": self.states.get(index.location)})

    @property
    def encoder_space(self) -> str:
        """Returns the space of the vectors of this retriever's encoder."""
        encoder = self.settings.encoder
        return digest({"encoder": self.identity.get("encoder"), "settings": identity_fields(encoder) if encoder else None})


@dataclass(frozen=True)
class ScoredBy:
    """A reranker as workers open it, over the documents of a corpus.

    Attributes:
        settings: Of the reranker.
        identity: Of its model.
        documents: Key of the retriever with the texts, in `SharedWork.retrievers`.
        texts: Their identity, as `OpenedBy.texts`.
    """

    settings: RerankerSettings
    identity: Mapping[str, Any]
    documents: str
    texts: str

    @property
    def space(self) -> str:
        """Returns the space of this reranker's scores."""
        return digest({"version": SCORES_VERSION, "reranker": dict(self.identity)})

    @property
    def label(self) -> str:
        """Returns the label that tells it from others in scores/: model, prompt, lengths and documents."""
        return digest({"reranker": dict(self.identity), "texts": self.texts})


def digest(value: Any) -> str:
    """Returns 16 hex digits of the sha256 of a JSON-able value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]

"""What the arms of an ablation share: requests, texts, lists, scores. Each is planned once for all arms that need it.

    Asking   the requests of arms with one engine, decoding, prompt language, guards: the union of their strategies
    Reading  the texts that are read from the answers, and chosen
    Search   the retrievers that search these texts
    Answer   one arm: how the lists are fused, reranked, ordered and cut

Subsets of strategies share one reading: an arm gives weight 0 to the strategies that it lacks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.keys import identity_fields
from jobs.stages.list_columns import Cuts
from retrievers.elastic.settings import FOREIGN, ElasticSettings
from retrievers.hybrid.settings import indexed, indexed_identities, search_names
from retrievers.retriever import RetrieverSettings
from retrievers.settings import FuseSettings, RerankSettings, TypoSettings
from rewriters.engines.settings import EngineSettings
from rewriters.rewriter import Rewriting

SCORES_VERSION = 2  # of what gathered scores are known by; of 1, an arm's could be of the texts of another arm's corpus


@dataclass(frozen=True)
class Asking:
    """Requests that several arms share; `sample` from 0, of answers to the same requests."""

    rewriting: Rewriting
    engine: str  # a key of `SharedWork.engines`
    sample: int = 0


@dataclass(frozen=True)
class Reading:
    """Texts of the queries.

    Attributes:
        name: The first arm that has them.
        asking: Index of the requests; -1: the original alone.
        rewriting: How strategies are chosen: the pool and the selection.
    """

    name: str
    asking: int
    rewriting: Rewriting


@dataclass(frozen=True)
class Search:
    """Lists of the texts of a reading.

    Attributes:
        reading: Its index.
        retrievers: Name in the arm -> key of `SharedWork.retrievers`.
        together: The names that search all texts of a query as one.
        routes: Strategy -> names; default: all.
        fuse: Settings that decide what is joined, where texts are searched together; else the default.
        cuts: Of strategies that have their own.
        depth: Hits of a list that take part, at most.
        dense: The name whose vectors give similarities; None: there is none.
        typos: In the originals, as they are searched.
        joined: The strategies whose texts are joined, where texts are searched together.
    """

    reading: int
    retrievers: Mapping[str, str]
    together: frozenset[str]
    routes: Mapping[str, list[str]]
    fuse: FuseSettings
    cuts: Cuts
    depth: int
    dense: str | None
    typos: TypoSettings | None = None
    joined: frozenset[str] | None = None


@dataclass(frozen=True)
class Answer:
    """How one arm is answered.

    Attributes:
        arm: Its name.
        search: Index of its lists.
        strategies: Those whose lists are fused, beside the original's.
        fuse: With the number of candidates that are kept.
        documents: Key in `SharedWork.retrievers` of the index that has the texts of its documents.
        reranker: Index in `SharedWork.rerankers`; None: none.
        combine: Of both orders.
        keep: Results per query.
        looked: Documents per query, the results among them, that measures read: behind the results stand the other
            candidates, then the fused documents that are none.
        cut_from: A shorter list is whole (`jobs/evaluate/looked.py`).
        candidates: Fused documents that are handed on, as `fuse.keep` has it; the reranker scores these.
    """

    arm: str
    search: int
    strategies: frozenset[str]
    fuse: FuseSettings
    documents: str
    reranker: int | None
    combine: str
    keep: int
    looked: int
    cut_from: int
    candidates: int


@dataclass(frozen=True)
class OpenedBy:
    """A retriever as workers open it.

    Attributes:
        name: In the config, for messages.
        settings: Without `together`, which a search has.
        identity: Of its index.
        depth: Hits that are fetched.
    """

    name: str
    settings: RetrieverSettings
    identity: Mapping[str, Any]
    depth: int

    @property
    def search_names(self) -> dict[str, str | None]:
        """Returns the names that its searches are counted under, each with the model of its encoder."""
        return search_names(self.name, self.settings)

    @property
    def space(self) -> str:
        """Returns what the lists of this retriever are gathered under."""
        return digest({"index": dict(self.identity), "settings": identity_fields(self.settings), "depth": self.depth})

    @property
    def texts(self) -> str:
        """Returns what tells the texts of its documents from those of other indexes."""
        corpus, (_, settings) = self.corpus, next(iter(indexed(self.name, self.settings).items()))
        if not isinstance(settings, ElasticSettings) or not str(corpus).startswith(FOREIGN):
            return digest({"corpus": corpus})
        field = settings.searched_field  # which of the fields is the text depends on the retriever
        return digest({"corpus": corpus, "field": field, "dense": settings.encoder is not None})

    @property
    def corpus(self) -> str | None:
        """Returns the identity of its documents as their index has it."""
        return next(iter(indexed_identities({self.name: self.identity}).values())).get("corpus")

    @property
    def encoder_space(self) -> str:
        """Returns what the vectors of this retriever's encoder are gathered under."""
        encoder = self.settings.encoder
        return digest({"encoder": self.identity.get("encoder"), "settings": identity_fields(encoder) if encoder else None})


@dataclass(frozen=True)
class ScoredBy:
    """A reranker as workers open it, over the documents of a corpus.

    Attributes:
        settings: Of the reranker.
        identity: Of its model.
        documents: Key in `SharedWork.retrievers` of the index that has the texts.
        texts: Their identity, as `OpenedBy.texts`.
        corpus: Their identity as their index has it; None: not checked.
        typos: In what it is given.
    """

    settings: RerankSettings
    identity: Mapping[str, Any]
    documents: str
    texts: str
    corpus: str | None
    typos: TypoSettings | None = None

    @property
    def model(self) -> str:
        """Returns the name of the model."""
        model = self.settings.encoder.model if self.settings.encoder is not None else self.settings.model
        return str(model)

    @property
    def space(self) -> str:
        """Returns what the scores of this reranker are gathered under."""
        return digest({"version": SCORES_VERSION, "reranker": dict(self.identity), "texts": self.texts})


@dataclass(frozen=True)
class SharedWork:
    """The work of all arms.

    `engines` maps a key to the settings of an engine and the hash of its identity; "" in them is none's.
    """

    engines: Mapping[str, tuple[EngineSettings, str]]
    askings: tuple[Asking, ...]
    readings: tuple[Reading, ...]
    retrievers: Mapping[str, OpenedBy]
    searches: tuple[Search, ...]
    rerankers: tuple[ScoredBy, ...]
    answers: tuple[Answer, ...]
    keep_sources: bool

    def strategies(self, search: int) -> frozenset[str]:
        """Returns the strategies whose texts an arm needs searched, of a search by its index."""
        return frozenset().union(*(answer.strategies for answer in self.answers if answer.search == search))


def digest(value: Any) -> str:
    """Returns 16 hex digits of the sha256 of a JSON-able value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]

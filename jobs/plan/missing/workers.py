"""Workers of the chain's stages that look into the store as those of a run do, and note what they do not find there.

What is missing is neither asked of an engine, nor searched by an encoder or a server, nor scored. Two things are done, since
they cost no more than looking: recordings answer, and a local BM25 index is searched.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from cluster.costs import entry
from cluster.errors import RetrieverError
from cluster.storage import remote
from jobs.chain.arms.opened import OpenedBy, ScoredBy
from jobs.chain.arms.shared_work import Search
from jobs.chain.completions import CompletionRecord, Completions
from jobs.chain.engines import Engines, ShardAnswers
from jobs.chain.journal import Key
from jobs.chain.lists import Found
from jobs.chain.search_texts import Text
from jobs.chain.searches import BlockSearches, RoutedSearch, Wanted, opened_retriever
from jobs.chain.stages.fuse import Texts
from jobs.chain.stages.gate import Gating
from jobs.chain.stages.retrieve import Retrieve
from jobs.chain.stages.score import Score
from jobs.job.engine import open_worker_engine
from jobs.job.opening import open_documents
from retrievers.kinds import RetrieverSettings
from retrievers.ranking import offsets_of
from retrievers.reranker import Reranker
from retrievers.retriever import Alive, JoinedText, RankedLists, Retriever, SearchText, no_heartbeat
from rewriters.classifier import REQUEST_NAME
from rewriters.engines import Completion, Request

NOT_STORED = "not_stored"
PROMPTS = 200  # of each kind of missing request that are kept, to count their tokens


@dataclass
class Seen:
    """What the workers have found missing."""

    unknown: Counter[str] = field(default_factory=Counter)
    """Query_id -> how much of it is missing, since `take`: what later stages make of these queries is not known."""
    requests: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Stage, key of the engine and name of the request -> missing requests, those of recordings included."""
    doubtful: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Those of `requests` that are not made if the LLM names another type of the query."""
    reused: Counter[str] = field(default_factory=Counter)
    """Stage -> requests that have answers."""
    asked: dict[tuple[str, str], list[Request]] = field(default_factory=lambda: defaultdict(list))
    """Key of the engine and name of the request -> some of the missing ones, `PROMPTS` at most."""
    prompts: set[tuple[str, str]] = field(default_factory=set)
    """Names and hashes of the prompts of missing requests."""
    typeless: set[str] = field(default_factory=set)
    """Queries whose type the LLM is to say."""
    partial: bool = False
    """Whether texts of the queries are not known yet: then what searches all of them as one is left out."""

    def take(self) -> Counter[str]:
        """Returns `unknown` and empties it."""
        taken, self.unknown = self.unknown, Counter()
        return taken

    def miss(self, stage: str, request: Request) -> None:
        """Notes a missing request."""
        known = stage, request.engine, request.name
        self.unknown[request.query_id] += 1
        self.requests[known] += 1
        if request.name == REQUEST_NAME:
            self.typeless.add(request.query_id)
        elif request.query_id in self.typeless:
            self.doubtful[known] += 1
        self.prompts.add((request.name, request.prompt_hash))
        if len(some := self.asked[request.engine, request.name]) < PROMPTS:
            some.append(request)


class _ReadCompletions(Completions):
    """The completions of a shard that earlier starts have left; none is written."""

    def merge(self) -> None:
        """Does nothing."""


class StoredAnswers(Engines):
    """Answers from the store alone, and from recordings; notes the requests that have none."""

    def __init__(self, seen: Seen, *asked: Any) -> None:
        self._seen = seen
        super().__init__(*asked)

    def _start(self) -> None:
        """Opens recordings alone."""
        self._recorded = {name: open_worker_engine(one) for name, one in self._settings.items() if one.is_recorded}
        for one in self._recorded.values():
            one.start()

    def close(self) -> None:
        """Closes the recordings."""
        for one in self._recorded.values():
            one.close()

    def open(self, shard: int) -> ShardAnswers:
        """Returns the answers of a shard, which are only read."""
        return ShardAnswers(self, _ReadCompletions(self._storage, shard, 0, 0.0))

    def complete(self, own: Completions, missing: Mapping[Key, Request], known: int) -> Iterator[tuple[Key, CompletionRecord]]:
        """Yields recorded completions of requests, and failures in place of the others."""
        self._seen.reused[self.stage] += known
        for name, engine in self._recorded.items():
            asked = [one for one in missing.values() if one.engine == name]
            self._seen.requests.update((self.stage, name, one.name) for one in asked)
            for one, answer in engine.complete(asked):
                yield self.key(one), CompletionRecord(answer, one.prompt)
        for key, one in missing.items():
            if one.engine not in self._recorded:
                self._seen.miss(self.stage, one)
                nothing = Completion(None, None, "", attempts=0, error_reason=NOT_STORED)
                yield key, CompletionRecord(nothing, one.prompt)

    def cost(self, request: Request, one: CompletionRecord) -> dict[str, Any]:
        """Returns an entry without any costs."""
        return entry(self.stage, request.name, error=one.completion.error_reason)

    def lost(self, request: Request, requests: int) -> dict[str, Any]:
        """Returns an entry without any costs."""
        return entry(self.stage, request.name)


class _NotSearched:
    """In place of a retriever that is not searched: its lists have one hit that is none, its vectors one number."""

    def __init__(self) -> None:
        self.missing: set[Wanted] = set()

    def search(self, texts: Sequence[SearchText | JoinedText], depth: int, alive: Alive = no_heartbeat) -> RankedLists:
        """Notes the texts; a list without hits would have the original searched in its place."""
        self.missing.update(texts)
        return RankedLists(offsets_of(np.ones(len(texts), dtype=np.int64)), pa.array([""] * len(texts)), np.zeros(len(texts)))

    def embed(self, texts: Sequence[SearchText]) -> np.ndarray:
        """Notes the texts."""
        self.missing.update(texts)
        return np.ones((len(texts), 1), dtype=np.float32)

    def identity(self) -> dict[str, Any]:
        """Returns nothing."""
        return {}


def is_here(name: str, settings: RetrieverSettings) -> bool:
    """Returns whether the documents of a retriever's index can be read without fetching the index from S3."""
    if not any(one.folder is not None and remote(one.folder) for one in settings.indexed(name).values()):
        return True
    try:
        open_documents(name, settings, cached_only=True)
    except RetrieverError:
        return False
    return True


def is_searched(name: str, settings: RetrieverSettings) -> bool:
    """Returns whether a retriever is searched, as that costs no more than looking."""
    return all(one.is_lexical for one in settings.indexed(name).values()) and is_here(name, settings)


def _opened(one: OpenedBy, device: str) -> Retriever:
    """Returns a retriever, which is searched if that costs no more than looking."""
    return opened_retriever(one, device) if is_searched(one.name, one.settings) else _NotSearched()


class LookingGate(Gating):
    """The gate; queries whose list is missing are unknown."""

    opened = staticmethod(_opened)

    def __init__(self, seen: Seen, **settings: Any) -> None:
        self._seen = seen
        super().__init__(**settings)

    def _searched(
        self, key: str, wanted: Mapping[Wanted, Sequence[str]], query_ids: Sequence[str], spent: list[list[dict[str, Any]]]
    ) -> Any:
        found = super()._searched(key, wanted, query_ids, spent)
        if isinstance(retriever := self._retrievers[key], _NotSearched):
            self._seen.unknown.update(query_id for text in retriever.missing for query_id in wanted[text])
            retriever.missing = set()
        return found


class LookingRetrieve(Retrieve):
    """The retrieval stage; queries with a list or a vector that is missing are unknown."""

    opened = staticmethod(_opened)

    def __init__(self, seen: Seen, **settings: Any) -> None:
        self._seen = seen
        super().__init__(**settings)

    def _routed(self, search: Search, texts: Sequence[Text]) -> dict[str, list[Text]]:
        found = super()._routed(search, texts)
        return {name: [] if self._seen.partial and name in search.together else of for name, of in found.items()}

    def _indexed_texts(self, key: str) -> Texts:
        one = self._work.retrievers[key]
        read = super()._indexed_texts(key) if is_here(one.name, one.settings) else lambda doc_ids: [""] * len(doc_ids)

        def texts(doc_ids: Sequence[str]) -> list[str]:  # a hit that stands for a list which is missing has none
            known = [one for one in doc_ids if one]
            found = dict(zip(known, read(known), strict=True))
            return [found.get(one, "") for one in doc_ids]

        return texts

    def _lists(self, block: BlockSearches, routed: Sequence[RoutedSearch]) -> list[dict[str, Found]]:
        found = super()._lists(block, routed)
        for of in routed:
            for name, texts in of.texts.items():
                self._note(of.search.retrievers[name], block.query_ids, texts)
        return found

    def _vectors(self, query_ids: Sequence[str], texts: Sequence[Sequence[Text]]) -> dict[str, dict[Wanted, np.ndarray]]:
        self._forget()
        found = super()._vectors(query_ids, texts)
        for of in found.values():
            size = max((len(one) for one in of.values()), default=1)
            of.update({text: np.zeros(size, dtype=np.float32) for text, one in of.items() if len(one) != size})
        for number, of_search in enumerate(texts):
            if (dense := self._work.compared_by(number)) is not None:
                self._note(dense, query_ids, of_search)
        self._forget()  # lists are noted apart
        return found

    def _forget(self) -> None:
        for retriever in self.retrieval.opened.values():
            if isinstance(retriever, _NotSearched):
                retriever.missing = set()

    def _note(self, key: str, query_ids: Sequence[str], texts: Sequence[Text]) -> None:
        if isinstance(retriever := self.retrieval.opened[key], _NotSearched):
            missing = retriever.missing
            self._seen.unknown.update(query_ids[one.row] for one in texts if not missing.isdisjoint(_searched(one.search)))


def _searched(search: Wanted) -> list[Wanted]:
    """Returns a search, and the texts whose vectors it may be made of."""
    return [search, *(search.texts if isinstance(search, JoinedText) else ())]


class _NotScored:
    def score(self, queries: Sequence[str], passages: Sequence[str]) -> np.ndarray:
        """Returns no scores."""
        return np.full(len(queries), np.nan)

    def identity(self) -> dict[str, Any]:
        """Returns nothing."""
        return {}


class LookingScore(Score):
    """The scoring stage."""

    def opened(self, one: ScoredBy, device: str) -> Reranker:
        """Returns a reranker that scores nothing."""
        return _NotScored()

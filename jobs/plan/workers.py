"""Workers of the chain's stages that look into the store as those of a run do, and note what they do not find there.

What is missing is neither asked of an engine, nor searched by an encoder or a server, nor scored. Two things are done, since
they cost no more than looking: recordings answer, and a local BM25 index is searched.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster.costs import entry
from cluster.errors import RetrieverError
from cluster.storage import remote
from jobs.chain.arms.resources import OpenedBy, ScoredBy
from jobs.chain.arms.shared_work import Search
from jobs.chain.completions import CompletionRecord, Completions
from jobs.chain.engines import Engines, ShardAnswers
from jobs.chain.journal import Key
from jobs.chain.search_texts import Text
from jobs.chain.searches import BlockSearches, Wanted, opened_retriever
from jobs.chain.stages.candidates import Texts
from jobs.chain.stages.gate import Gating
from jobs.chain.stages.retrieve import Retrieve
from jobs.chain.stages.score import Score
from jobs.job.retrievers import open_documents
from jobs.tables import unnested
from retrievers.kinds import RetrieverSettings
from retrievers.ranking import offsets_of
from retrievers.reranker import Reranker
from retrievers.retriever import Alive, JoinedText, RankedLists, Retriever, SearchText, no_heartbeat
from rewriters.classifier import REQUEST_NAME
from rewriters.engines import Completion, Request

NOT_STORED = "not_stored"
PROMPTS = 200  # of the missing requests of a name that are kept, to count their tokens


class Seen:
    """Facts that the workers have found missing."""

    def __init__(self) -> None:
        self.unknown = set[str]()
        """Queries of which something is missing in the present stage: what later stages make of them is not known."""
        self.typeless = set[str]()
        """Queries whose type the LLM is to say, likewise."""
        self.unanswered: Collection[str] = ()
        """Queries whose texts are not all known: nothing is searched for them that joins all texts."""
        self.requests: dict[tuple[str, str], list[Request]] = defaultdict(list)
        """Stage and name -> some of the missing requests, `PROMPTS` at most."""
        self.missing = set[Wanted]()
        """Texts of which a list or a vector is missing, in the present stage."""

    def note(self, asked: Iterable[tuple[str, Wanted]]) -> None:
        """Notes the queries that ask for something that is missing."""
        for query_id, search in asked:
            parts = search.texts if isinstance(search, JoinedText) else ()  # by whose vectors it may be searched
            if not self.missing.isdisjoint((search, *parts)):
                self.unknown.add(query_id)
        self.missing.clear()


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
        self._settings = {name: one for name, one in self._settings.items() if one.is_recorded}
        super()._start()

    def open(self, shard: int) -> ShardAnswers:
        """Returns the answers of a shard, which are only read."""
        return ShardAnswers(self, _ReadCompletions(self._storage, shard, 0, 0.0))

    def complete(self, own: Completions, missing: Mapping[Key, Request], known: int) -> Iterator[tuple[Key, CompletionRecord]]:
        """Yields recorded completions of requests, and failures in place of the others."""
        for name, engine in self._engines.items():
            for request, answer in engine.complete([request for request in missing.values() if request.engine == name]):
                yield self.key(request), CompletionRecord(answer, request.prompt)
        seen = self._seen
        for key, request in missing.items():
            if request.engine not in self._engines:
                for queries in (seen.unknown, *([seen.typeless] if request.name == REQUEST_NAME else [])):
                    queries.add(request.query_id)
                yield key, CompletionRecord(Completion(None, None, "", error_reason=NOT_STORED), request.prompt)

    def cost(self, request: Request, record: CompletionRecord) -> dict[str, Any]:
        """Returns an entry with what a run would count: a request, or a stored answer."""
        if (
            record.completion.error_reason == NOT_STORED
            and len(some := self._seen.requests[self.stage, request.name]) < PROMPTS
        ):
            some.append(request)
        is_open = request.query_id in self._seen.typeless and not request.name.startswith(REQUEST_NAME)
        attempts = 0 if record.start or is_open else record.completion.attempts  # another type may have other strategies
        return entry(self.stage, request.name, requests=attempts, reused=int(record.start != 0))

    def lost(self, request: Request, requests: int) -> dict[str, Any]:
        """Returns an entry without any costs."""
        return entry(self.stage, request.name)


class _NotOpened:
    """In place of a retriever or a reranker that is not asked: lists have one hit that is none, vectors one number."""

    def __init__(self, missing: set[Wanted]) -> None:
        self._missing = missing

    def identity(self) -> dict[str, Any]:
        return {}

    def search(self, texts: Sequence[Wanted], depth: int, alive: Alive = no_heartbeat) -> RankedLists:
        """Notes the texts; a list without hits would have the original searched in its place."""
        self._missing.update(texts)
        return RankedLists(offsets_of(np.ones(len(texts), dtype=np.int64)), pa.array([""] * len(texts)), np.zeros(len(texts)))

    def embed(self, texts: Sequence[SearchText]) -> np.ndarray:
        self._missing.update(texts)
        return np.ones((len(texts), 1), dtype=np.float32)

    def score(self, queries: Sequence[str], passages: Sequence[str]) -> np.ndarray:
        return np.full(len(queries), np.nan)


def is_here(name: str, settings: RetrieverSettings) -> bool:
    """Returns True if the documents of a retriever's index can be read without fetching the index from S3."""
    if not any(index.folder is not None and remote(index.folder) for index in settings.indexed(name).values()):
        return True
    try:
        open_documents(name, settings, cached_only=True)
    except RetrieverError:
        return False
    return True


class _Looking:
    def __init__(self, seen: Seen, **settings: Any) -> None:
        self._seen = seen
        super().__init__(**settings)


class _LookingForLists(_Looking):
    def opened(self, plan: OpenedBy, device: str) -> Retriever:
        is_lexical = all(index.is_lexical for index in plan.settings.indexed(plan.name).values())
        if is_lexical and is_here(plan.name, plan.settings):
            return opened_retriever(plan, device)
        return _NotOpened(self._seen.missing)


class _LookingGate(_LookingForLists, Gating):
    """The gate; queries whose list is missing are unknown."""

    def __call__(self, table: pa.Table) -> pa.Table:
        gated = super().__call__(table)
        query_ids, queries = (table.column(name).to_pylist() for name in ("query_id", "query"))
        self._seen.note(zip(query_ids, map(SearchText, queries), strict=True))
        return gated


class _LookingRetrieve(_LookingForLists, Retrieve):
    """The retrieval stage; a query counts as unknown if one of its lists or vectors is missing."""

    _query_ids: list[str]
    _asked: list[tuple[str, Wanted]]

    def __call__(self, table: pa.Table) -> pa.Table:
        self._query_ids, self._asked = table.column("query_id").to_pylist(), []
        retrieved = super().__call__(table)
        self._seen.note(self._asked)
        return retrieved

    def _routed(self, search: Search, texts: Sequence[Text]) -> dict[str, list[Text]]:
        unanswered, routed = self._seen.unanswered, super()._routed(search, texts)
        for name in search.together:
            routed[name] = [text for text in routed[name] if self._query_ids[text.row] not in unanswered]
        asked = [*texts, *(text for of_name in routed.values() for text in of_name)]
        self._asked += [(self._query_ids[text.row], text.search) for text in asked]
        return routed

    def _indexed_texts(self, key: str) -> Texts:
        plan = self._work.retrievers[key]
        read = super()._indexed_texts(key) if is_here(plan.name, plan.settings) else lambda doc_ids: [""] * len(doc_ids)

        def texts(doc_ids: Sequence[str]) -> list[str]:  # a hit that stands for a list which is missing has none
            known = [doc_id for doc_id in doc_ids if doc_id]
            by_doc_id = dict(zip(known, read(known), strict=True))
            return [by_doc_id.get(doc_id, "") for doc_id in doc_ids]

        return texts

    def _vectors(self, block: BlockSearches, texts: Sequence[Sequence[Text]]) -> dict[str, dict[Wanted, np.ndarray]]:
        by_key = super()._vectors(block, texts)
        for vectors in by_key.values():
            size = max((len(vector) for vector in vectors.values()), default=1)
            vectors.update({text: np.zeros(size, np.float32) for text, vector in vectors.items() if len(vector) != size})
        return by_key


class _LookingScore(_Looking, Score):
    """The scoring stage; queries with a pair that is missing are unknown."""

    def opened(self, reranker: ScoredBy, device: str) -> Reranker:
        return _NotOpened(self._seen.missing)

    def __call__(self, table: pa.Table) -> pa.Table:
        scored = super().__call__(table)
        rows, entries = unnested(scored, "costs")
        missing = np.unique(rows[pc.greater(entries.field("pairs"), 0).to_numpy(zero_copy_only=False)])
        self._seen.unknown.update(scored.column("query_id").take(pa.array(missing)).to_pylist())
        return scored


LOOKING: dict[Any, Any] = {Gating: _LookingGate, Retrieve: _LookingRetrieve, Score: _LookingScore}
"""Worker of a run -> the one that looks."""

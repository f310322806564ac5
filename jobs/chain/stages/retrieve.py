"""The retrieval stage: searches once what the arms search, the original and the texts of their strategies, and fuses the lists.

The lists of the first arm are written to runs/ whole; only fused candidates are passed on to the next stage.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from cluster import costs
from cluster.run.stage import heartbeat
from jobs.chain.arms.shared_work import Search
from jobs.chain.counts import with_counts
from jobs.chain.drift import drifted, note_drift
from jobs.chain.lists import lists_of, stored_rows
from jobs.chain.search_texts import Text, joined, query_texts
from jobs.chain.searches import BlockSearches, Retrieval, RoutedSearch, Wanted, opened_retriever
from jobs.chain.stages.candidates import BlockCandidates, Texts, candidate_columns, united
from jobs.chain.stages.documents import planned_documents
from jobs.chain.stages.fuse import SearchLists, fusion_notes, text_similarity
from jobs.chain.stages.gate import known_lists
from jobs.chain.stages.stored_rows import with_stored
from jobs.chain.stages.web.web_hits import with_web
from jobs.chain.store.facts import Searched, StoredVectors
from jobs.chain.store.files import Space
from jobs.chain.tables import BEST, DOCUMENT, FUSED
from jobs.chain.worker import WorkerJob
from jobs.counts import arm_key
from jobs.tables import FILE, ORIGINAL, WEB_PAGE, with_appended, with_columns, without_columns
from retrievers.join import search_vectors
from retrievers.retriever import Embedder
from rewriters.strategy import searched_as_one


class Retrieve:
    """A worker of the retrieval stage.

    Equal texts of a shard are encoded and searched once. A retriever with `together` searches all texts of a query as one.
    """

    NEEDS = ("shard", "query_id", "query", "rewrites", "needed", "counts")
    ADDS = pa.schema(
        [
            ("documents", pa.list_(DOCUMENT)),
            ("fused", pa.list_(FUSED)),
            ("web", pa.list_(WEB_PAGE)),  # empty without a search engine of the web
            ("best", pa.list_(BEST)),  # empty without further rounds
            ("stored", pa.list_(FILE)),  # files written but not committed yet, in the block's first row
        ]
    )
    opened = staticmethod(opened_retriever)
    DROPS = ("gated", "known")  # where there is a gate

    def __init__(self, job: WorkerJob) -> None:
        """Opens the retrievers; raises RetrieverError where an index is missing or was replaced."""
        work = job.work
        self._work, self._store = work, job.store
        self.retrieval = Retrieval(job, work.retrievers, self.opened)
        self.close = self.retrieval.close
        self._indexed = {key: self._indexed_texts(key) for key in {one.documents for one in work.answers if one.drops}}

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with the candidates of every arm and costs."""
        work, rows = self._work, table.num_rows
        with self.retrieval.block(table, "retrieve", known=known_lists(table)) as block:
            rewrites = table.column("rewrites").to_pylist()
            texts = self._texts(rewrites, table.column("query").to_pylist())
            vectors = self._vectors(block, texts)
            routed = [
                RoutedSearch(search.retrievers, self._routed(search, texts[number]), work.arms_of(number), search.joining)
                for number, search in enumerate(work.searches)
            ]
            searched = block.search(routed)
            table, stored = with_web(table, routed, searched, block)
            if work.keep_lists:
                ids, first = table.column("query_id").combine_chunks(), work.answers[0]
                stored["runs"] = stored_rows(ids, searched[first.search], first.retrieved)
            began, lists, counts = time.perf_counter(), list[SearchLists](), Counter[str]()
            for number, (search, own, of_texts) in enumerate(zip(work.searches, searched, texts, strict=True)):
                dense = work.compared_by(number)
                known = None if dense not in vectors else np.stack([vectors[dense][text.search] for text in of_texts])
                far = drifted(of_texts, known, work.readings[search.reading].rewriting.guards.drift)
                table = note_drift(table, counts, work, number, far, rewrites)
                cosines = None if known is None else text_similarity([text.row for text in of_texts], rows, known)
                pages = block.pages(search.retrievers, own)
                lists.append(SearchLists(lists_of(own, search), rows, cosines, pages, work.keep_sources))
            table, candidates = self._fused(block.closed(table), counts, lists, began)
            best, nothing = pa.array(self._best(rows, lists), pa.list_(BEST)), pa.array([[]] * rows, pa.list_(FILE))
            table = with_counts(without_columns(table, self.DROPS), counts)
            table = with_columns(table, self.ADDS, [*candidates, best, nothing])
            return with_stored(table, self.retrieval.storage, stored)

    def _texts(self, rewrites: Sequence[Any], queries: Sequence[str]) -> list[list[Text]]:
        """Returns the texts of each search, row by row: the original, then the rewrites in order that an arm needs."""
        known, texts = dict[tuple[int, frozenset[str]], list[Text]](), list[list[Text]]()
        for number, search in enumerate(self._work.searches):
            key = search.reading, self._work.strategies(number)
            if key not in known:
                reading = self._work.readings[search.reading]
                used = [reading.rewrites(key[1], of_row) for of_row in rewrites]
                as_one = searched_as_one(reading.rewriting.pool)
                known[key] = [text for row, query in enumerate(queries) for text in query_texts(row, query, used[row], as_one)]
            texts.append(known[key])
        return texts

    def _routed(self, search: Search, texts: Sequence[Text]) -> dict[str, list[Text]]:
        """Returns the texts that each retriever of an arm is searched with, by its name in the arm."""
        routed = {}
        for name in search.retrievers:
            own = [text for text in texts if name in search.route(text.strategy)]
            if name in search.together:
                own = [text for text in own if text.strategy == ORIGINAL or text.strategy in (search.joined or ())]
                own = joined(own, name, search.fuse)
            routed[name] = own
        return routed

    def _indexed_texts(self, key: str) -> Texts:
        """Returns a function that returns the texts of documents of a retriever, by its key."""
        return partial(planned_documents(self._work.retrievers[key]).texts, alive=heartbeat)

    def _vectors(self, block: BlockSearches, texts: Sequence[Sequence[Text]]) -> dict[str, dict[Wanted, np.ndarray]]:
        """Returns the vectors of texts, shape (dim,), by key of the retriever, where an arm weighs lists by cosines."""
        wanted: dict[str, dict[Wanted, Searched]] = {}
        for number, of_search in enumerate(texts):
            if (dense := self._work.compared_by(number)) is not None:
                searches = wanted.setdefault(dense, {})
                for text in of_search:
                    searches.setdefault(text.search, Searched(block.query_ids[text.row], text.search))
        vectors = {}
        for key, searches in wanted.items():
            retriever = self.retrieval.opened[key]
            assert isinstance(retriever, Embedder)

            def compute(missing: list[Searched], encode: Embedder = retriever) -> Iterator[tuple[Searched, np.ndarray]]:
                return zip(missing, search_vectors([one.search for one in missing], encode.embed), strict=True)

            store = StoredVectors(self._store, Space("vectors", self._work.retrievers[key].encoder_space))
            try:
                vectors[key] = dict(zip(searches, store.fill([*searches.values()], compute), strict=True))
            except Exception as error:
                block.fail(key, error)
            store.save()
        return vectors

    def _fused(
        self, table: pa.Table, counts: Counter[str], lists: Sequence[SearchLists], began: float
    ) -> tuple[pa.Table, list[pa.ListArray]]:
        """Returns the block with notes and costs of fusion, and the columns of its candidates."""
        work, rows, parts = self._work, table.num_rows, []
        for number, own in enumerate(lists):
            fused = {at: own.fuse(answer, self._indexed) for at, answer in enumerate(work.answers) if answer.search == number}
            parts.append(BlockCandidates(own.hits.doc_ids, own.pages, {at: one.candidates for at, one in fused.items()}))
            for at, fusion in fused.items():
                if work.only is not None:
                    table = with_appended(table, "errors", fusion_notes(fusion))
                    continue
                counts[arm_key(work.answers[at].arm, "stood_in")] = int(fusion.stood_in.sum())
            heartbeat()
        columns, _ = candidate_columns(rows, united(parts))
        method = "arms" if work.only is None else work.only.fuse.method
        spent = costs.entry("fuse", method, (time.perf_counter() - began) / rows)
        return with_appended(table, "costs", [[spent]] * rows), columns

    def _best(self, rows: int, lists: Sequence[SearchLists]) -> list[list[dict[str, Any]]]:
        """Returns the best scores of the originals' lists, where further rounds go by them."""
        best: list[list[dict[str, Any]]] = [[] for _ in range(rows)]
        for number in sorted({self._work.answers[at].search for at in self._work.doing("iterate")}):
            for row, retriever, score in lists[number].best():
                best[row].append({"search": number, "retriever": retriever, "score": score})
        return best

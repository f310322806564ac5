"""What code of a strategy reads of the lists of the original, which the stage of the gate has made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from jobs.chain.arms.gates import ReadLists
from jobs.chain.arms.shared_work import Reading, SharedWork
from jobs.chain.search_texts import filters_of, originals
from jobs.chain.searches import Wanted
from jobs.chain.stages.documents import Corpora, planned_documents, texts_and_places
from jobs.chain.stages.gate import known_lists
from retrievers.retriever import DocumentStore, RankedList, SearchText
from rewriters.engines import Request
from rewriters.python.given import FirstHit, FirstLists, GivenQuery


class FirstDocuments:
    """Reads the lists of blocks, and the texts of their documents, in one worker; it opens these when they are first read."""

    def __init__(self, work: SharedWork) -> None:
        """Opens nothing; `work`: of all arms."""
        self.work = work
        self._opened: dict[Corpora, DocumentStore] = {}

    def of_block(self, table: pa.Table) -> BlockLists:
        """Returns the lists of a block, none of which is read yet."""
        return BlockLists(self, table)

    def texts(self, wanted: Mapping[Corpora, Sequence[str]]) -> dict[Corpora, dict[str, str]]:
        """Returns doc_id -> text of documents, by where they are.

        Raises:
            RetrieverError: They cannot be read.
        """
        for corpora in wanted.keys() - self._opened.keys():
            self._opened[corpora] = planned_documents(corpora, self.work.retrievers)
        found = texts_and_places(self._opened, wanted)
        return {corpora: {doc_id: text for doc_id, (text, _) in of.items()} for corpora, of in found.items()}


@dataclass(frozen=True)
class BlockLists:
    """The lists of the queries of a block."""

    documents: FirstDocuments
    table: pa.Table

    def with_lists(self, reading: Reading, requests: Sequence[Request]) -> list[Request]:
        """Returns requests of a reading, of which those to code that reads lists know where they are."""
        return [self._with_lists(reading.first.get(one.name), one) for one in requests]

    def _with_lists(self, read: ReadLists | None, request: Request) -> Request:
        if read is None or request.given is None:
            return request

        def lists(of: Sequence[GivenQuery]) -> list[FirstLists | None]:
            return self.read(read, [one.query.query_id for one in of])

        return replace(request, given=GivenQuery(request.given.query, lists))

    def read(self, of: ReadLists, query_ids: Sequence[str]) -> list[FirstLists | None]:
        """Returns the lists of queries by the retrievers' names; None of a query whose search has failed."""
        lists = {name: [self._list(key, of, query_id) for query_id in query_ids] for name, key in of.retrievers.items()}
        wanted: dict[Corpora, list[str]] = {}
        if of.reads.texts:
            for name, of_name in lists.items():
                ids = (doc_id for one in of_name if one is not None for doc_id in one.doc_ids.to_pylist())
                wanted.setdefault(of.documents[name], []).extend(ids)
        texts = self.documents.texts(wanted) if wanted else {}

        def hits(name: str, found: RankedList) -> list[FirstHit]:
            known = texts.get(of.documents[name], {})
            return [
                FirstHit(doc_id, score, known.get(doc_id))
                for doc_id, score in zip(found.doc_ids.to_pylist(), found.scores.tolist(), strict=True)
            ]

        by_query = [{name: of_name[place] for name, of_name in lists.items()} for place in range(len(query_ids))]
        return [
            None if any(one is None for one in own.values()) else {name: hits(name, one) for name, one in own.items() if one}
            for own in by_query
        ]

    def _list(self, key: str, of: ReadLists, query_id: str) -> RankedList | None:
        row = self._rows[query_id]
        if of.typos not in self._originals:
            self._originals[of.typos] = originals(self.table, of.typos)
        search = SearchText(self._originals[of.typos][row], "query", self._only[row])
        found = self._known.get(key, {}).get(search)
        most = of.reads.documents
        return None if found is None else RankedList(found.doc_ids[:most], found.scores[:most])

    @cached_property
    def _known(self) -> dict[str, dict[Wanted, RankedList]]:
        return known_lists(self.table, self._only)

    @cached_property
    def _only(self) -> list[tuple[tuple[str, str], ...]]:
        return filters_of(self.table, self.documents.work.filters)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {query_id: row for row, query_id in enumerate(self.table.column("query_id").to_pylist())}

    @cached_property
    def _originals(self) -> dict[object, list[str]]:
        return {}

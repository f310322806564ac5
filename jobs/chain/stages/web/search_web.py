"""The stage that asks the web for queries whose graded results do not suffice; equal texts of a shard are asked once."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from jobs.chain.search_texts import Text
from jobs.chain.searches import Retrieval, RoutedSearch
from jobs.chain.stages.stored_rows import with_stored
from jobs.chain.stages.web.web_hits import with_web
from jobs.chain.tables import ARM_CORRECTION
from jobs.chain.worker import WorkerJob
from jobs.job.steps import open_search_engine
from jobs.tables import with_values
from retrievers.retriever import SearchText
from retrievers.web.retriever import FailedSearch

_CORRECTION = "the correction"  # in place of a strategy: the query to the web


class SearchWeb:
    """A worker of the stage, with the search engines of all arms."""

    NEEDS = ("shard", "query_id", "query", "grades", "corrections", "stored", "needed")
    ADDS = pa.schema([])

    def __init__(self, job: WorkerJob) -> None:
        """Opens the search engines; raises RetrieverError where an address or a key is missing."""
        self._work = job.work
        # index of an arm -> its search engine, whose depth is the number of hits that it keeps
        self._search = {number: one.web_search for number, one in enumerate(job.work.answers) if one.web_search is not None}
        engines = {one.space: one for one in self._search.values()}
        self._retrieval = Retrieval(job, engines, lambda one, _: open_search_engine(one.settings))
        self.close = self._retrieval.close

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with the hits, errors and costs."""
        corrections, grades = (table.column(name).to_pylist() for name in ("corrections", "grades"))
        routed = [self._routed(number, corrections) for number in self._search]
        with self._retrieval.block(table, "web") as searches:
            table, stored = with_web(table, routed, searches.search(routed), searches)
            for row, of_row in enumerate(corrections):
                for correction in (one for one in of_row if one["web_query"] is not None):
                    opened = self._search[correction["answer"]]
                    text, by = _search_text(correction), searches.web[opened.space]
                    if opened.space in searches.failed or isinstance(by.answer(text), FailedSearch):
                        continue
                    # a page may be a result, too
                    graded = {one["doc_id"] for one in grades[row] if one["answer"] == correction["answer"]}
                    hits = [hit for hit in by.hits(text) if hit.doc_id not in graded][: opened.depth]
                    correction["hits"] = len(hits)
                    correction["pages"] = [
                        {name: getattr(hit, name) for name in ("doc_id", "url", "title", "text")} for hit in hits
                    ]
        table = with_values(table, {"corrections": pa.array(corrections, pa.list_(ARM_CORRECTION))})
        return searches.closed(with_stored(table, self._retrieval.storage, stored))

    def _routed(self, number: int, corrections: Sequence[Sequence[Mapping[str, Any]]]) -> RoutedSearch:
        """Returns the searches of an arm, by its index, for the queries that are to be corrected."""
        opened, arm = self._search[number], self._work.answers[number].arm
        texts = [
            Text(row, 1, _CORRECTION, 1, 1.0, 1.0, _search_text(correction))
            for row, of_row in enumerate(corrections)
            for correction in of_row
            if correction["web_query"] is not None and correction["answer"] == number
        ]
        return RoutedSearch({opened.name: opened.space}, {opened.name: texts}, {frozenset({_CORRECTION}): [arm]})


def _search_text(correction: Mapping[str, Any]) -> SearchText:
    return SearchText(correction["web_query"], "query")

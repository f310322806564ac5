"""The stage that asks the web for queries whose graded results do not suffice; equal texts of a shard are asked once."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

from cluster.storage import open_storage
from jobs.chain.arms.resources import OpenedBy
from jobs.chain.searches import BlockSearches, Retrieval, Wanted, charge, needs_of
from jobs.chain.stages.stored_rows import with_needed, with_stored
from jobs.chain.stages.web.web_hits import PARTIAL, cut_search, failed_search, partial_search
from jobs.chain.store.facts import Searched
from jobs.chain.tables import ARM_CORRECTION
from jobs.chain.worker import WorkerJob
from jobs.job.steps import open_search_engine
from jobs.tables import STORED, with_appended
from retrievers.retriever import SearchText


class SearchWeb:
    """A worker of the stage, with the search engines of all arms."""

    NEEDS = ("shard", "query_id", "grades", "corrections", "stored", "needed")
    ADDS = pa.schema([])

    def __init__(self, job: WorkerJob) -> None:
        """Opens the search engines; raises RetrieverError where an address or a key is missing."""
        self._work, self._storage = job.work, open_storage(job.run)
        self._search: dict[int, tuple[OpenedBy, int]] = {  # index of an arm -> its search engine, and hits that it keeps
            number: (arm.web_search, arm.web.documents)
            for number, arm in enumerate(job.work.answers)
            if arm.web_search is not None and arm.web is not None
        }
        engines = {one.space: one for one, _ in self._search.values()}
        self._retrieval = Retrieval(engines, self._storage, job.store, "", lambda one, _: open_search_engine(one.settings))
        self.close = self._retrieval.close

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with the hits, errors and costs."""
        with self._retrieval.block(table, "web") as searches:
            return self._searched(table, searches)

    def _searched(self, table: pa.Table, searches: BlockSearches) -> pa.Table:
        query_ids = searches.query_ids
        corrections, grades = (table.column(name).to_pylist() for name in ("corrections", "grades"))
        errors: list[dict[str, dict[str, object]]] = [{} for _ in query_ids]
        pages: dict[tuple[int, str, str], list[tuple[Any, ...]]] = {}  # row, search engine, text as sent -> rows of web/
        for space, by in searches.web.items():
            began, opened, web = time.perf_counter(), self._retrieval.plans[space], by.web
            wanted: dict[Wanted, list[str]] = {}
            users: dict[Wanted, set[str]] = {}
            of_engine = [
                (row, fix, SearchText(fix["web_query"], "query")) for row, of_row in enumerate(corrections) for fix in of_row
                if fix["web_query"] is not None and self._search[fix["answer"]][0].space == space
            ]  # fmt: skip
            for row, fix, text in of_engine:
                wanted.setdefault(text, []).append(query_ids[row])
                users.setdefault(text, set()).add(self._work.answers[fix["answer"]].arm)
            by(wanted)
            by.save()
            for row, fix, text in of_engine:
                sent, arm = web.sent(text), self._work.answers[fix["answer"]].arm
                if (failure := by.failed.get(text)) is not None:
                    errors[row][sent] = failed_search(opened.name, failure, sent, by.requests(Searched(query_ids[row], text)))
                    continue
                if web.is_cut(text):
                    errors[row][sent] = cut_search(opened.name, web.settings.provider, sent)
                if silent := by.silent.get(text):
                    errors[row][f"{sent} {PARTIAL}"] = partial_search("web", opened.name, silent, sent)
                # a page may be a result, too
                graded = {of["doc_id"] for of in grades[row] if of["answer"] == fix["answer"]}
                hits = [hit for hit in by.hits[text] if hit.doc_id not in graded][: self._search[fix["answer"]][1]]
                fix["hits"] = len(hits)
                fix["pages"] = [{name: getattr(hit, name) for name in ("doc_id", "url", "title", "text")} for hit in hits]
                rows = [
                    (query_ids[row], arm, opened.name, sent, rank, hit.doc_id, hit.url, hit.title, hit.text)
                    for rank, hit in enumerate(by.hits[text], start=1)
                ]
                pages.setdefault((row, space, sent), rows)
            firsts = [Searched(ids[0], text) for text, ids in wanted.items()]
            asked = [one for one in firsts if one not in by.alike]
            charge(opened, by, asked, query_ids, {}, time.perf_counter() - began, [1.0], searches.spent, "web")
            searches.needed += needs_of(opened, by, "web_searches", users) if self._work.only is None else []
        at = table.schema.get_field_index("corrections")
        table = table.set_column(at, table.schema.field(at), pa.array(corrections, pa.list_(ARM_CORRECTION)))
        table = with_appended(table, "errors", [list(of.values()) for of in errors])
        web_rows = [dict(zip(STORED["web"].names, row, strict=True)) for _, of in sorted(pages.items()) for row in of]
        table = with_stored(table, self._storage, {"web": pa.Table.from_pylist(web_rows, STORED["web"])})
        return with_needed(with_appended(table, "costs", searches.spent), searches.needed)

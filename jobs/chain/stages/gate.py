"""The stage of the gate: searches the originals before any rewriting, and says which queries are to be rewritten.

Its lists go with the block to the retrieval stage, which does not make them again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from cluster.run.stage import bear, heartbeat
from jobs.chain.searches import IndexSearches, Wanted, charge, opened_retriever
from jobs.chain.store.facts import Searched
from jobs.chain.tables import GATED, HITS, KNOWN
from jobs.chain.worker import WorkerJob
from jobs.counts import GATE_STAGE
from jobs.tables import HIT, failure_row, nested, unnested, with_appended, with_columns
from retrievers.hybrid.retriever import search_shares
from retrievers.ranking import offsets_of
from retrievers.retriever import RankedList, Retriever, SearchText, joined_lists
from rewriters.gate import Gated, decide


class Gating:
    """A worker of the stage of the gate."""

    NEEDS = ("shard", "query_id", "query", "values")
    ADDS = pa.schema([("gated", pa.list_(GATED)), ("known", pa.list_(KNOWN))])
    opened = staticmethod(opened_retriever)

    def __init__(self, job: WorkerJob) -> None:
        """Opens the retrievers that are searched; raises RetrieverError where an index is missing or was replaced."""
        self._work, self._store = job.work, job.store
        self._gates = {number: one.gate for number, one in enumerate(job.work.readings) if one.gate is not None}
        searched = {gate.retriever: job.work.retrievers[gate.retriever] for gate in self._gates.values()}
        self._retrievers: dict[str, Retriever] = {key: self.opened(one, job.device) for key, one in searched.items()}

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with what the gates say of each query, the lists by which they do, and costs."""
        query_ids = table.column("query_id").to_pylist()
        asked = [SearchText(text) for text in table.column("query").to_pylist()]
        spent, errors = ([list[dict[str, Any]]() for _ in query_ids] for _ in range(2))
        lists: dict[str, dict[Wanted, RankedList]] = {}
        for key in self._retrievers:
            wanted: dict[Wanted, list[str]] = {}
            for query_id, search in zip(query_ids, asked, strict=True):
                wanted.setdefault(search, []).append(query_id)
            try:
                lists[key] = self._searched(key, wanted, query_ids, spent)
            except Exception as error:
                bear(error)
                errors[0].append(failure_row(GATE_STAGE, error, self._work.retrievers[key].name))
            heartbeat()
        known = [{(key, search): of[search] for key, of in lists.items()} for search in asked]
        verdicts: list[list[dict[str, Any]]] = [[] for _ in query_ids]
        for number, gate in self._gates.items():
            for row, search in enumerate(asked if gate.retriever in lists else ()):
                best = lists[gate.retriever][search].scores[:1].tolist()
                verdicts[row].append({"reading": number} | decide(gate.settings.by, best, gate.settings.below)._asdict())
        columns = [pa.array(verdicts, pa.list_(GATED)), _known_column(known)]
        table = with_appended(with_appended(table, "errors", errors), "costs", spent)
        return with_columns(table, self.ADDS, columns)

    def _searched(
        self, key: str, wanted: Mapping[Wanted, Sequence[str]], query_ids: Sequence[str], spent: list[list[dict[str, Any]]]
    ) -> dict[Wanted, RankedList]:
        """Returns the lists of a retriever by what is searched, which are charged to the first queries that ask."""
        began, opened = time.perf_counter(), self._work.retrievers[key]
        searches = IndexSearches(opened, self._retrievers[key], self._store, GATE_STAGE)
        lists = dict(zip(wanted, searches(wanted), strict=True))
        searches.save()
        firsts = [Searched(asking[0], one) for one, asking in wanted.items()]
        texts = dict.fromkeys(range(len(query_ids)), 1) if self._work.only is not None else {}
        shares = search_shares(self._retrievers[key], opened.search_names)
        charge(opened, searches, firsts, query_ids, texts, time.perf_counter() - began, shares, spent, GATE_STAGE)
        return lists


def _known_column(known: Sequence[Mapping[tuple[str, SearchText], RankedList]]) -> pa.ListArray:
    """Returns the column `known` of a block from the lists of each row."""
    flat = [(key, search, found) for of_row in known for (key, search), found in of_row.items()]
    lists = joined_lists([found for *_, found in flat])
    hits = pa.StructArray.from_arrays([lists.doc_ids, pa.array(lists.scores)], fields=list(HIT))
    values = [
        pa.array([key for key, *_ in flat], pa.string()),
        pa.array([search.text for _, search, _ in flat], pa.string()),
        nested(lists.offsets, hits, HITS),
    ]
    offsets = offsets_of(np.array([len(of_row) for of_row in known]))
    return nested(offsets, pa.StructArray.from_arrays(values, fields=list(KNOWN)), pa.list_(KNOWN))


def known_lists(table: pa.Table) -> dict[str, dict[Wanted, RankedList]]:
    """Returns the lists that the gates have found for a block: key of the retriever -> what was searched -> its list."""
    known: dict[str, dict[Wanted, RankedList]] = {}
    if "known" not in table.column_names:
        return known
    flat = unnested(table, "known")[1]
    hits = flat.field("hits")
    ends = hits.offsets.to_pylist()
    doc_ids, scores = (hits.values.field(name) for name in ("doc_id", "score"))
    scores = scores.to_numpy(zero_copy_only=False)
    keys, texts = flat.field("retriever").to_pylist(), flat.field("text").to_pylist()
    for key, text, (begin, end) in zip(keys, texts, pairwise(ends), strict=True):
        known.setdefault(key, {})[SearchText(text)] = RankedList(doc_ids[begin:end], scores[begin:end])
    return known


def gated_rows(table: pa.Table) -> dict[tuple[int, int], Gated]:
    """Returns (index of a reading, row) -> what its gate says of the query; of one on which the stage failed there is none."""
    if "gated" not in table.column_names:
        return {}
    return {
        (gate["reading"], row): Gated(gate["sure"], gate["reason"])
        for row, of_row in enumerate(table.column("gated").to_pylist())
        for gate in of_row
    }

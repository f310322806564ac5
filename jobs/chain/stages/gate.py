"""The stage of the gate: searches the originals before any rewriting, and says which queries are to be rewritten.

Its lists go with the block to the retrieval stage, which does not make them again.
"""

from typing import Any

import pyarrow as pa

from jobs.chain.search_texts import Text
from jobs.chain.searches import Retrieval, RoutedSearch, Wanted, opened_retriever
from jobs.chain.tables import GATED, KNOWN
from jobs.chain.worker import WorkerJob
from jobs.counts import GATE_STAGE
from jobs.tables import ORIGINAL, unnested, with_appended, with_columns
from retrievers.retriever import RankedList, SearchText, single_lists
from rewriters.selection import Gated, decide


class Gating:
    """A worker of the stage of the gate."""

    NEEDS = ("shard", "query_id", "query", "values")
    ADDS = pa.schema([("gated", pa.list_(GATED)), ("known", pa.list_(KNOWN))])
    opened = staticmethod(opened_retriever)

    def __init__(self, job: WorkerJob) -> None:
        """Opens the retrievers that are searched; raises RetrieverError where an index is missing or was replaced."""
        self._gates = {number: one.gate for number, one in enumerate(job.work.readings) if one.gate is not None}
        searched = {gate.retriever: job.work.retrievers[gate.retriever] for gate in self._gates.values()}
        self._retrieval = Retrieval(job, searched, self.opened)
        self.close = self._retrieval.close

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with what the gates say of each query, the lists by which they do, and costs."""
        queries = table.column("query").to_pylist()
        originals = [Text(row, 0, ORIGINAL, 1, 1.0, 1.0, SearchText(text)) for row, text in enumerate(queries)]
        # the arms need these lists of the retrieval stage
        routed = [RoutedSearch({key: key}, {key: originals}, {}) for key in self._retrieval.plans]
        with self._retrieval.block(table, GATE_STAGE) as searches:
            lists = {key: one[key] for key, one in zip(self._retrieval.plans, searches.search(routed), strict=True)}
        ranked: dict[str, list[RankedList]] = {}
        for key, searched_lists in lists.items():
            if key not in searches.failed:
                one_by_one = single_lists(searched_lists.lists)
                ranked[key] = [one_by_one[number] for number in searched_lists.list_index.tolist()]
        known, verdicts = ([list[dict[str, Any]]() for _ in queries] for _ in range(2))
        for key, lists_of_rows in ranked.items():
            for row, hits in enumerate(lists_of_rows):
                values = {"doc_ids": hits.doc_ids.to_pylist(), "scores": hits.scores}
                known[row].append({"retriever": key, "text": queries[row]} | values)
        for number, gate in self._gates.items():
            for row, hits in enumerate(ranked.get(gate.retriever, ())):
                verdict = decide(gate.settings.by, hits.scores[:1].tolist(), gate.settings.below)
                verdicts[row].append({"reading": number} | verdict._asdict())
        columns = [pa.array(verdicts, pa.list_(GATED)), pa.array(known, pa.list_(KNOWN))]
        table = with_appended(with_appended(table, "errors", searches.errors), "costs", searches.spent)
        return with_columns(table, self.ADDS, columns)


def known_lists(table: pa.Table) -> dict[str, dict[Wanted, RankedList]]:
    """Returns the lists that the gates have found for a block: key of the retriever -> what was searched -> its list."""
    known: dict[str, dict[Wanted, RankedList]] = {}
    if "known" not in table.column_names:
        return known
    flat = unnested(table, "known")[1]
    keys, texts = flat.field("retriever").to_pylist(), flat.field("text").to_pylist()
    for key, text, doc_ids, scores in zip(keys, texts, flat.field("doc_ids"), flat.field("scores"), strict=True):
        hits = RankedList(doc_ids.values, scores.values.to_numpy(zero_copy_only=False))
        known.setdefault(key, {})[SearchText(text)] = hits
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

"""The fusing stage: fuses the lists of every arm, and numbers the documents of all arms per query."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster import costs
from cluster.run.stage import heartbeat
from jobs.chain.arms.shared_work import Answer, SharedWork
from jobs.chain.counts import with_counts
from jobs.chain.stages.documents import planned_documents
from jobs.chain.stages.lists import search_lists
from jobs.chain.tables import BEST, DOCUMENT, FUSED
from jobs.chain.web.texts import WebTexts, kept_pages, pages_of, pair_texts
from jobs.counts import arm_key
from jobs.tables import ITERATE, SOURCE, error_row, nested, unnested, with_appended, with_columns
from retrievers.corpora.duplicates import fuse_distinct
from retrievers.fusion import Fused, fuse
from retrievers.lists import ORIGINAL, TOGETHER, Lists, by_document
from retrievers.ranking import encode, offsets_of
from retrievers.redundancy import Similarity
from retrievers.settings import FuseSettings


class _Fused(NamedTuple):
    """One fused arm: its candidates row by row, best first, as indexes of `_Pairs.pairs`'s values."""

    arm: int
    row: np.ndarray
    pair: np.ndarray
    score: np.ndarray
    sources: pa.ListArray | None


class _Pairs(NamedTuple):
    """The pairs of query and document of some lists that an arm uses.

    Attributes:
        pairs: Index of each among the pairs of `Hits`, plus their number for each class of arms (`WebTexts`) before its own.
        rows: Of each.
        doc_ids: Of each.
        pages: The page of the web that has its text; -1: an index has it.
    """

    pairs: np.ndarray
    rows: np.ndarray
    doc_ids: pa.StringArray
    pages: np.ndarray


class Fuse:
    """A worker of the fusing stage."""

    NEEDS = ("lists", "runs", "cosines", "web", "counts")
    ADDS = pa.schema(
        [
            ("documents", pa.list_(DOCUMENT)),
            ("fused", pa.list_(FUSED)),
            ("best", pa.list_(BEST)),
        ]  # empty without further rounds
    )
    DROPS = ("lists", "runs", "cosines")

    def __init__(self, work: SharedWork) -> None:
        self._work = work
        dropping = {one.documents for one in work.answers if one.fuse.duplicates == "drop"}
        self._documents = {of: planned_documents(work.retrievers[of]) for of in dropping}

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with the candidates of every arm; a run's query without any gets a row in errors."""
        work, rows = self._work, table.num_rows
        best = [list[dict[str, Any]]() for _ in range(rows)]
        iterated = {work.answers[at].search for at, _ in work.generating("iteration")}
        pages = pages_of(table)
        page_texts = pages.texts if self._documents else []
        found: list[list[_Fused]] = []  # by search
        pairs: list[_Pairs] = []
        counts: Counter[str] = Counter()
        notes: list[list[dict[str, Any]]] = [[] for _ in range(rows)]
        for number, search in enumerate(work.searches):
            lists, list_index = search_lists(table, number, search)
            if number in iterated:
                _add_best(best, number, lists)
            hits, similar = by_document(lists, rows), _similarity(table, number)
            texts, used = WebTexts(pages, lists, list_index, hits), list[np.ndarray]()
            strategies = {one for one in hits.strategies if one not in (ORIGINAL, TOGETHER)}
            of_search, done = [], dict[tuple[str, str, int], Fused]()
            for at, answer in enumerate(work.answers):
                if answer.search != number:
                    continue
                settings = _settings(answer, strategies)
                unused = {"k"} if settings.method == "minmax" else None
                drops = answer.documents if settings.duplicates == "drop" else ""
                own = texts.class_of(answer)
                used += [np.zeros(len(hits.pair_query), dtype=bool)] * (own == len(used))
                key = settings.model_dump_json(exclude=unused), drops, own if drops else 0
                if key not in done:
                    if drops:
                        of = pair_texts(hits, texts.pages[own], page_texts, self._documents[drops])
                        done[key] = fuse_distinct(hits, settings, similar, of)
                    else:
                        done[key] = fuse(hits, settings, similar)
                one = done[key]
                used[own][one.pairs] = True
                sizes = np.diff(one.offsets)
                sources = source_lists(lists, one) if work.keep_sources else None
                pairs_of_class = one.pairs + own * len(hits.pair_query)
                of_search.append(_Fused(at, np.repeat(np.arange(rows), sizes), pairs_of_class, one.scores, sources))
                if work.only is None:
                    counts[arm_key(answer.arm, "stood_in")] = int(one.stood_in.sum())
                    counts[arm_key(answer.arm, "no_hits")] = int((sizes == 0).sum())
                else:
                    notes = _notes(one)
            kept = np.flatnonzero(np.concatenate([np.zeros(0, dtype=bool), *used]))
            of_hits = kept % max(1, len(hits.pair_query))
            page = np.concatenate([np.zeros(0, dtype=np.int64), *texts.pages])[kept]
            doc_ids = hits.doc_ids.take(pa.array(hits.pair_document[of_hits]))
            found.append(of_search)
            pairs.append(_Pairs(kept, hits.pair_query[of_hits], doc_ids, page))
            heartbeat()
        needed = np.unique(np.concatenate([part.pages for part in pairs]))
        table, place = kept_pages(table, pages, needed[needed >= 0])
        columns = [*self._columns(rows, found, pairs, place), pa.array(best, pa.list_(BEST))]
        table = with_appended(table, "errors", notes)
        component = "arms" if work.only is None else work.only.fuse.method
        table = with_appended(table, "costs", [[costs.entry("fuse", component)]] * rows)
        return with_columns(with_counts(table, counts).drop_columns(list(self.DROPS)), self.ADDS, columns)

    def _columns(
        self,
        rows: int,
        fused_by_search: list[list[_Fused]],
        parts: list[_Pairs],
        page_index: np.ndarray,
    ) -> list[pa.ListArray]:
        """Returns the columns `documents` and `fused` of a block."""
        work = self._work
        row, page = (np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "pages"))
        code, names = encode(pa.concat_arrays([part.doc_ids for part in parts]))
        most = int(page.max(initial=-1)) + 2
        key, place = np.unique((row * max(1, len(names)) + code) * most + page + 1, return_inverse=True)
        document, document_page = np.divmod(key, most)
        document_row, document_code = np.divmod(document, max(1, len(names)))
        starts = offsets_of(np.bincount(document_row, minlength=rows))
        bounds = np.cumsum([0, *(len(part.pairs) for part in parts)])
        arms, of_row, documents_of, score, sources = [], [], [], [], []
        for number, (found, part) in enumerate(zip(fused_by_search, parts, strict=True)):
            numbered = np.zeros(int(part.pairs.max(initial=-1)) + 1, dtype=np.int64)
            numbered[part.pairs] = place[bounds[number] : bounds[number + 1]]
            for one in found:
                own = numbered[one.pair]
                arms.append(np.full(len(own), one.arm, dtype=np.int16))
                of_row.append(one.row)
                documents_of.append((own - starts[one.row]).astype(np.int32))
                score.append(one.score)
                sources.append(one.sources)
        flat_row, arm = np.concatenate(of_row), np.concatenate(arms)
        order = pa.array(np.lexsort((arm, flat_row)))  # stable: candidates keep their ranks
        values = [
            pa.array(arm).take(order),
            pa.array(np.concatenate(documents_of)).take(order),
            pa.array(np.concatenate(score)).take(order),
            pa.concat_arrays(sources).take(order) if work.keep_sources else pa.nulls(len(order), pa.list_(SOURCE)),
        ]
        web = pa.nulls(len(key), pa.int32())
        if len(page_index):
            web = pa.array(page_index[document_page - 1].astype(np.int32), mask=document_page == 0)
        doc_ids = names.take(pa.array(document_code))
        documents = pa.StructArray.from_arrays([doc_ids, web], fields=list(DOCUMENT))
        candidates = pa.StructArray.from_arrays(values, fields=list(FUSED))
        return [
            nested(starts, documents, pa.list_(DOCUMENT)),
            nested(offsets_of(np.bincount(flat_row, minlength=rows)), candidates, pa.list_(FUSED)),
        ]


def _add_best(best: list[list[dict[str, Any]]], search: int, lists: Lists) -> None:
    """Adds the best score of each list of the original, or of a refined query, to the rows of a block."""
    strategies, retrievers = lists.strategy.to_pylist(), lists.retriever.to_pylist()
    for number in np.flatnonzero(np.diff(lists.offsets)).tolist():
        if strategies[number] in (ORIGINAL, ITERATE):
            score = float(lists.scores[lists.offsets[number]])
            best[lists.query[number]].append({"search": search, "retriever": retrievers[number], "score": score})


def _similarity(table: pa.Table, number: int) -> Similarity:
    """Returns the cosines of a search, from the column `cosines` of a block."""
    rows, flat = unnested(table, "cosines")
    mine = flat.field("search").to_numpy() == number
    values = flat.field("values").filter(pa.array(mine))
    sizes = np.zeros(table.num_rows, dtype=np.int64)
    sizes[rows[mine]] = pc.list_value_length(values).to_numpy(zero_copy_only=False)
    return Similarity(offsets_of(sizes), values.flatten().to_numpy())


def _settings(answer: Answer, strategies: set[str]) -> FuseSettings:
    """Returns the fusion of an arm over the lists of all strategies that share them: those that it lacks weigh 0."""
    others = strategies - answer.strategies
    own = {key: weight for key, weight in answer.fuse.weights.items() if key.partition("/")[0] not in others}
    return answer.fuse.model_copy(update={"weights": own | dict.fromkeys(others, 0.0)})


def source_lists(lists: Lists, found: Fused) -> pa.ListArray:
    """Returns the sources of each candidate."""
    at = pa.array(found.source_list)
    sources = pa.StructArray.from_arrays(
        [
            lists.strategy.take(at),
            pa.array(lists.position).take(at),
            lists.retriever.take(at),
            pa.array(found.source_rank.astype(np.int32)),
            pa.array(found.source_score),
        ],
        fields=list(SOURCE),
    )
    return nested(found.source_offsets, sources, pa.list_(SOURCE))


def _notes(found: Fused) -> list[list[dict[str, Any]]]:
    """Returns the notes on each query without candidates, or with the original standing in."""
    notes: list[list[dict[str, Any]]] = [[] for _ in found.stood_in]
    for row in np.flatnonzero(found.stood_in):
        message = "no list of weight above 0 has a hit; the original's are used instead"
        notes[row].append(error_row("fuse", None, "original_stands_in", message))
    for row in np.flatnonzero(np.diff(found.offsets) == 0):
        notes[row].append(error_row("fuse", None, "no_hits", "no list has a hit for this query that takes part"))
    return notes

"""Fuses the lists of each arm of a block into its candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from jobs.chain.stages.candidates import ArmCandidates, Texts, candidate_texts
from jobs.tables import ITERATE, SOURCE, error_row, nested
from retrievers.fusion import Fused, fuse, fuse_distinct
from retrievers.lists import ORIGINAL, TOGETHER, Lists, by_document
from retrievers.ranking import offsets_of
from retrievers.redundancy import Similarity
from retrievers.web.hits import WebHit

if TYPE_CHECKING:
    from jobs.chain.arms.shared_work import Answer
    from retrievers.settings import FuseSettings


def text_similarity(row: Sequence[int], rows: int, vectors: np.ndarray) -> Similarity:
    """Returns the cosines between the texts of each row, rounded to 6 decimals: the seventh depends on the batch.

    Args:
        row: Of each text, ascending.
        rows: Of the block.
        vectors: Of the texts, shape (texts, dim), of length 1.
    """
    counts = np.bincount(row, minlength=rows)
    squares = [part @ part.T for part in np.split(vectors, np.cumsum(counts)[:-1])]
    flat = np.concatenate([square.ravel() for square in squares]).round(6).astype(np.float32)
    return Similarity(offsets_of(counts**2), flat)


class FusedArm(NamedTuple):
    """The candidates of an arm, and whether the lists of the original stand in for its own, shape (rows,)."""

    candidates: ArmCandidates
    stood_in: np.ndarray


class SearchLists:
    """The lists of one search of a block, which its arms fuse: sorted by document once for all of them.

    What a search engine says of a page depends on what it was asked. So an arm takes, for each page, the text of the first list
    that the page comes from: the original's, then by strategy, position and retriever.
    """

    def __init__(
        self,
        lists: Lists,
        rows: int,
        similarity: Similarity | None,
        pages: Sequence[Sequence[WebHit] | None],
        keep_sources: bool,
    ) -> None:
        """Sorts the lists.

        Args:
            lists: Cut as the search has them.
            rows: Of the block.
            similarity: Cosines of the texts of each row; None: no arm weighs lists by them.
            pages: Of each list the pages of the web in it; None: it is of an index.
            keep_sources: Whether candidates know the lists that they come from.
        """
        self._lists, self._rows, self._similarity, self._keeps = lists, rows, similarity, keep_sources
        self.hits = by_document(lists, rows)
        self.pages = [page for of in pages for page in of or ()]
        sizes = np.array([-1 if of is None else len(of) for of in pages], dtype=np.int64)
        self._first_page = np.where(sizes < 0, -1, offsets_of(np.maximum(sizes, 0))[:-1])
        self._fused: dict[tuple[Any, ...], FusedArm] = {}

    def fuse(self, answer: Answer, texts: Mapping[str, Texts]) -> FusedArm:
        """Returns the candidates of an arm; equal fusion is done once.

        `texts`: for arms that drop duplicates, by `Answer.documents`.
        """
        settings = _settings(answer, {one for one in self.hits.strategies if one not in (ORIGINAL, TOGETHER)})
        drops = answer.documents if answer.drops else ""
        key = settings.model_dump_json(exclude={"k"} if settings.method == "minmax" else None), drops
        if key not in self._fused:
            self._fused[key] = self._fuse(settings, texts[drops] if drops else None)
        return self._fused[key]

    def best(self) -> list[tuple[int, str, float]]:
        """Returns row, retriever and best score of each list of the original, or of a refined query."""
        lists, best = self._lists, []
        strategies, retrievers = lists.strategy.to_pylist(), lists.retriever.to_pylist()
        for number in np.flatnonzero(np.diff(lists.offsets)).tolist():
            if strategies[number] in (ORIGINAL, ITERATE):
                score = float(lists.scores[lists.offsets[number]])
                best.append((int(lists.query[number]), retrievers[number], score))
        return best

    def _fuse(self, settings: FuseSettings, indexed: Texts | None) -> FusedArm:
        hits = self.hits
        if indexed is None:
            fused = fuse(hits, settings, self._similarity)
            page = self._pages_of(fused)
        else:
            page_of_pair = np.full(len(hits.pair_query), -1, dtype=np.int64)

            def texts(alone: Fused) -> list[str]:
                page_of_pair[alone.pairs] = self._pages_of(alone)
                document, page = hits.pair_document[alone.pairs], page_of_pair[alone.pairs]
                return candidate_texts(hits.doc_ids, document, page, self.pages, indexed)

            fused = fuse_distinct(hits, settings, self._similarity, texts)
            page = page_of_pair[fused.pairs]
        sources = _sources(self._lists, fused) if self._keeps else None
        row = np.repeat(np.arange(self._rows), np.diff(fused.offsets))
        candidates = ArmCandidates(row, hits.pair_document[fused.pairs], page, fused.scores, sources)
        return FusedArm(candidates, fused.stood_in)

    def _pages_of(self, fused: Fused) -> np.ndarray:
        """Returns the index in `pages` of the page of each candidate; -1: none of its lists is of the web."""
        page = np.full(len(fused.pairs), -1, dtype=np.int64)
        source = np.flatnonzero(self._first_page[fused.source_list] >= 0) if self.pages else np.zeros(0, dtype=np.int64)
        if len(source):
            lists, candidate = fused.source_list[source], np.repeat(np.arange(len(page)), np.diff(fused.source_offsets))[source]
            is_original = np.array([name == ORIGINAL for name in self._lists.strategy.to_pylist()])
            order = np.lexsort((~is_original[lists], candidate))[::-1]  # stable; of several the first is written last
            page[candidate[order]] = (self._first_page[lists] + fused.source_rank[source] - 1)[order]
        return page


def _settings(answer: Answer, strategies: set[str]) -> FuseSettings:
    """Returns the fusion of an arm over the lists of all strategies that share them: those that it lacks weigh 0."""
    others = strategies - answer.strategies
    own = {key: weight for key, weight in answer.fuse.weights.items() if key.partition("/")[0] not in others}
    return answer.fuse.model_copy(update={"weights": own | dict.fromkeys(others, 0.0)})


def _sources(lists: Lists, fused: Fused) -> pa.ListArray:
    """Returns the lists that each candidate comes from."""
    at = pa.array(fused.source_list)
    columns = [
        lists.strategy.take(at), pa.array(lists.position).take(at), lists.retriever.take(at),
        pa.array(fused.source_rank.astype(np.int32)), pa.array(fused.source_score),
    ]  # fmt: skip
    return nested(fused.source_offsets, pa.StructArray.from_arrays(columns, fields=list(SOURCE)), pa.list_(SOURCE))


def fusion_notes(arm: FusedArm) -> list[list[dict[str, Any]]]:
    """Returns the notes on each query of an arm with the original standing in."""
    message = "no list of weight above 0 has a hit; the original's are used instead"
    return [[error_row("fuse", None, "original_stands_in", message)] if one else [] for one in arm.stood_in.tolist()]

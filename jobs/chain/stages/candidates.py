"""The candidates and the scores of a block as flat arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retrievers.ranking import ranks


class OfArm(NamedTuple):
    """The candidates of one arm, row by row, best first.

    Attributes:
        row: Of each.
        place: Its index among the candidates of its row (`fused`).
        document: Its index in `Candidates.doc_ids`.
        score: Its fused score.
        at: Its index among all candidates of the block.
    """

    row: np.ndarray
    place: np.ndarray
    document: np.ndarray
    score: np.ndarray
    at: np.ndarray


class Candidates:
    """The columns `documents`, `fused` and `scores` of a block.

    Attributes:
        rows: Of the block.
        doc_ids: Of the documents of all rows.
        document_row: The row of each.
        starts: Index of the first document of each row, shape (rows,).
        first: Index of the first candidate of each row, shape (rows,).
        document: The document of each candidate of the block, an index of `doc_ids`.
        score: Its fused score.
        rank: Its rank in its arm as it was fused, from 1.
        sources: Of each candidate of the block; null where they are not kept.
        scored: Whether there are scores.
        reranked: The score of each document by each reranker, shape (rerankers, documents); NaN: none.
        has_scores: Whether the rerankers have scored a row, shape (rows,), bool.
    """

    def __init__(self, table: pa.Table, arms: int, rerankers: int) -> None:
        """Reads the columns."""
        self.rows = table.num_rows
        documents = table.column("documents").combine_chunks()
        sizes = _lengths(documents)
        self.starts = np.cumsum(sizes) - sizes
        self.doc_ids = documents.flatten().field("doc_id")
        self.document_row = np.repeat(np.arange(self.rows), sizes)
        lists = table.column("fused").combine_chunks()
        fused, of_row = lists.flatten(), _lengths(lists)
        self._row = np.repeat(np.arange(self.rows), of_row)
        self.first = np.cumsum(of_row) - of_row
        arm = fused.field("arm").to_numpy(zero_copy_only=False)
        self._by_arm = np.argsort(arm, kind="stable")
        self._bounds = np.searchsorted(arm[self._by_arm], np.arange(arms + 1))
        self.document = self.starts[self._row] + fused.field("document").to_numpy(zero_copy_only=False)
        self.score = fused.field("score").to_numpy(zero_copy_only=False)
        self.rank = ranks(np.diff(np.flatnonzero(np.r_[True, np.diff(self._row * (arms + 1) + arm) != 0, True])))
        self.sources = fused.field("sources")
        self.scored = "scores" in table.column_names
        self.reranked = np.full((rerankers, len(self.doc_ids)), np.nan)
        self.has_scores = np.zeros(self.rows, dtype=bool)
        if self.scored:
            given = table.column("scores").combine_chunks()
            self.has_scores = pc.is_valid(given).to_numpy(zero_copy_only=False)
            flat, rows = given.flatten(), np.repeat(np.arange(self.rows), _lengths(given))
            at = self.starts[rows] + flat.field("document").to_numpy(zero_copy_only=False)
            self.reranked[flat.field("reranker").to_numpy(zero_copy_only=False), at] = flat.field("score").to_numpy(
                zero_copy_only=False
            )

    def of(self, arm: int) -> OfArm:
        """Returns the candidates of an arm, by its index."""
        at = self._by_arm[self._bounds[arm] : self._bounds[arm + 1]]
        row = self._row[at]
        return OfArm(row, at - self.first[row], self.document[at], self.score[at], at)


def _lengths(lists: pa.ListArray) -> np.ndarray:
    """Returns the length of each list, 0 of null."""
    lengths: np.ndarray = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths

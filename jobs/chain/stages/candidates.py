"""The candidates and the scores of a block as flat arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from jobs.chain.arms.shared_work import Answer
from jobs.tables import unnested
from retrievers.ranking import offsets_of, ranks


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
        reranked: The score of each document by each reranker, shape (rerankers, documents); NaN: none. Which of them an arm
            has, says `pairs`: the others were scored for other arms, or in an earlier round.
        has_scores: Whether the rerankers have scored a row, shape (rows,), bool.
    """

    def __init__(self, table: pa.Table, arms: int, rerankers: int) -> None:
        self.rows = table.num_rows
        self.document_row, documents = unnested(table, "documents")
        self.starts = offsets_of(np.bincount(self.document_row, minlength=self.rows))[:-1]
        self.doc_ids = documents.field("doc_id")
        self._row, fused = unnested(table, "fused")
        self.first = offsets_of(np.bincount(self._row, minlength=self.rows))[:-1]
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
            self.has_scores = table.column("scores").combine_chunks().is_valid().to_numpy(zero_copy_only=False)
            rows, flat = unnested(table, "scores")
            at = self.starts[rows] + flat.field("document").to_numpy(zero_copy_only=False)
            self.reranked[flat.field("reranker").to_numpy(zero_copy_only=False), at] = flat.field("score").to_numpy(
                zero_copy_only=False
            )

    def of(self, arm: int) -> OfArm:
        """Returns the candidates of an arm, by its index."""
        at = self._by_arm[self._bounds[arm] : self._bounds[arm + 1]]
        row = self._row[at]
        return OfArm(row, at - self.first[row], self.document[at], self.score[at], at)

    def pairs(self, arm: int, answer: Answer) -> np.ndarray:
        """Returns how many first candidates of each row the reranker of an arm has scored for it, shape (rows,)."""
        if answer.reranker is None:
            return np.zeros(self.rows, dtype=np.int64)
        lengths = np.bincount(self.of(arm).row, minlength=self.rows)
        return np.where(self.has_scores, np.minimum(lengths, answer.candidates), 0)

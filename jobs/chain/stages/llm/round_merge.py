"""Merges the candidates of a further round into those of before; pairs without a score are scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cluster.run.stage import heartbeat
from jobs.chain.arms.generations import iterate_settings
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.stages.llm.round_state import RoundState
from jobs.chain.stages.score import Score
from jobs.chain.steps.merging import QueryCandidates, Rankings, RoundArm, candidates_of, merged
from jobs.chain.tables import DOCUMENT, FUSED, WEB_HIT
from retrievers.retriever import DocumentStore

Row = dict[str, Any]


class MergedRound(NamedTuple):
    """A block with the candidates of a round, not ordered yet, and the block of the round with what scoring has cost."""

    table: pa.Table
    block: pa.Table


class RoundMerge:
    """Merges the candidates of the rounds of a worker."""

    def __init__(self, work: SharedWork, documents: Mapping[str, DocumentStore], score: Score | None) -> None:
        self._work, self._documents, self._score = work, documents, score
        self._arms = [RoundArm(at, work.answers[at], iterate_settings(of)) for at, of in work.generating("iteration")]
        self._counts_pairs = work.only is None and len(self._arms) > 1  # of one arm with rounds the costs tell them

    def __call__(self, table: pa.Table, block: pa.Table, rows: Sequence[int], state: RoundState) -> MergedRound:
        """Returns the block with the candidates of a round.

        Args:
            table: The block.
            block: That of the round, fused.
            rows: Of its queries in `table`.
            state: Of the block; it has the rankings of the rounds.
        """
        before, more = candidates_of(table.take(pa.array(rows))), candidates_of(block)
        rankings = [state.rankings.setdefault(row, {}) for row in rows]
        texts = self._texts(before, more, rankings)
        found = [
            merged(known, of, self._arms, earlier, texts) for known, of, earlier in zip(before, more, rankings, strict=True)
        ]
        every, columns = range(len(rows)), {"documents": DOCUMENT, "fused": FUSED, "web": WEB_HIT}
        for place, (name, kind) in enumerate(columns.items()):
            block = _replaced(block, name, every, pa.array([one[place] for one in found], pa.list_(kind)))
        if self._score is not None:
            block = block.append_column("scores", table.column("scores").take(pa.array(rows)))
            scored = self._score.scored(block)
            block = scored.table
            if self._counts_pairs:
                state.counts.update(scored.counts)
        for name in (*columns, *(["scores"] if self._score is not None else [])):
            table = _replaced(table, name, rows, block.column(name).combine_chunks())
        return MergedRound(table, block)

    def _texts(
        self, before: Sequence[QueryCandidates], more: Sequence[QueryCandidates], rankings: Sequence[Rankings]
    ) -> dict[int, dict[str, str]]:
        """Returns index of an arm that drops duplicates -> doc_id -> text, of all candidates of all rounds but web pages."""
        wanted: dict[str, dict[str, None]] = {}
        dropping = [(own, of) for own, of in enumerate(self._arms) if of.answer.fuse.duplicates == "drop"]
        for own, of in dropping:
            ids = wanted.setdefault(of.answer.documents, {})
            for known, found, earlier in zip(before, more, rankings, strict=True):
                ranked = [one for ranking in earlier.get(of.number, ()) for one in ranking]
                ranked += [one for one in known.fused if one["arm"] == of.number]
                documents = [known.documents[one["document"]] for one in ranked]
                documents += [found.documents[one["document"]] for one in found.fused if one["arm"] == own]
                ids |= dict.fromkeys(document["doc_id"] for document in documents if document["web"] is None)
        texts = {
            key: dict(zip(ids, self._documents[key].texts(list(ids), heartbeat), strict=True)) for key, ids in wanted.items()
        }
        return {of.number: texts[of.answer.documents] for _, of in dropping}


def _replaced(table: pa.Table, name: str, rows: Sequence[int], values: pa.Array) -> pa.Table:
    at = np.arange(table.num_rows)
    at[list(rows)] = table.num_rows + np.arange(len(rows))
    both = pa.concat_arrays([table.column(name).combine_chunks(), values])
    index = table.schema.get_field_index(name)
    return table.set_column(index, table.schema.field(index), both.take(pa.array(at)))

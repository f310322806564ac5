"""The ordering stage: orders the candidates of every arm by their scores, and cuts them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from jobs.chain.answer import ranked
from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.stages.candidates import Candidates
from jobs.chain.tables import RANKED
from jobs.tables import nested, with_columns
from retrievers.ranking import offsets_of, ranks


class Order:
    """A worker of the ordering stage.

    Without a reranker candidates are ranked as they were fused; so they are where the reranker failed on a query.
    """

    NEEDS = ("documents", "fused")  # and `scores`, with a reranker
    ADDS = pa.schema([("ranked", pa.list_(RANKED))])

    def __init__(self, work: SharedWork) -> None:
        self._work = work

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with the ranks of every arm: its results, and behind them what measures read."""
        block = Candidates(table, len(self._work.answers), len(self._work.rerankers))
        rows, arms, places, scores = [], [], [], []
        for number, answer in enumerate(self._work.answers):
            of = block.of(number)
            lengths = np.bincount(of.row, minlength=block.rows)
            reranked = None if answer.reranker is None else block.reranked[answer.reranker][of.document]
            doc_ids = block.doc_ids.take(pa.array(of.document))
            found = ranked(lengths, doc_ids, of.score, reranked, block.pairs(number, answer), answer.combine)
            kept = ranks(lengths) <= self._work.ranked(number)
            rows.append(of.row[kept])
            arms.append(np.full(int(kept.sum()), number, dtype=np.int16))
            places.append(of.place[found.places[kept]])
            scores.append(found.scores[kept])
        row, arm = np.concatenate(rows), np.concatenate(arms)
        order = pa.array(np.lexsort((arm, row)))  # stable: ranks stay
        columns = [pa.array(arm), pa.array(np.concatenate(places).astype(np.int32)), pa.array(np.concatenate(scores))]
        flat = pa.StructArray.from_arrays([one.take(order) for one in columns], fields=list(RANKED))
        return with_columns(
            table, self.ADDS, [nested(offsets_of(np.bincount(row, minlength=block.rows)), flat, pa.list_(RANKED))]
        )

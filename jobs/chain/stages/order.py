"""The ordering stage: sorts and cuts candidates by their scores."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.tables import RESULT, nested
from retrievers.order import order
from retrievers.ranking import offsets_of, ranges


class Order:
    """A worker of the ordering stage.

    Without a reranker all candidates are results, in fused order; if the reranker failed on a query, the first `keep` are.
    """

    NEEDS = ("candidates",)  # and `scores`, with a reranker
    ADDS = pa.schema([("hits", pa.list_(RESULT))])

    def __init__(self, combine: str, keep: int) -> None:
        """Sets how results are chosen.

        Args:
            combine: how the fused and the reranked order are combined, the config's `rerank.combine`.
            keep: number of results per query.
        """
        self._combine, self._keep = combine, keep

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with its results as column `hits`."""
        lists = table.column("candidates").combine_chunks()
        flat = lists.flatten()
        lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
        starts = np.cumsum(lengths) - lengths
        rows, places, scores = [], [], []
        reranked = np.full(len(flat), np.nan)
        scored = np.zeros(len(lengths), dtype=bool)
        if "scores" in table.column_names:
            given = table.column("scores").combine_chunks()
            scored = pc.is_valid(given).to_numpy(zero_copy_only=False)
            all_places = ranges(starts[scored], lengths[scored])
            reranked[all_places] = given.flatten().field("score").to_numpy(zero_copy_only=False)
            ordered = order(
                offsets_of(lengths[scored]),
                flat.field("doc_id").take(pa.array(all_places)),
                reranked[all_places],
                self._combine,
                self._keep,
            )
            rows.append(np.repeat(np.flatnonzero(scored), np.diff(ordered.offsets)))
            places.append(all_places[ordered.places])
            scores.append(ordered.scores)
            kept = np.minimum(lengths, self._keep)
        else:
            kept = lengths
        left = ranges(starts[~scored], kept[~scored])
        rows.append(np.repeat(np.flatnonzero(~scored), kept[~scored]))
        places.append(left)
        scores.append(flat.field("score").to_numpy(zero_copy_only=False)[left])
        return table.append_column(self.ADDS.field("hits"), _hits(flat, len(lengths), rows, places, scores, reranked))


def _hits(
    flat: pa.StructArray,
    queries: int,
    rows: list[np.ndarray],
    places: list[np.ndarray],
    scores: list[np.ndarray],
    reranked: np.ndarray,
) -> pa.ListArray:
    """Returns the column `hits`; results of a row keep their given order."""
    row, chosen, score = np.concatenate(rows), np.concatenate(places), np.concatenate(scores)
    sorting = np.argsort(row, kind="stable")
    chosen = chosen[sorting]
    kept = flat.take(pa.array(chosen, pa.int64()))
    columns = [
        kept.field("doc_id"),
        pa.array(score[sorting], pa.float64()),
        kept.field("score"),
        pa.array(reranked[chosen], pa.float64(), from_pandas=True),  # NaN: no score
        kept.field("sources"),
    ]
    hits = pa.StructArray.from_arrays(columns, fields=list(RESULT))
    return nested(offsets_of(np.bincount(row, minlength=queries)), hits, Order.ADDS.field("hits").type)

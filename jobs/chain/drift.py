"""Drift: rewrites whose vectors are far from that of the original, as they are searched.

The vectors are those of `fuse.redundancy: cosine`. Only texts that are searched as queries count: a passage may be far from a
question. Of a strategy whose texts make one search, the mean of their vectors is compared, and the first text is flagged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.chain.search_texts import Text, rewrites_of

DRIFT = "drift"  # the flag of `rewrites.guards`
Drifted = set[tuple[int, str, int]]
"""Row, strategy and position of texts."""


def drifted(texts: Sequence[Text], vectors: np.ndarray | None, least: float | None) -> Drifted:
    """Returns the texts whose cosine with their original is below `least`.

    Args:
        texts: Of a block, row by row, the original of each row first.
        vectors: Of them, shape (texts, dim), of length 1; None: there are none.
        least: `rewrite.guards.drift`; None: nothing drifts.
    """
    if vectors is None or least is None:
        return set()
    first = np.array([place - text.number for place, text in enumerate(texts)], dtype=np.int64)
    cosines = np.einsum("ij,ij->i", vectors, vectors[first]).round(6) if len(texts) else np.zeros(0)
    return {
        (text.row, text.strategy, text.position)
        for text, cosine in zip(texts, cosines.tolist(), strict=True)
        if text.number and cosine < least and all(one.kind == "query" for one in rewrites_of(text.search))
    }


def is_drifted(rewrite: Mapping[str, Any], row: int, drifted_texts: Drifted) -> bool:
    """Returns True if a row of rewrites/ has drifted."""
    return (row, rewrite["strategy"], rewrite["position"]) in drifted_texts


def flagged(table: pa.Table, drifted_texts: Drifted) -> pa.Table:
    """Returns a block whose `rewrites` have the flag `drift` where they have drifted."""
    if not drifted_texts:
        return table
    index = table.schema.get_field_index("rewrites")
    rows = table.column(index).to_pylist()
    for row, rewrites in enumerate(rows):
        for rewrite in rewrites:
            if is_drifted(rewrite, row, drifted_texts):
                rewrite["guards"] = sorted({*(rewrite["guards"] or ()), DRIFT})
    return table.set_column(index, table.schema.field(index), pa.array(rows, table.schema.field(index).type))

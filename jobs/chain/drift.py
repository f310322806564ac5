"""Drift: rewrites whose vectors are far from that of the original, as they are searched.

The vectors are those of `fuse.redundancy: cosine`. Only texts that are searched as queries count: a passage may be far from a
question. Of a strategy whose texts make one search, the mean of their vectors is compared, and the first text is flagged.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.chain.arms.shared_work import SharedWork
from jobs.chain.search_texts import Text, rewrites_of
from jobs.counts import FLAGGED_TEXTS, arm_key
from jobs.tables import with_values
from rewriters.guards.guards import NEAR_DUPLICATE

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


def note_drift(
    table: pa.Table, counts: Counter[str], work: SharedWork, search: int, far: Drifted, rewrites: Sequence[Any]
) -> pa.Table:
    """Returns the block with the flags of drift; of several arms all flags of guards are counted, as a run of each would.

    Near-duplicates are left out: whether a text has an earlier one depends on the other strategies of an arm, and arms share
    texts.

    Args:
        table: The block.
        counts: Of the block; those of several arms are added.
        work: Of all arms.
        search: The index of that by whose vectors texts have drifted.
        far: The texts that have drifted; they count in arms that weigh lists by cosines.
        rewrites: Of all readings, row by row.
    """
    if work.only is not None:
        for row, of_row in enumerate(rewrites if far else ()):
            for rewrite in (one for one in of_row if _is_drifted(one, row, far)):
                rewrite["guards"] = sorted({*(rewrite["guards"] or ()), DRIFT})
        return with_values(table, {"rewrites": pa.array(rewrites, table.schema.field("rewrites").type)}) if far else table
    for answer in (answer for answer in work.answers if answer.search == search):
        of_arm = far if answer.fuse.redundancy == "cosine" else set()
        for row, of_row in enumerate(rewrites):
            for rewrite in work.reading_of(answer).rewrites(answer.strategies, of_row):
                flags = [flag for flag in rewrite["guards"] or () if flag != NEAR_DUPLICATE]
                flags += [DRIFT] if _is_drifted(rewrite, row, of_arm) else []
                counts.update(arm_key(answer.arm, FLAGGED_TEXTS.key(rewrite["strategy"], flag)) for flag in flags)
    return table


def _is_drifted(rewrite: Mapping[str, Any], row: int, far: Drifted) -> bool:
    return (row, rewrite["strategy"], rewrite["position"]) in far

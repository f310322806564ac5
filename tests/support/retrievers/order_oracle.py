"""The order of one query's candidates by sorting tuples: what `retrievers.order` must equal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Reranked(NamedTuple):
    """A result: ``score`` is what it is ranked by."""

    doc_id: str
    score: float
    fused_score: float


def combine(
    doc_ids: Sequence[str], fused_scores: Sequence[float], scores: Sequence[float], how: str = "blend", keep: int = 10
) -> list[Reranked]:
    """The results of one query, from its candidates in fused order."""
    numbers = [-math.inf if math.isnan(score) else float(score) for score in scores]
    rows = list(zip(doc_ids, fused_scores, numbers, strict=True))
    by_reranker = sorted(rows, key=lambda row: (-row[2], row[0]))
    if how == "replace":
        return [Reranked(doc_id, score, fused) for doc_id, fused, score in by_reranker[: max(0, keep)]]
    rank = {row[0]: place for place, row in enumerate(by_reranker, start=1)}
    blended = [
        Reranked(doc_id, round(1 / (20 + rank[doc_id]) + 1 / (20 + place), 12), fused)
        for place, (doc_id, fused, _) in enumerate(rows, start=1)
    ]
    return sorted(blended, key=lambda hit: (-hit.score, hit.doc_id))[: max(0, keep)]

"""Documents with the same text under several ids: only the best placed of them stays among the candidates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from retrievers.fusion import Fused
from retrievers.ranking import offsets_of, ranges


def without_duplicates(fused: Fused, texts: Sequence[str], chars: int | None) -> Fused:
    """Returns the candidates without those whose text a better placed candidate of the same query has.

    Sources are not merged: a candidate keeps the lists that hold its own id.

    Args:
        fused: By `fuse`.
        texts: Of each candidate.
        chars: Characters that are compared, after case folding and with single spaces; None: all.
    """
    query = np.repeat(np.arange(len(fused.offsets) - 1), np.diff(fused.offsets))
    seen: set[tuple[int, str]] = set()
    kept = []
    for place, (number, text) in enumerate(zip(query.tolist(), texts, strict=True)):
        key = number, " ".join(text.casefold().split())[:chars]
        if key not in seen:
            seen.add(key)
            kept.append(place)
    chosen = np.array(kept, dtype=np.int64)
    sizes = np.diff(fused.source_offsets)[chosen]
    sources = ranges(fused.source_offsets[chosen], sizes)
    return fused._replace(
        offsets=offsets_of(np.bincount(query[chosen], minlength=len(fused.offsets) - 1)),
        doc_ids=fused.doc_ids.take(pa.array(chosen)),
        scores=fused.scores[chosen],
        source_offsets=offsets_of(sizes),
        source_list=fused.source_list[sources],
        source_rank=fused.source_rank[sources],
        source_score=fused.source_score[sources],
        pairs=fused.pairs[chosen],
    )

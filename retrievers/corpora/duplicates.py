"""Documents with the same text under several ids: only the best placed of them is a candidate, and the next ones move up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from retrievers.corpora.collections import ALL, NO_COLLECTIONS, fuse_collections
from retrievers.fusion import Fused
from retrievers.lists import Hits
from retrievers.ranking import offsets_of, ranges
from retrievers.redundancy import Similarity
from retrievers.settings import FuseSettings

DUPLICATES_VERSION = 2  # incremented when dropping duplicates would leave other candidates; part of a run's fingerprint


def fuse_distinct(
    hits: Hits,
    settings: FuseSettings,
    similarity: Similarity | None,
    texts: Callable[[np.ndarray], Sequence[str]],
    collections: Mapping[str, str] = NO_COLLECTIONS,
) -> Fused:
    """Returns `fuse_collections` with the `settings.keep` best candidates of different texts, whichever collection has them.

    Texts are read, by `texts` of pairs of `hits`, in the order of the candidates, and no further than it takes to find so many.
    A text has the score of its best placed document: with `best` and one retriever the best score of its documents.
    """
    keep, chars = settings.keep, settings.duplicate_chars
    fused = fuse_collections(hits, settings.model_copy(update={"keep": ALL}), similarity, collections)
    begins, sizes = fused.offsets[:-1], np.diff(fused.offsets)
    read, kept = np.zeros(len(sizes), dtype=np.int64), np.zeros(len(sizes), dtype=np.int64)
    seen: set[tuple[int, str]] = set()
    chosen: list[int] = []
    while len(open_queries := np.flatnonzero((kept < keep) & (read < sizes))):
        wanted = np.minimum(keep - kept, sizes - read)[open_queries]
        places = ranges(begins[open_queries] + read[open_queries], wanted)
        found = texts(fused.pairs[places])
        for query, place, text in zip(np.repeat(open_queries, wanted).tolist(), places.tolist(), found, strict=True):
            key = query, as_compared(text, chars)
            if key not in seen:
                seen.add(key)
                chosen.append(place)
                kept[query] += 1
        read[open_queries] += wanted
    return _only(fused, np.array(sorted(chosen), dtype=np.int64))


def as_compared(text: str, chars: int | None) -> str:
    """Returns what two texts have in common that are duplicates; `chars`: of their beginnings, None: of them whole."""
    return " ".join(text.casefold().split())[:chars]


def _only(fused: Fused, chosen: np.ndarray) -> Fused:
    """Returns some of the candidates; their sources are those of their own ids."""
    query = np.repeat(np.arange(len(fused.offsets) - 1), np.diff(fused.offsets))
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

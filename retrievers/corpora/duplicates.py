"""Documents with the same text under several ids: one candidate, which has the ranks of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from retrievers.corpora.collections import ALL, NO_COLLECTIONS, fuse_collections, id_parts
from retrievers.fusion import Fused
from retrievers.lists import Hits
from retrievers.ranking import offsets_of, ranges, ranks
from retrievers.redundancy import Similarity
from retrievers.settings import FuseSettings

DUPLICATES_VERSION = 3  # incremented when dropping duplicates would leave other candidates; part of a run's fingerprint


def fuse_distinct(
    hits: Hits,
    settings: FuseSettings,
    similarity: Similarity | None,
    texts: Callable[[np.ndarray], Sequence[str]],
    collections: Mapping[str, str] = NO_COLLECTIONS,
) -> Fused:
    """Returns `fuse_collections` of documents with the same text as one, which has the ranks of all of them in each list.

    Of a list the best rank of them counts, and what stands behind the others moves up. The document is called by the id that
    stands best without that. `texts` returns the texts of pairs of `hits`: of every candidate. Collections are fused apart, so
    a text of two of them is the better placed of both.
    """
    every = settings.model_copy(update={"keep": ALL})
    alone = fuse_collections(hits, every, similarity, collections)
    numbers: dict[tuple[int, str], int] = {}
    first: dict[tuple[int, str], int] = {}  # text and collection -> pair
    text_of, twin_of = np.zeros(len(hits.pair_query), dtype=np.int64), np.arange(len(hits.pair_query))
    queries, doc_ids = hits.pair_query[alone.pairs].tolist(), alone.doc_ids.to_pylist()
    for query, pair, doc_id, text in zip(queries, alone.pairs.tolist(), doc_ids, texts(alone.pairs), strict=True):
        number = numbers.setdefault((query, as_compared(text, settings.duplicate_chars)), len(numbers))
        text_of[pair], collection = number, id_parts(doc_id)[0] if collections else ""
        twin_of[pair] = first.setdefault((number, collection), pair)
    joined, pairs = _joined(hits, twin_of, settings.depth)
    fused = fuse_collections(joined, every, similarity, collections)
    fused = fused._replace(pairs=pairs[fused.pairs])
    chosen = np.sort(np.unique(text_of[fused.pairs], return_index=True)[1])
    kept = ranks(np.bincount(hits.pair_query[fused.pairs[chosen]], minlength=hits.queries)) <= settings.keep
    return _only(fused, chosen[kept])


def _joined(hits: Hits, twin_of: np.ndarray, depth: int) -> tuple[Hits, np.ndarray]:
    """Returns the first `depth` hits of each list with a pair in place of its twins, and the pairs that are left."""
    pairs, pair_of = np.unique(twin_of, return_inverse=True)
    shallow = np.flatnonzero(hits.rank <= depth)
    key = hits.hit_list[shallow] * max(1, len(pairs)) + pair_of[hits.pair[shallow]]
    left = np.sort(shallow[np.unique(key, return_index=True)[1]])  # the first of each list and pair
    pair, lengths = pair_of[hits.pair[left]], np.bincount(hits.hit_list[left], minlength=len(hits.lengths))
    return hits._replace(
        lengths=lengths, hit_list=hits.hit_list[left], rank=ranks(lengths), score=hits.score[left], pair=pair,
        pair_query=hits.pair_query[pairs], pair_document=hits.pair_document[pairs], by_pair=np.argsort(pair, kind="stable"),
        pair_offsets=offsets_of(np.bincount(pair, minlength=len(pairs))),
    ), pairs  # fmt: skip


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

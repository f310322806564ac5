"""Documents with the same text under several ids: one candidate, which has the ranks of all of them."""

from collections.abc import Callable, Sequence

import numpy as np

from retrievers.fusion import Fused, fuse
from retrievers.lists import Hits
from retrievers.ranking import offsets_of, ranks
from retrievers.redundancy import Similarity
from retrievers.settings import FuseSettings

_ALL = 1 << 30  # more candidates than a query has
DUPLICATES_VERSION = 3  # incremented when dropping duplicates would leave other candidates; part of a run's fingerprint


def fuse_distinct(
    hits: Hits, settings: FuseSettings, similarity: Similarity | None, texts: Callable[[Fused], Sequence[str]]
) -> Fused:
    """Returns `fuse` of documents with the same text as one, which has the ranks of all of them in each list.

    Of a list the best rank of them counts, and what stands behind the others moves up. The document is called by the id that
    stands best without that. `texts` returns the texts of all candidates.
    """
    alone = fuse(hits, settings.model_copy(update={"keep": _ALL}), similarity)
    first: dict[tuple[int, str], int] = {}  # query and text -> pair
    twin_of, queries = np.arange(len(hits.pair_query)), hits.pair_query[alone.pairs].tolist()
    for query, pair, text in zip(queries, alone.pairs.tolist(), texts(alone), strict=True):
        twin_of[pair] = first.setdefault((query, as_compared(text, settings.duplicate_chars)), pair)
    joined, pairs = _joined(hits, twin_of, settings.depth)
    fused = fuse(joined, settings, similarity)
    return fused._replace(pairs=pairs[fused.pairs])


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
    """Returns the key that duplicate texts share; `chars`: of their beginnings, None: of them whole."""
    return " ".join(text.casefold().split())[:chars]

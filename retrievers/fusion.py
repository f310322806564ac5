"""Fusion of the ranked lists of each query into one list of candidates: pure functions on flat arrays.

There is one list for each rewrite and retriever. Methods:

- `rrf`: sum of weight / (k + rank); Cormack, Clarke and Buettcher 2009.
- `minmax`: sum of weight x (score - min) / (max - min), minimum and maximum over the first `depth` hits of the list; a
  list contributes 0 to documents that it lacks (CombSUM; Fox and Shaw 1994).
- `weighted`: sum of weight x score; `best`: the highest weight x score. Scores of two retrievers have no common
  scale, so both methods fuse the lists of each retriever first, and then the results of the retrievers by rrf. With
  `divide: max` the fused scores of a query are divided by the highest of them.

The weight of a list is that of its strategy, or the one in `weights` (of the original's lists in queries with a fused list of
`hyde` that of `original+hyde`, the lowest of several), times that of its position, times that of its
retriever, times the redundancy weight (retrievers/redundancy.py). In `weighted` and `best` the weight of the retriever
multiplies its term of the rrf sum instead.

`by_document` computes what depends on the lists alone, `fuse` what depends on the settings, so that several arms share the
result of `by_document`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from retrievers.lists import BESIDE, ORIGINAL, Hits
from retrievers.ranking import among_best, offsets_of, order_by_score, ranges, ranks, rounded
from retrievers.redundancy import Similarity, list_redundancy

if TYPE_CHECKING:  # so that a worker that fuses loads no settings
    from retrievers.settings import FuseSettings

FUSION_VERSION = 1  # incremented when the same lists would give other candidates; part of a run's fingerprint
_ALL = 1 << 30  # more candidates than a query has
DUPLICATES_VERSION = 3  # likewise where documents with one text are dropped
DIVIDE_VERSION = 2  # likewise of `divide: max`; of 1, it divided the scores of each list


class Fused(NamedTuple):
    """The candidates of n queries, flat: best first, equal scores by doc_id.

    A source of a candidate is a fused list with the document among its first `depth` hits. The sources of a candidate are
    sorted by strategy, position and retriever. The lists of the original stood in for a query if they were fused despite their
    weight of 0, because no other list had a hit and a weight above 0; retrievers of weight 0 stay out of that, too, if another
    one has a hit.
    """

    offsets: np.ndarray  # of the candidates of each query, shape (n + 1,)
    doc_ids: pa.StringArray
    scores: np.ndarray
    source_offsets: np.ndarray  # of the sources of each candidate, shape (candidates + 1,)
    source_list: np.ndarray  # index in `Lists`
    source_rank: np.ndarray  # of the document in that list, from 1; repetitions of a document are not counted
    source_score: np.ndarray  # of the document in that list
    stood_in: np.ndarray  # shape (n,), bool
    overlap: np.ndarray  # shape (n,), bool: redundancy was computed by overlap; also for `cosine` without similarities
    pairs: np.ndarray  # index of each candidate's pair of query and document in `Hits`


def fuse(hits: Hits, settings: FuseSettings, similarity: Similarity | None = None) -> Fused:
    """Returns the candidates of each query; the order of the lists does not matter.

    `similarity` is that of the texts of the searches, None without a dense retriever; raises ValueError if a text is not in it.
    """
    depth, redundancy = settings.depth, settings.redundancy
    weight = _weights(hits, settings.weights)
    retriever_weight = np.array([settings.retriever_weights.get(name, 1.0) for name in hits.retrievers])[hits.retriever]
    has_hits = (hits.lengths > 0) & (depth > 0)
    is_fused = has_hits & (weight > 0) & (retriever_weight > 0)
    stood_in = np.zeros(len(weight), dtype=bool)
    for stands_in in (has_hits & hits.of_strategy(ORIGINAL) & (retriever_weight > 0), has_hits & hits.of_strategy(ORIGINAL)):
        has_fused_list = np.bincount(hits.query[is_fused], minlength=hits.queries) > 0
        is_fallback = stands_in & ~has_fused_list[hits.query]
        stood_in, is_fused = stood_in | is_fallback, is_fused | is_fallback
    weight = np.where(stood_in, 1.0, weight)
    retriever_weight = np.where(stood_in & (retriever_weight == 0), 1.0, retriever_weight)
    overlap = np.full(hits.queries, redundancy == "overlap")
    if redundancy != "none":
        if redundancy == "cosine":
            overlap = np.ones_like(overlap) if similarity is None else similarity.missing
        redundancies = list_redundancy(hits, is_fused, has_hits, depth, overlap, similarity)
        weight = np.where(is_fused, weight * (1.0 / redundancies), 0.0)

    if settings.method not in JOINING:
        weight = weight * retriever_weight

    used = is_fused[hits.hit_list] & (hits.rank <= depth)
    score = _finite(hits, used)
    selection = slice(None) if used.all() else used  # a slice copies nothing
    part = hits._replace(
        hit_list=hits.hit_list[selection], pair=hits.pair[selection], rank=hits.rank[selection], score=score[selection]
    )
    total = METHODS[settings.method](part, weight[part.hit_list], retriever_weight, settings.k)

    list_counts = np.bincount(part.pair, minlength=len(hits.pair_query))  # of each pair
    with_hits = np.flatnonzero(list_counts)
    if settings.divide == "max" and settings.method in JOINING:
        highest = np.zeros(hits.queries)
        np.maximum.at(highest, hits.pair_query[with_hits], total[with_hits])
        total = total / np.where(highest > 0, highest, 1.0)[hits.pair_query]
    with_hits = with_hits[among_best(hits.pair_query[with_hits], total[with_hits], settings.keep)]
    query, totals = hits.pair_query[with_hits], rounded(total[with_hits])
    order = order_by_score(query, totals)  # pairs are sorted by query and document
    order = order[ranks(np.bincount(query, minlength=hits.queries)) <= settings.keep]
    chosen = with_hits[order]
    sources = hits.by_pair[ranges(hits.pair_offsets[chosen], hits.pair_offsets[chosen + 1] - hits.pair_offsets[chosen])]
    sources = sources[used[sources]]
    return Fused(
        offsets_of(np.bincount(query[order], minlength=hits.queries)),
        hits.doc_ids.take(pa.array(hits.pair_document[chosen])),
        totals[order],
        offsets_of(list_counts[chosen]),
        hits.list_index[hits.hit_list[sources]],
        hits.rank[sources],
        score[sources],
        np.bincount(hits.query[stood_in], minlength=hits.queries) > 0,
        overlap,
        chosen,
    )


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
    joined, pairs = _without_twins(hits, twin_of, settings.depth)
    fused = fuse(joined, settings, similarity)
    return fused._replace(pairs=pairs[fused.pairs])


def _without_twins(hits: Hits, twin_of: np.ndarray, depth: int) -> tuple[Hits, np.ndarray]:
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


def list_weight(weights: Mapping[str, float], strategy: str, retriever: str, default: float) -> float:
    """Returns the weight of a list by its strategy: without that of its position, of its retriever, and redundancy.

    In `fuse.weights` strategy/retriever has precedence over strategy; where it has neither, `default` is the strategy's own.
    """
    return weights.get(f"{strategy}/{retriever}", weights.get(strategy, default))


def takes_part(settings: FuseSettings, strategy: str, retriever: str, default: float, position_weight: float = 1.0) -> bool:
    """Returns True if a list has a weight above 0; arguments as of `list_weight`, and the weight of its position."""
    weight = list_weight(settings.weights, strategy, retriever, default) * position_weight
    return weight > 0 and settings.retriever_weights.get(retriever, 1.0) > 0


def _weights(hits: Hits, weights: Mapping[str, float]) -> np.ndarray:
    """Returns the weight of each list without redundancy, shape (lists,)."""
    configured = np.array([[list_weight(weights, s, r, np.nan) for r in hits.retrievers] for s in hits.strategies])
    given = configured.reshape(len(hits.strategies), -1)[hits.strategy, hits.retriever] if configured.size else hits.weight
    counted: np.ndarray = np.where(np.isnan(given), hits.weight, given) * hits.position_weight
    beside = np.full(hits.queries, np.inf)
    for key in (key for key in weights if key.startswith(BESIDE)):
        is_fused = hits.of_strategy(key.removeprefix(BESIDE)) & (counted > 0) & (hits.lengths > 0)
        beside[hits.query[is_fused]] = np.minimum(beside[hits.query[is_fused]], weights[key])
    return np.where(hits.of_strategy(ORIGINAL) & np.isfinite(beside[hits.query]), beside[hits.query], counted)


def _finite(hits: Hits, used: np.ndarray) -> np.ndarray:
    """Returns the scores with the lowest finite score of the list (0.0 without any) in place of those that are not finite."""
    not_finite = ~np.isfinite(hits.score)
    if not not_finite.any():
        return hits.score
    finite = used & ~not_finite
    lowest = np.full(len(hits.query), np.inf)
    np.minimum.at(lowest, hits.hit_list[finite], hits.score[finite])
    lowest[np.isinf(lowest)] = 0.0
    return np.where(not_finite, lowest[hits.hit_list], hits.score)


# Each method returns the score of every pair of query and document, shape (pairs,), by the hits that are fused, the weight of
# each, that of each list's retriever, which `weight` has, too, unless retrievers are joined, and k. np.bincount adds in the
# order of the hits, which `by_document` sorts, so the sums do not depend on the order of the caller's lists.


def _rrf(hits: Hits, weight: np.ndarray, retriever_weight: np.ndarray, k: float) -> np.ndarray:
    return np.bincount(hits.pair, weight / (k + hits.rank), len(hits.pair_query))


def _minmax(hits: Hits, weight: np.ndarray, retriever_weight: np.ndarray, k: float) -> np.ndarray:
    begins = np.flatnonzero(np.diff(hits.hit_list, prepend=-1))
    lengths = np.diff(begins, append=len(hits.hit_list))
    low, high = np.minimum.reduceat(hits.score, begins), np.maximum.reduceat(hits.score, begins)
    span = np.repeat(high - low, lengths)
    # with equal scores, or one hit, every hit is the best of its list, and the best of a list gets 1
    share = np.divide(hits.score - np.repeat(low, lengths), span, out=np.ones_like(span), where=span > 0)
    return np.bincount(hits.pair, weight * share, len(hits.pair_query))


def _weighted(hits: Hits, weight: np.ndarray, retriever_weight: np.ndarray, k: float) -> np.ndarray:
    return _joined(hits, weight, retriever_weight, k, lambda pair, value: np.bincount(pair, value, len(hits.pair_query)))


def _best(hits: Hits, weight: np.ndarray, retriever_weight: np.ndarray, k: float) -> np.ndarray:
    def highest(pair: np.ndarray, value: np.ndarray) -> np.ndarray:
        score = np.full(len(hits.pair_query), -np.inf)
        np.maximum.at(score, pair, value)
        return score

    return _joined(hits, weight, retriever_weight, k, highest)


def _joined(
    hits: Hits, weight: np.ndarray, retriever_weight: np.ndarray, k: float, within: Callable[..., np.ndarray]
) -> np.ndarray:
    """Returns the scores within the retriever, or, for queries with several retrievers, weighted rrf over their ranks."""
    retriever, value = hits.retriever[hits.hit_list], weight * hits.score
    alone, joined = np.zeros(len(hits.pair_query)), np.zeros(len(hits.pair_query))
    retrievers = np.zeros(hits.queries, dtype=np.int64)
    for number in range(len(hits.retrievers)):
        mask = retriever == number
        pairs = np.flatnonzero(np.bincount(hits.pair[mask], minlength=len(hits.pair_query)))
        score, query = within(hits.pair[mask], value[mask])[pairs], hits.pair_query[pairs]
        lengths = np.bincount(query, minlength=hits.queries)
        order = order_by_score(query, rounded(score))
        alone[pairs] = score
        share = np.zeros(hits.queries)  # all lists of a query and retriever have the same
        share[hits.query[hits.hit_list[mask]]] = retriever_weight[hits.hit_list[mask]]
        joined[pairs[order]] += share[query] / (k + ranks(lengths))
        retrievers += lengths > 0
    return np.where(retrievers[hits.pair_query] > 1, joined, alone)


METHODS = {"rrf": _rrf, "minmax": _minmax, "weighted": _weighted, "best": _best}
JOINING = ("weighted", "best")  # fuse within each retriever, then join the retrievers

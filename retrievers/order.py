"""The final order of each query's candidates, from fusion and a reranker: pure functions on flat arrays."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from retrievers.ranking import encode, offsets_of, order_by_score, ranks, rounded

ORDER_VERSION = 1  # incremented when the same scores would give another order; part of a run's fingerprint
BLEND_K = 20


class Ordered(NamedTuple):
    """The results of n queries, flat: best first, equal scores by doc_id."""

    offsets: np.ndarray  # shape (n + 1,)
    places: np.ndarray  # index of each result among the candidates
    scores: np.ndarray  # the reranker's, or the blend


def order(offsets: np.ndarray, doc_ids: pa.StringArray, scores: np.ndarray, how: str = "blend", keep: int = 10) -> Ordered:
    """Returns the first `keep` candidates of each query in their final order.

    - `replace`: by the reranker's score alone.
    - `blend`: by 1 / (20 + rank by reranker) + 1 / (20 + rank by fusion), both ranks from 1.

    `offsets` are the candidates of each query, shape (n + 1,), in fused order; NaN ranks last (with `replace` it becomes -inf).
    """
    if not offsets[-1] == len(doc_ids) == len(scores):
        raise ValueError(f"{offsets[-1]} candidates, {len(doc_ids)} doc_ids, {len(scores)} scores")
    lengths = np.diff(offsets)
    query = np.repeat(np.arange(len(lengths)), lengths)
    document, _ = encode(doc_ids)
    scores = np.where(np.isnan(scores), -np.inf, scores)
    places = order_by_score(query, scores, document)
    if how == "blend":
        by_reranker = np.empty(len(places))
        by_reranker[places] = ranks(lengths)
        scores = rounded(1 / (BLEND_K + by_reranker) + 1 / (BLEND_K + ranks(lengths)))
        places = order_by_score(query, scores, document)
    places = places[ranks(lengths) <= keep]
    return Ordered(offsets_of(np.clip(lengths, 0, max(0, keep))), places, scores[places])


class Ranked(NamedTuple):
    """The ranks of n queries, flat."""

    places: np.ndarray  # indexes of the candidates, by query and rank, shape (candidates,)
    scores: np.ndarray  # of each, by which it has its rank


def ranked(
    lengths: np.ndarray, doc_ids: pa.StringArray, scores: np.ndarray, reranked: np.ndarray, pairs: np.ndarray, how: str
) -> Ranked:
    """Returns the ranks of candidates: those that the reranker has scored, behind them the others, as they were fused.

    `lengths` are the candidates of each query, and `pairs` how many of the first ones the reranker has scored, shape (n,). Of
    each candidate, best first, are `doc_ids`, the fused `scores`, and those of the reranker (NaN: none).
    """
    row = np.repeat(np.arange(len(lengths)), lengths)
    given = ranks(lengths) <= pairs[row]
    rows = np.flatnonzero(given)
    every = int(pairs.max(initial=0))
    ordered = order(offsets_of(pairs), doc_ids.take(pa.array(rows)), reranked[rows], how, every)
    blended = scores.copy()
    blended[rows[ordered.places]] = ordered.scores
    places = np.concatenate([rows[ordered.places], np.flatnonzero(~given)])
    places = places[np.argsort(row[places], kind="stable")]
    return Ranked(places, blended[places])

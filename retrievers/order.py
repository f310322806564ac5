"""The final order of each query's candidates, from fusion and a reranker: pure functions on flat arrays."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from retrievers.ranking import encode, order_by_score, ranks, rounded

ORDER_VERSION = 1  # incremented when the same scores would give another order; part of a run's fingerprint
BLEND_K = 20


class Ranked(NamedTuple):
    """The ranks of n queries, flat."""

    places: np.ndarray  # indexes of the candidates, by query and rank, shape (candidates,)
    scores: np.ndarray  # of each, by which it has its rank


def order(lengths: np.ndarray, doc_ids: pa.StringArray, scores: np.ndarray, how: str) -> Ranked:
    """Returns the candidates of each query in their final order, equal scores by doc_id.

    - `replace`: by the reranker's score alone.
    - `blend`: by 1 / (20 + rank by reranker) + 1 / (20 + rank by fusion), both ranks from 1.

    `lengths` are the candidates of each query, shape (n,), in fused order; NaN ranks last (with `replace` it becomes -inf).
    """
    query = np.repeat(np.arange(len(lengths)), lengths)
    document, _ = encode(doc_ids)
    scores = np.where(np.isnan(scores), -np.inf, scores)
    places = order_by_score(query, scores, document)
    if how == "blend":
        by_reranker = np.empty(len(places))
        by_reranker[places] = ranks(lengths)
        scores = rounded(1 / (BLEND_K + by_reranker) + 1 / (BLEND_K + ranks(lengths)))
        places = order_by_score(query, scores, document)
    return Ranked(places, scores[places])


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
    ordered = order(pairs, doc_ids.take(pa.array(rows)), reranked[rows], how)
    blended = scores.copy()
    blended[rows[ordered.places]] = ordered.scores
    places = np.concatenate([rows[ordered.places], np.flatnonzero(~given)])
    places = places[np.argsort(row[places], kind="stable")]
    return Ranked(places, blended[places])

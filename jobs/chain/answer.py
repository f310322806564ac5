"""The order of an answer: candidates are ordered by their scores, and behind them stand those without one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from retrievers.order import order
from retrievers.ranking import offsets_of, ranks


class Ranked(NamedTuple):
    """The ranks of n queries, flat.

    Attributes:
        places: Indexes of the candidates, by query and rank, shape (candidates,).
        scores: Of each, by which it has its rank.
    """

    places: np.ndarray
    scores: np.ndarray


def ranked(
    lengths: np.ndarray,
    doc_ids: pa.StringArray,
    scores: np.ndarray,
    reranked: np.ndarray | None,
    pairs: np.ndarray,
    combine: str,
) -> Ranked:
    """Returns the ranks of candidates: by the reranker's scores where it has scored them, else as they were fused.

    Behind the candidates that were scored stand the others, as they were fused.

    Args:
        lengths: Candidates of each query, shape (n,).
        doc_ids: Of the candidates, best first.
        scores: Their fused scores.
        reranked: The reranker's scores, NaN: none; None without a reranker.
        pairs: How many first candidates of each query the reranker has scored, shape (n,).
        combine: The config's `rerank.combine`.
    """
    places = np.arange(len(scores))
    if reranked is None:
        return Ranked(places, scores)
    row = np.repeat(np.arange(len(lengths)), lengths)
    given = ranks(lengths) <= pairs[row]
    of = np.flatnonzero(given)
    every = int(pairs.max(initial=0))
    ordered = order(offsets_of(pairs), doc_ids.take(pa.array(of)), reranked[of], combine, every)
    found = scores.copy()
    found[of[ordered.places]] = ordered.scores
    places = np.concatenate([of[ordered.places], np.flatnonzero(~given)])
    places = places[np.argsort(row[places], kind="stable")]
    return Ranked(places, found[places])

"""The arithmetic of an answer: lists are fused, and the candidates are ordered by their scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from retrievers.corpora.collections import NO_COLLECTIONS, fuse_collections
from retrievers.corpora.duplicates import fuse_distinct
from retrievers.fusion import Fused
from retrievers.lists import Hits
from retrievers.order import order
from retrievers.ranking import offsets_of, ranks
from retrievers.redundancy import Similarity
from retrievers.settings import FuseSettings


class Ranked(NamedTuple):
    """The ranks of n queries, flat.

    Attributes:
        places: Indexes of the candidates, by query and rank, shape (candidates,).
        scores: Of each, by which it has its rank.
    """

    places: np.ndarray
    scores: np.ndarray


def fused(
    hits: Hits,
    settings: FuseSettings,
    similarity: Similarity | None = None,
    texts: Callable[[np.ndarray], Sequence[str]] | None = None,
    collections: Mapping[str, str] = NO_COLLECTIONS,
) -> Fused:
    """Returns the candidates of each query.

    Without a dense retriever there is no similarity; `texts` returns those of pairs of `hits`, where duplicates are dropped;
    `collections` has retriever -> its collection, where there are any.
    """
    if settings.duplicates != "drop" or texts is None:
        return fuse_collections(hits, settings, similarity, collections)
    return fuse_distinct(hits, settings, similarity, texts, collections)


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

"""Redundancy among the lists of a query; fusion divides the weight of similar lists among them.

The redundancy of a list is the sum of its similarities to the lists of the same query and retriever, itself included; its
redundancy weight is 1 / redundancy. The similarity of two lists is

- `overlap`: the Jaccard index of their first 10 documents;
- `cosine`: max(0, cosine)^4 of the vectors of their texts.

The sum is over the lists to be fused (weight above 0, at least one hit) and that of the original, whatever its weight. The
list of texts that were searched as one has no text of its own; it resembles no other, and its redundancy is 1.
"""

from typing import NamedTuple

import numpy as np

from retrievers.lists import ORIGINAL, Hits
from retrievers.ranking import offsets_of, ranges, rounded

REDUNDANCY = ("none", "overlap", "cosine")
_OVERLAP_DEPTH = 10
_COSINE_POWER = 4


class Similarity(NamedTuple):
    """Cosines between the texts of each query.

    `cosines[offsets[i]:offsets[i + 1]]` is the n x n matrix of query i with n texts, row by row, or empty if the query has no
    vectors; `Lists.text` is a row.
    """

    offsets: np.ndarray  # shape (queries + 1,)
    cosines: np.ndarray

    @property
    def missing(self) -> np.ndarray:
        """A mask of the queries without cosines, shape (queries,), bool."""
        return np.diff(self.offsets) == 0


def list_redundancy(
    hits: Hits, is_fused: np.ndarray, has_hits: np.ndarray, depth: int, overlap: np.ndarray, similarity: Similarity | None
) -> np.ndarray:
    """Returns the redundancy of each list, shape (lists,); 1 for a list that resembles no other.

    `is_fused` and `has_hits` are masks of the lists, shape (lists,), of which `depth` documents are fused; `overlap` is one of
    the queries whose lists are compared by their documents, shape (queries,); the others are by `similarity`.
    """
    compared = is_fused & (hits.text >= 0)
    first, second = _neighbours(hits, compared, has_hits)
    by_documents = overlap[hits.query[first]]
    similarities = np.empty(len(first))
    similarities[by_documents] = _jaccard(hits, first[by_documents], second[by_documents], min(depth, _OVERLAP_DEPTH))
    if similarity is not None:
        similarities[~by_documents] = _cosine(hits, first[~by_documents], second[~by_documents], similarity)
    total = np.bincount(first, similarities, len(is_fused))
    # sums of cosines are rounded, so that the weights of equal texts do not depend on the batches that encoded them
    total = np.where(overlap[hits.query], total, rounded(total, 6))
    return np.where(compared, total, 1.0)


def _neighbours(hits: Hits, is_fused: np.ndarray, has_hits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns all pairs of a list to be fused and a list to compare it with, as two arrays.

    Both lists are of the same query and retriever; each list is also paired with itself. The list of the original comes last
    if it is not fused.
    """
    group = hits.query * len(hits.retrievers) + hits.retriever
    groups = hits.queries * len(hits.retrievers)
    original = hits.of_strategy(ORIGINAL)
    with_original = np.bincount(group[is_fused & original], minlength=groups) > 0
    added = has_hits & original & ~is_fused & ~with_original[group]
    compared = np.flatnonzero(is_fused | added)
    compared = compared[np.lexsort((added[compared], group[compared]))]
    sizes = np.bincount(group[compared], minlength=groups)
    lists = np.flatnonzero(is_fused)
    list_groups = group[lists]
    return np.repeat(lists, sizes[list_groups]), compared[ranges(offsets_of(sizes)[list_groups], sizes[list_groups])]


def _jaccard(hits: Hits, first: np.ndarray, second: np.ndarray, top: int) -> np.ndarray:
    """Returns |A ∩ B| / |A ∪ B| of the first `top` documents of each pair of lists."""
    highest = hits.rank <= top
    pairs = np.full((len(hits.query), max(0, top)), -1)
    pairs[hits.hit_list[highest], hits.rank[highest] - 1] = hits.pair[highest]
    counts = np.minimum(hits.lengths, top)
    documents, other_documents = pairs[first], pairs[second]
    shared = np.zeros(len(first), dtype=np.int64)
    for column in other_documents.T:
        shared += ((documents == column[:, np.newaxis]) & (documents >= 0)).sum(axis=1)
    return shared / (counts[first] + counts[second] - shared)


def _cosine(hits: Hits, first: np.ndarray, second: np.ndarray, similarity: Similarity) -> np.ndarray:
    texts = np.sqrt(np.diff(similarity.offsets)).astype(np.int64)
    query = hits.query[first]
    for i in second[hits.text[second] >= texts[query]]:  # every list is also in `other`, paired with itself
        what = f"a list of {hits.strategies[hits.strategy[i]]}, text {hits.text[i]} of query {hits.query[i]}"
        raise ValueError(f"{what}: there are {texts[hits.query[i]]} texts in similarity")
    at = similarity.offsets[query] + hits.text[first] * texts[query] + hits.text[second]
    cosines = np.maximum(similarity.cosines[at].astype(np.float64), 0.0)
    cosines[hits.text[first] == hits.text[second]] = 1.0  # a list's similarity to itself is exactly 1
    return cosines**_COSINE_POWER

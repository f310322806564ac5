"""The ranked lists of many queries as flat arrays, and their hits grouped by list and by document."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from retrievers.ranking import encode, offsets_of, ranges, ranks

ORIGINAL = "original"
TOGETHER = "together"  # strategy of the list of several texts that were searched as one
BESIDE = "original+"  # before a strategy: key of the weight of the original's lists in queries that the strategy rewrites


class Lists(NamedTuple):
    """Ranked lists in any order, best hit first; at most one per (query, strategy, position, retriever).

    List i has the hits `offsets[i]` to `offsets[i + 1]` of `doc_ids` and `scores`. A repeated document counts once,
    at its best rank; a score that is not finite counts as the lowest of its list. Fields up to `position_weight` are of each
    list, the last two of each hit.
    """

    query: np.ndarray  # its number, from 0
    strategy: pa.StringArray
    position: np.ndarray  # of its text within its strategy, from 1
    retriever: pa.StringArray
    text: np.ndarray  # its index among the texts of the query (`Similarity`); -1: several were searched as one
    weight: np.ndarray  # of the strategy; `weights` of `fuse` may replace it
    position_weight: np.ndarray  # multiplies the weight
    offsets: np.ndarray  # shape (lists + 1,)
    doc_ids: pa.StringArray
    scores: np.ndarray


class Hits(NamedTuple):
    """The distinct hits of `Lists`, by list and by pair of query and document.

    Lists are sorted by query, strategy, position and retriever, hits by list, pairs by query and doc_id. The hits of pair i
    are `by_pair[pair_offsets[i]:pair_offsets[i + 1]]`, in order of lists. Fields `list_index` to `retriever` are of each list,
    those from `hit_list` to `pair` of each hit.
    """

    queries: int  # their number
    list_index: np.ndarray  # index in `Lists`
    query: np.ndarray
    text: np.ndarray
    weight: np.ndarray
    position_weight: np.ndarray
    lengths: np.ndarray  # number of hits
    strategy: np.ndarray  # index of `strategies`
    strategies: list[str]  # sorted
    retriever: np.ndarray  # index of `retrievers`
    retrievers: list[str]  # sorted
    hit_list: np.ndarray  # index of its list
    rank: np.ndarray  # from 1
    score: np.ndarray
    pair: np.ndarray
    pair_query: np.ndarray
    pair_document: np.ndarray  # index of `doc_ids`
    doc_ids: pa.StringArray  # sorted
    by_pair: np.ndarray  # hits, sorted by pair
    pair_offsets: np.ndarray  # shape (pairs + 1,)

    def of_strategy(self, strategy: str) -> np.ndarray:
        """Returns a mask of the lists of a strategy, shape (lists,), bool."""
        return self.strategy == (self.strategies.index(strategy) if strategy in self.strategies else -1)


def by_document(lists: Lists, queries: int) -> Hits:
    """Returns the hits of ranked lists by list and by document; raises ValueError for two lists of one key. Cost: one sort."""
    strategy, strategies = encode(lists.strategy)
    retriever, retrievers = encode(lists.retriever)
    order = np.lexsort((retriever, lists.position, strategy, lists.query))
    keys = np.stack([lists.query, strategy, lists.position, retriever])[:, order]
    for repeated_list in order[1:][(keys[:, 1:] == keys[:, :-1]).all(axis=0)]:
        what = f"{lists.strategy[repeated_list]} {lists.position[repeated_list]} from {lists.retriever[repeated_list]}"
        raise ValueError(f"two lists for {what} of query {lists.query[repeated_list]}")

    lengths = np.diff(lists.offsets)[order]
    at = ranges(lists.offsets[order], lengths)
    score = lists.scores[at]
    document, doc_ids = encode(lists.doc_ids)
    hit_list = np.repeat(np.arange(len(order)), lengths)
    key = lists.query[order].astype(np.int64)[hit_list] * len(doc_ids) + document[at]
    # pair and hit in one number: sorting these takes half the time of a stable argsort
    bits = len(key).bit_length()
    if queries * len(doc_ids) << bits >= 1 << 63:
        raise ValueError(f"{len(key)} hits of {queries} queries are too many for one block; give fewer queries at a time")
    sort_keys = np.sort(key << bits | np.arange(len(key)))
    key, by_pair = sort_keys >> bits, sort_keys & (1 << bits) - 1
    begins = np.diff(key, prepend=-1) > 0
    pair = np.empty(len(key), dtype=np.int64)
    pair[by_pair] = np.cumsum(begins) - 1
    pair_query, pair_document = np.divmod(key[begins], max(1, len(doc_ids)))

    repetitions = by_pair[1:][~begins[1:] & (np.diff(hit_list[by_pair]) == 0)]
    if len(repetitions):
        first = np.ones(len(key), dtype=bool)
        first[repetitions] = False
        by_pair = (np.cumsum(first) - 1)[by_pair[first[by_pair]]]
        hit_list, score, pair = hit_list[first], score[first], pair[first]
        lengths = np.bincount(hit_list, minlength=len(order))
    return Hits(
        queries, order, lists.query[order], lists.text[order], lists.weight[order], lists.position_weight[order], lengths,
        strategy[order], strategies.to_pylist(), retriever[order], retrievers.to_pylist(), hit_list, ranks(lengths), score,
        pair, pair_query, pair_document, doc_ids, by_pair, offsets_of(np.bincount(pair, minlength=len(pair_query))),
    )  # fmt: skip

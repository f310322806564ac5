"""Clusters of near-duplicate queries, the units that significance tests draw.

Two queries are near-duplicates if the Jaccard similarity of their sets of words is at least `SIMILARITY`; a cluster is a
connected component of such pairs (single linkage). Pairs are found by prefix filtering: with the words of every set ordered
from rare to frequent, two sets as similar as that share one of their first |x| - ceil(t |x|) + 1 words, so that only queries
with a rare word in common are compared (Bayardo, Ma, Srikant, Scaling Up All Pairs Similarity Search, WWW 2007; Xiao, Wang,
Lin, Yu, Efficient Similarity Joins for Near Duplicate Detection, WWW 2008). The result is exact.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import ceil

import numpy as np

from jobs.measure.significance import Numbers

SIMILARITY = 0.8
"""Smallest Jaccard similarity of near-duplicates: queries of up to three words must have the same ones, one word more or less
is allowed from four words on, one other word from nine on."""
ROUNDING = 1e-9
# Words, or single characters in scripts that do not part words (kana, Han).
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]|[^\W\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]+")


def query_clusters(texts: Sequence[str | None]) -> Numbers:
    """Returns the cluster of each text, numbered from 0 in order of first appearance.

    None is a cluster of its own; a text without a word is clustered with the same text.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    numbers: dict[frozenset[str], int] = {}
    first_of = [
        numbers.setdefault(frozenset({f" {row}"} if text is None else _WORD.findall(text) or [f" {text}"]), len(numbers))
        for row, text in enumerate(texts)
    ]
    if not first_of:
        return np.zeros(0, np.int64)
    pairs = np.array([(0, 0), *_similar(list(numbers))])
    graph = coo_array((np.ones(len(pairs), np.int8), (pairs[:, 0], pairs[:, 1])), shape=(len(numbers), len(numbers)))
    _, component = connected_components(graph, directed=False)
    _, first, cluster = np.unique(component[first_of], return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[cluster].astype(np.int64)


def _similar(sets: Sequence[frozenset[str]]) -> Iterable[tuple[int, int]]:
    """Yields the pairs of distinct sets whose similarity is at least `SIMILARITY`."""
    frequency = Counter(word for words in sets for word in words)
    blocks: defaultdict[str, list[int]] = defaultdict(list)  # word -> sets that have it in their prefix, small ones first
    for number in sorted(range(len(sets)), key=lambda number: len(sets[number])):
        tokens = sets[number]
        least = ceil(SIMILARITY * len(tokens) - ROUNDING)  # words in common, so also the size of a similar set
        compared: set[int] = set()
        for word in sorted(tokens, key=lambda word: (frequency[word], word))[: len(tokens) - least + 1]:
            for other in blocks[word]:
                if other not in compared and len(sets[other]) >= least:
                    compared.add(other)
                    shared = len(tokens & sets[other])
                    if shared >= SIMILARITY * (len(tokens) + len(sets[other]) - shared) - ROUNDING:
                        yield number, other
            blocks[word].append(number)

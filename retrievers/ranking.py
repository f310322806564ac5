"""Operations on the flat ranked lists of many queries, for fusion and the final order."""

from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Item = TypeVar("Item", bound=Hashable)


DECIMALS = 12  # of scores that are sums: mathematically equal sums then tie and are sorted by doc_id, not by the last bit
_ALL_INTEGERS = 2.0**52  # every double from here on is an integer


def encode(names: pa.StringArray) -> tuple[np.ndarray, pa.StringArray]:
    """Returns each name as an index, shape (n,), int64, and the distinct names in code point order, which it refers to."""
    encoded = names.dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary)  # by the bytes of UTF-8, which is the order of code points
    number = np.empty(len(order), dtype=np.int64)
    number[order.to_numpy()] = np.arange(len(order))
    return number[encoded.indices.to_numpy()], encoded.dictionary.take(order)


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Returns the offsets, shape (n + 1,), int64, of flat lists with the given lengths, shape (n,)."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def ranges(begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns the integers `begins[i]` to `begins[i] + lengths[i] - 1` for each i, concatenated, int64."""
    offsets = offsets_of(lengths)
    return np.arange(offsets[-1]) + np.repeat(begins - offsets[:-1], lengths)


def ranks(lengths: np.ndarray) -> np.ndarray:
    """Returns the rank of every entry within its list, from 1, int64, for flat lists with the given lengths."""
    return ranges(np.full(len(lengths), 1), lengths)


def order_by_score(query: np.ndarray, scores: np.ndarray, document: np.ndarray | None = None) -> np.ndarray:
    """Returns the permutation that sorts entries by query, then by descending score, then by document.

    All have shape (n,); `document` is that of `encode`; None if entries are sorted by document already: the sort is stable.
    """
    keys = [-scores, query]
    return np.lexsort(keys if document is None else [document, *keys])


def among_best(query: np.ndarray, scores: np.ndarray, keep: int) -> np.ndarray:
    """Returns the entries that may be among the best `keep` of their query, in any order of equal scores: ascending indexes.

    Cost: one partition, without a sort; so sorting the best of many takes a third of the time. `query` is ascending; the
    scores are not yet `rounded`; both have shape (n,).
    """
    begins = np.flatnonzero(np.diff(query, prepend=-1))
    sizes = np.diff(begins, append=len(query))
    if sizes.max(initial=0) <= keep:
        return np.arange(len(query))
    row = np.repeat(np.arange(len(begins)), sizes)
    table = np.full((len(begins), sizes.max()), -np.inf)
    table[row, np.arange(len(query)) - begins[row]] = scores
    table.partition(table.shape[1] - keep, axis=1)
    least = table[:, table.shape[1] - keep]
    far = scores < least[row] - 2 * 10.0**-DECIMALS  # nearer ones may be rounded to one; NaN is not far
    return np.flatnonzero(~far)


def rounded(values: np.ndarray, decimals: int = DECIMALS) -> np.ndarray:
    """Returns Python's `round(value, decimals)` of each value, bit for bit; 0.0 instead of -0.0.

    np.round multiplies by 10^decimals, rounds to an integer and divides. The division is correctly rounded, but the rounding
    of the product can lead to another integer; values for which it could (0.02 % of scores near 1) are rounded by Python.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # too large to be scaled: rounded by Python
        scaled = np.abs(values) * 10.0**decimals
        result = np.round(values, decimals)
        doubtful = (np.abs(scaled % 1 - 0.5) <= np.spacing(scaled)) | (scaled >= _ALL_INTEGERS)
    for i in np.flatnonzero(doubtful):
        result[i] = round(float(values[i]), decimals)
    return result + 0.0


def distinct(items: Sequence[Item]) -> tuple[list[Item], np.ndarray]:
    """Returns the distinct items in order of first occurrence, and the index of each item among them, shape (n,), int64."""
    places: dict[Item, int] = {}
    inverse = np.fromiter((places.setdefault(item, len(places)) for item in items), dtype=np.int64, count=len(items))
    return list(places), inverse

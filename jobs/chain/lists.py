"""The lists of a block as flat arrays, and as rows of runs/: a shard holds about a million hits."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from jobs.chain.arms.shared_work import Search
from jobs.chain.cuts import Cuts
from jobs.chain.search_texts import Text
from jobs.tables import STORED
from retrievers.lists import Lists
from retrievers.ranking import offsets_of, ranges, ranks
from retrievers.retriever import RankedLists


class Found(NamedTuple):
    """The lists of one retriever; that of ``texts[i]`` is ``lists`` number ``list_index[i]``, shared by equal texts."""

    texts: list[Text]
    list_index: np.ndarray
    lists: RankedLists


class _FlatLists(NamedTuple):
    """Lists of several retrievers: that of text `texts[i]` has `sizes[i]` hits from `begins[i]`."""

    texts: list[Text]
    retrievers: list[str]
    begins: np.ndarray
    sizes: np.ndarray
    doc_ids: pa.StringArray
    scores: np.ndarray


def _flat(lists: Mapping[str, Found]) -> _FlatLists:
    """Returns the lists of a search, retriever after retriever."""
    every = lists.values()
    bases = np.cumsum([0, *(len(one.lists.scores) for one in every)])
    return _FlatLists(
        [text for one in every for text in one.texts],
        [name for name, one in lists.items() for _ in one.texts],
        np.concatenate([base + one.lists.offsets[one.list_index] for base, one in zip(bases, every, strict=False)]),
        np.concatenate([np.diff(one.lists.offsets)[one.list_index] for one in every]),
        pa.concat_arrays([one.lists.doc_ids for one in every]),
        np.concatenate([one.lists.scores for one in every]),
    )


def stored_rows(query_ids: pa.Array, lists: Mapping[str, Found], depth: int) -> pa.Table:
    """Returns the rows of runs/: the first `depth` hits of all lists, sorted by row, text and retriever."""
    flat = _flat(lists)
    row, number = (np.array([getattr(text, name) for text in flat.texts], dtype=np.int64) for name in ("row", "number"))
    retriever = np.repeat(np.arange(len(lists)), [len(one.texts) for one in lists.values()])
    order = np.lexsort((retriever, number, row))
    sizes = np.minimum(flat.sizes[order], depth)
    take, list_of_hit = ranges(flat.begins[order], sizes), np.repeat(order, sizes)
    columns = {
        "query_id": query_ids.take(pa.array(row[list_of_hit])),
        **{name: values.take(pa.array(list_of_hit)) for name, values in _names(flat).items()},
        "doc_id": flat.doc_ids.take(pa.array(take)),
        "rank": pa.array(ranks(sizes).astype(np.int32)),
        "score": pa.array(flat.scores[take]),
    }
    return pa.table([columns[name] for name in STORED["runs"].names], schema=STORED["runs"])


def lists_of(by_retriever: Mapping[str, Found], search: Search) -> Lists:
    """Returns the lists of a search, cut as it has them."""
    flat = _flat(by_retriever)
    sizes, take = _cut(flat, search)
    names = _names(flat)
    return Lists(
        np.array([text.row for text in flat.texts], dtype=np.int64),
        names["strategy"],
        names["position"].to_numpy(),
        names["retriever"],
        np.array([text.number for text in flat.texts], dtype=np.int64),
        np.array([text.weight for text in flat.texts], dtype=np.float64),
        np.array([text.position_weight for text in flat.texts], dtype=np.float64),
        offsets_of(sizes),
        flat.doc_ids.take(pa.array(take)),
        flat.scores[take],
    )


def _cut(flat: _FlatLists, search: Search) -> tuple[np.ndarray, np.ndarray]:
    """Returns the number of hits of each list that are fused, and their indexes."""
    if search.cuts == Cuts():
        sizes = np.minimum(flat.sizes, search.depth)
        return sizes, ranges(flat.begins, sizes)
    own = [search.cuts.cut_of(text.strategy, retriever) for text, retriever in zip(flat.texts, flat.retrievers, strict=True)]
    depths = np.array([search.depth if most is None else min(search.depth, most) for most, _ in own], dtype=np.int64)
    sizes = np.minimum(flat.sizes, depths)
    take = ranges(flat.begins, sizes)
    if any(floor is not None for _, floor in own):
        floors = np.repeat(np.array([np.nan if floor is None else floor for _, floor in own]), sizes)
        above = np.isnan(floors) | (flat.scores[take] >= floors)
        sizes = np.bincount(np.repeat(np.arange(len(sizes)), sizes)[above], minlength=len(sizes))
        take = take[above]
    return sizes, take


def _names(flat: _FlatLists) -> dict[str, pa.Array]:
    """Returns the name of each list within its query: strategy, position and retriever."""
    return {
        "strategy": pa.array([text.strategy for text in flat.texts], pa.string()),
        "position": pa.array([text.position for text in flat.texts], pa.int32()),
        "retriever": pa.array(flat.retrievers, pa.string()),
    }

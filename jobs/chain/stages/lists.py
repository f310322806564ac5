"""The lists of a block as flat arrays, and as the tables made of them: a shard holds about a million hits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.chain.arms.shared_work import Search, SharedWork
from jobs.chain.cuts import Cuts
from jobs.chain.search_texts import Text
from jobs.chain.tables import HITS, RUN
from jobs.tables import HIT, ITERATE, ORIGINAL, STORED, nested, unnested
from retrievers.fusion import takes_part
from retrievers.lists import TOGETHER, Lists
from retrievers.ranking import offsets_of, ranges, ranks
from retrievers.retriever import JoinedText, RankedLists, SearchText


class Found(NamedTuple):
    """The lists of one retriever; that of ``texts[i]`` is ``lists`` number ``place[i]``, shared by equal texts."""

    texts: list[Text]
    place: np.ndarray
    lists: RankedLists


class SearchedLists(NamedTuple):
    """The lists of one retriever in a block: that of a search is number ``place[search]``."""

    place: dict[SearchText | JoinedText, int]
    lists: RankedLists


def stored_rows(query_ids: pa.Array, found: Mapping[str, Found], depth: int) -> pa.Table:
    """Returns the rows of runs/: the first `depth` hits of all lists, sorted by row, text and retriever."""
    bases = np.cumsum([0, *(len(one.lists.scores) for one in found.values())])
    begins = np.concatenate([base + one.lists.offsets[one.place] for base, one in zip(bases, found.values(), strict=False)])
    sizes = np.concatenate([np.diff(one.lists.offsets)[one.place] for one in found.values()])
    of = [(text, name) for name, one in found.items() for text in one.texts]
    retriever = np.repeat(np.arange(len(found)), [len(one.texts) for one in found.values()])
    row = np.array([text.row for text, _ in of], dtype=np.int64)
    number = np.array([text.number for text, _ in of], dtype=np.int64)
    order = np.lexsort((retriever, number, row))
    of, sizes = [of[i] for i in order.tolist()], np.minimum(sizes[order], depth)
    take = ranges(begins[order], sizes)
    of_lists = _names(of) | {"query_id": query_ids.take(pa.array(row[order]))}
    list_of_hit = pa.array(np.repeat(np.arange(len(of)), sizes))
    columns = {name: values.take(list_of_hit) for name, values in of_lists.items()} | {
        "doc_id": pa.concat_arrays([one.lists.doc_ids for one in found.values()]).take(pa.array(take)),
        "rank": pa.array(ranks(sizes).astype(np.int32)),
        "score": pa.array(np.concatenate([one.lists.scores for one in found.values()])[take]),
    }
    return pa.table([columns[name] for name in STORED["runs"].names], schema=STORED["runs"])


def passed_on(
    rows: int, work: SharedWork, found: Sequence[Mapping[str, Found]], lists: Mapping[str, RankedLists]
) -> tuple[pa.ListArray, pa.ListArray]:
    """Returns the columns `lists` and `runs`: the lists that an arm fuses, cut at the most hits that any arm fuses.

    Args:
        rows: Of the block.
        work: Of all arms.
        found: The lists of each search, by the retriever's name in it.
        lists: All lists, by the retriever's key in `work`.
    """
    keys = {key: number for number, key in enumerate(lists)}
    fuses = cache(lambda *list_of: is_fused(work, *list_of))
    of = [
        (number, text, name, keys[search.retrievers[name]], place)
        for number, (search, by_name) in enumerate(zip(work.searches, found, strict=True))
        for name, one in by_name.items()
        for text, place in zip(one.texts, one.place.tolist(), strict=True)
        if fuses(number, text.strategy, text.weight, text.position_weight, name)
    ]
    of.sort(key=lambda one: one[1].row)
    row = np.array([one[1].row for one in of], dtype=np.int64)
    key, place = (np.array([one[field] for one in of], dtype=np.int64) for field in (3, 4))
    sizes = {name: np.diff(one.offsets) for name, one in lists.items()}
    most = max((len(one) for one in sizes.values()), default=0) + 1
    distinct, number = np.unique((row * max(1, len(keys)) + key) * most + place, return_inverse=True)
    list_row, rest = np.divmod(distinct, max(1, len(keys)) * most)
    list_key, list_place = np.divmod(rest, most)
    bases = np.cumsum([0, *(len(one.scores) for one in lists.values())])
    begins, lengths = np.zeros(len(distinct), dtype=np.int64), np.zeros(len(distinct), dtype=np.int64)
    for (name, one), at in zip(lists.items(), range(len(keys)), strict=True):
        mine = list_key == at
        begins[mine] = bases[at] + one.offsets[list_place[mine]]
        lengths[mine] = sizes[name][list_place[mine]]
    lengths = np.minimum(lengths, max((search.depth for search in work.searches), default=0))
    take = ranges(begins, lengths)
    doc_ids = pa.concat_arrays([pa.array([], pa.string()), *(one.doc_ids for one in lists.values())])
    scores = np.concatenate([np.zeros(0), *(one.scores for one in lists.values())])
    hits = pa.StructArray.from_arrays([doc_ids.take(pa.array(take)), pa.array(scores[take])], fields=list(HIT))
    per_row = offsets_of(np.bincount(list_row, minlength=rows))
    columns = [
        pa.array([one[0] for one in of], pa.int16()),
        pa.array((number - per_row[row]).astype(np.int32)),
        *_names([(one[1], one[2]) for one in of]).values(),
        pa.array([one[1].number for one in of], pa.int32()),
        pa.array([one[1].weight for one in of], pa.float64()),
        pa.array([one[1].position_weight for one in of], pa.float64()),
    ]
    runs = pa.StructArray.from_arrays(columns, fields=list(RUN))
    return (
        nested(per_row, nested(offsets_of(lengths), hits, HITS), pa.list_(HITS)),
        nested(offsets_of(np.bincount(row, minlength=rows)), runs, pa.list_(RUN)),
    )


def is_fused(work: SharedWork, search: int, strategy: str, weight: float, position_weight: float, retriever: str) -> bool:
    """Returns whether an arm may fuse a list: its weight is above 0, or it is the original's, which may stand in.

    Those of refined queries are passed on, too: their best scores say whether another round is needed.
    """
    if strategy in (ORIGINAL, TOGETHER, ITERATE):
        return True
    return any(
        takes_part(one.fuse, strategy, retriever, weight, position_weight)
        for one in work.answers
        if one.search == search and strategy in one.strategies
    )


def search_lists(table: pa.Table, number: int, search: Search) -> tuple[Lists, np.ndarray]:
    """Returns the lists of a search of a block, cut as it has them, from the columns `lists` and `runs`.

    Beside them stands the index of each among the `lists` of its row.
    """
    lists, (row, flat) = table.column("lists").combine_chunks(), unnested(table, "runs")
    mine = flat.field("search").to_numpy() == number
    if not mine.all():
        row, flat = row[mine], flat.filter(pa.array(mine))
    first = offsets_of(pc.list_value_length(lists).to_numpy(zero_copy_only=False))
    hits = lists.flatten()
    ends = offsets_of(pc.list_value_length(hits).to_numpy(zero_copy_only=False))
    at = first[row] + flat.field("list").to_numpy()
    sizes, take = _cut(flat, ends[at], ends[at + 1] - ends[at], hits.flatten().field("score").to_numpy(), search)
    lists_of = Lists(
        row,
        flat.field("strategy"),
        flat.field("position").to_numpy(),
        flat.field("retriever"),
        flat.field("text").to_numpy(),
        flat.field("weight").to_numpy(),
        flat.field("position_weight").to_numpy(),
        offsets_of(sizes),
        hits.flatten().field("doc_id").take(pa.array(take)),
        hits.flatten().field("score").to_numpy()[take],
    )
    return lists_of, flat.field("list").to_numpy()


def _cut(
    runs: pa.StructArray, begins: np.ndarray, sizes: np.ndarray, scores: np.ndarray, search: Search
) -> tuple[np.ndarray, np.ndarray]:
    """Returns how many hits of each list take part, and their indexes."""
    if search.cuts == Cuts():
        sizes = np.minimum(sizes, search.depth)
        return sizes, ranges(begins, sizes)
    named = zip(runs.field("strategy").to_pylist(), runs.field("retriever").to_pylist(), strict=True)
    own = [search.cuts.of(strategy, retriever) for strategy, retriever in named]
    depths = np.array([search.depth if most is None else min(search.depth, most) for most, _ in own], dtype=np.int64)
    sizes = np.minimum(sizes, depths)
    take = ranges(begins, sizes)
    if any(floor is not None for _, floor in own):
        floors = np.repeat(np.array([np.nan if floor is None else floor for _, floor in own]), sizes)
        above = np.isnan(floors) | (scores[take] >= floors)
        sizes = np.bincount(np.repeat(np.arange(len(sizes)), sizes)[above], minlength=len(sizes))
        take = take[above]
    return sizes, take


def _names(of: list[tuple[Text, str]]) -> dict[str, pa.Array]:
    """Returns what names each list within its query: strategy, position and retriever."""
    return {
        "strategy": pa.array([text.strategy for text, _ in of], pa.string()),
        "position": pa.array([text.position for text, _ in of], pa.int32()),
        "retriever": pa.array([name for _, name in of], pa.string()),
    }

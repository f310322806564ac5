"""The lists of a block as flat arrays, and as the tables made of them: a shard holds about a million hits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from jobs.chain.search_texts import Text
from jobs.config.config import Config
from jobs.tables import HIT, ORIGINAL, RUN, STORED, nested
from retrievers.hybrid.settings import HybridSettings
from retrievers.lists import Lists
from retrievers.ranking import offsets_of, ranges, ranks
from retrievers.retriever import RankedLists

OwnCuts = Mapping[str, tuple[int | None, float | None]]
"""strategy -> (depth, score floor): of its lists only the first hits with at least this score are fused; None: no such cut."""


@dataclass(frozen=True)
class Cuts:
    """What cuts lists before fusion, beside `fuse.depth`.

    Attributes:
        strategies: Those of strategies, and of the original.
        floors: Retriever -> score floor of its lists.
    """

    strategies: OwnCuts = field(default_factory=dict)
    floors: Mapping[str, float] = field(default_factory=dict)

    def of(self, strategy: str, retriever: str) -> tuple[int | None, float | None]:
        """Returns the depth of a list and the higher of its floors; None: no such cut."""
        depth, own = self.strategies.get(strategy, (None, None))
        return depth, max((one for one in (own, self.floors.get(retriever)) if one is not None), default=None)


def cuts_of(config: Config, strategies: OwnCuts) -> Cuts:
    """Returns what cuts the lists of a config before fusion.

    Args:
        config: With the floors of the original and of retrievers.
        strategies: The cuts of strategies (`rewriters.rewriter.Rewriting.cuts`).
    """
    floor, retrievers = config.fuse.original_floor, config.retrieve.retrievers
    floors = {name: one.score_floor for name, one in retrievers.items() if one.score_floor is not None}
    return Cuts({**strategies, ORIGINAL: (None, floor)} if floor is not None else strategies, floors)


class Found(NamedTuple):
    """The lists of one retriever; that of ``texts[i]`` is ``lists`` number ``place[i]``, shared by equal texts."""

    texts: list[Text]
    place: np.ndarray
    lists: RankedLists


class FlatLists(NamedTuple):
    """The lists of a block, sorted by row, text and retriever.

    List i belongs to the text and retriever ``of[i]`` and has ``sizes[i]`` hits. ``take`` holds, list after list, the indexes
    of the hits in ``doc_ids`` and ``scores``.
    """

    of: list[tuple[Text, str]]
    sizes: np.ndarray
    take: np.ndarray
    doc_ids: pa.Array
    scores: np.ndarray


def flat_lists(found: Mapping[str, Found]) -> FlatLists:
    """Returns the lists of all retrievers; equal lists share their hits."""
    bases = np.cumsum([0, *(len(one.lists.scores) for one in found.values())])
    begins = np.concatenate([base + one.lists.offsets[one.place] for base, one in zip(bases, found.values(), strict=False)])
    sizes = np.concatenate([np.diff(one.lists.offsets)[one.place] for one in found.values()])
    of = [(text, name) for name, one in found.items() for text in one.texts]
    retriever = np.repeat(np.arange(len(found)), [len(one.texts) for one in found.values()])
    row, number = (np.array([getattr(text, field) for text, _ in of], dtype=np.int64) for field in ("row", "number"))
    order = np.lexsort((retriever, number, row))
    doc_ids = pa.concat_arrays([one.lists.doc_ids for one in found.values()])
    scores = np.concatenate([one.lists.scores for one in found.values()])
    return FlatLists([of[i] for i in order.tolist()], sizes[order], ranges(begins[order], sizes[order]), doc_ids, scores)


def stored_rows(query_ids: pa.Array, flat: FlatLists, depth: int | None = None) -> pa.Table:
    """Returns the rows of runs/: the hits of all lists.

    Args:
        query_ids: Of the rows of the block.
        flat: The lists.
        depth: Hits per list, at most; None: all.
    """
    if depth is not None:
        sizes = np.minimum(flat.sizes, depth)
        flat = flat._replace(sizes=sizes, take=flat.take[ranges(np.cumsum(flat.sizes) - flat.sizes, sizes)])
    lists = pa.array(np.repeat(np.arange(len(flat.of)), flat.sizes))
    of_lists = _names(flat.of) | {"query_id": query_ids.take(pa.array([text.row for text, _ in flat.of], pa.int64()))}
    columns = {name: values.take(lists) for name, values in of_lists.items()} | {
        "doc_id": flat.doc_ids.take(pa.array(flat.take)),
        "rank": pa.array(ranks(flat.sizes).astype(np.int32)),
        "score": pa.array(flat.scores[flat.take]),
    }
    return pa.table([columns[name] for name in STORED["runs"].names], schema=STORED["runs"])


def runs_column(rows: int, flat: FlatLists, is_fused: np.ndarray, depth: int, cuts: Cuts) -> pa.ListArray:
    """Returns the column `runs`: the hits that are fused.

    Args:
        rows: Of the block.
        flat: The lists.
        is_fused: Mask of the lists to pass on, shape (lists,), bool.
        depth: Hits per list, at most.
        cuts: Those of strategies and retrievers.
    """
    of, sizes, take = _cut(flat, np.flatnonzero(is_fused), depth, cuts)
    hits = pa.StructArray.from_arrays([flat.doc_ids.take(pa.array(take)), pa.array(flat.scores[take])], fields=list(HIT))
    columns = _names(of) | {
        "text": pa.array([text.number for text, _ in of], pa.int32()),
        "weight": pa.array([text.weight for text, _ in of], pa.float64()),
        "position_weight": pa.array([text.position_weight for text, _ in of], pa.float64()),
        "hits": nested(offsets_of(sizes), hits, RUN.field("hits").type),
    }
    runs = pa.StructArray.from_arrays([columns[field.name] for field in RUN], fields=list(RUN))
    per_row = np.bincount(np.array([text.row for text, _ in of], dtype=np.int64), minlength=rows)
    return nested(offsets_of(per_row), runs, pa.list_(RUN))


def fusion_lists(flat: FlatLists, depth: int, cuts: Cuts) -> Lists:
    """Returns the lists for fusion.

    Args:
        flat: The lists.
        depth: Hits per list, at most.
        cuts: Those of strategies and retrievers.
    """
    of, sizes, take = _cut(flat, np.arange(len(flat.of)), depth, cuts)
    names = _names(of)
    return Lists(
        np.array([text.row for text, _ in of], dtype=np.int64),
        names["strategy"],
        names["position"].to_numpy(),
        names["retriever"],
        np.array([text.number for text, _ in of], dtype=np.int32),
        np.array([text.weight for text, _ in of]),
        np.array([text.position_weight for text, _ in of]),
        offsets_of(sizes),
        flat.doc_ids.take(pa.array(take)),
        flat.scores[take],
    )


def _cut(flat: FlatLists, kept: np.ndarray, depth: int, cuts: Cuts) -> tuple[list[tuple[Text, str]], np.ndarray, np.ndarray]:
    """Returns the kept lists, the number of hits of each that take part, and the indexes of these hits."""
    of = [flat.of[i] for i in kept]
    starts = (np.cumsum(flat.sizes) - flat.sizes)[kept]
    own = [cuts.of(text.strategy, name) for text, name in of]
    depths = np.array([depth if most is None else min(depth, most) for most, _ in own], dtype=np.int64)
    sizes = np.minimum(flat.sizes[kept], depths)
    take = flat.take[ranges(starts, sizes)]
    if any(floor is not None for _, floor in own):
        floors = np.repeat(np.array([np.nan if floor is None else floor for _, floor in own]), sizes)
        above = np.isnan(floors) | (flat.scores[take] >= floors)
        sizes = np.bincount(np.repeat(np.arange(len(sizes)), sizes)[above], minlength=len(sizes))
        take = take[above]
    return of, sizes, take


def _names(of: list[tuple[Text, str]]) -> dict[str, pa.Array]:
    """Returns what names each list within its query: strategy, position and retriever."""
    return {
        "strategy": pa.array([text.strategy for text, _ in of], pa.string()),
        "position": pa.array([text.position for text, _ in of], pa.int32()),
        "retriever": pa.array([name for _, name in of], pa.string()),
    }


def cut_from(config: Config, cuts: Mapping[str, tuple[int | None, float | None]]) -> int:
    """Returns the fewest documents of a fused list from which something may have been cut off; a shorter one is whole.

    Args:
        config: of a run or an arm.
        cuts: strategy -> its own depth and score floor.
    """
    own = [depth for name, (depth, _) in cuts.items() if depth is not None and name in config.rewrite.planned]
    own += [one.depth for one in config.retrieve.retrievers.values() if isinstance(one, HybridSettings)]
    return min(config.retrieve.depth, config.fuse.depth, *own)

"""The retrieval stage: searches the original and every rewrite with every retriever that they are routed to.

The lists are written to runs/ whole; only the hits that are fused are passed on to the next stage.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cluster import costs
from cluster.errors import RetrieverError
from cluster.run.shards import write_table
from cluster.run.stage import heartbeat, shard_of
from cluster.storage import open_storage
from jobs.index.opening import open_retriever
from jobs.stages.fill import fill
from jobs.tables import FILE, HIT, ORIGINAL, RUN, STORED, failed, nested, with_appended
from retrievers.fusion import list_weight
from retrievers.ranking import offsets_of, ranges, ranks
from retrievers.retriever import Embedder, RankedLists, RetrieverSettings, SearchText, distinct, joined_lists, single_lists


class Text(NamedTuple):
    """A text to search, with its row in the block, its strategy and its weight."""

    row: int
    strategy: str
    position: int
    weight: float
    search: SearchText


class Retrieve:
    """A worker of the retrieval stage.

    Equal texts of a shard are encoded and searched once; the list is returned for every strategy that has the text.
    """

    NEEDS = ("shard", "query_id", "query", "rewrites")
    # `similarity`: matrix of the cosines of a query's texts (original first, then the rewrites), row-major; null without a
    # dense retriever. `stored`: files written but not committed yet, in the block's first row.
    ADDS = pa.schema(
        [("runs", pa.list_(RUN)), ("similarity", pa.list_(pa.float32())), ("stored", pa.list_(FILE))]
    )  # fmt: skip

    def __init__(
        self,
        retrievers: Mapping[str, RetrieverSettings],
        identities: Mapping[str, Mapping[str, Any]],
        routes: Mapping[str, list[str]],
        depth: int,
        fuse_depth: int,
        weights: Mapping[str, float],
        dense: str | None,
        device: str,
        run: str | None,
    ) -> None:
        """Opens the retrievers.

        Args:
            retrievers: name -> settings.
            identities: name -> identity of the index at planning; an index replaced since is refused.
            routes: strategy -> names of its retrievers; default: all.
            depth: hits per list.
            fuse_depth: hits per list that are fused.
            weights: the config's `fuse.weights`. Lists of weight 0 are not fused; the original's lists are always passed on.
            dense: the retriever whose embeddings give `similarity`; None: no similarity.
            device: the torch device of encoders.
            run: the run's folder; None: lists are not written.

        Raises:
            RetrieverError: an index is missing or was replaced.
        """
        self._retrievers = {
            name: open_retriever(name, settings, device=device, expect_identity=identities[name])
            for name, settings in retrievers.items()
        }
        self._routes, self._depth, self._dense = routes, depth, dense
        self._fuse_depth, self._weights = fuse_depth, weights
        self._models = {name: one.encoder.model if one.encoder else None for name, one in retrievers.items()}
        self._storage = None if run is None else open_storage(run)

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with `runs`, `similarity`, `stored` and costs."""
        texts = _texts(table)
        spent: list[list[dict[str, Any]]] = [[] for _ in range(table.num_rows)]
        found: dict[str, tuple[np.ndarray, RankedLists]] = {}
        vectors = None
        for name in self._retrievers:
            began = time.perf_counter()
            routed = np.array([name in self._routes.get(text.strategy, self._retrievers) for text in texts])
            unique, place = distinct([text.search for text in texts])
            searched = sorted(set(place[routed].tolist()))
            lists, embedded = self._search(name, unique, searched, similarity=name == self._dense)
            if embedded is not None:
                vectors = embedded[place]
            where = np.full(len(unique), -1)
            where[searched] = np.arange(len(searched))
            found[name] = np.where(routed, where[place], -1), lists
            self._charge(name, texts, found[name][0], time.perf_counter() - began, spent)
            heartbeat()
        flat = _flat(texts, found)
        stored = [self._write(self._storage, table, flat)] if self._storage is not None and len(flat.take) else []
        columns = [
            _runs(table.num_rows, flat, self._fuse_depth, self._to_fuse(flat)),
            _similarity(table.num_rows, texts, vectors),
            pa.array([stored, *[[]] * (table.num_rows - 1)], self.ADDS.field("stored").type),
        ]
        table = with_appended(table, "costs", spent)
        for field, column in zip(self.ADDS, columns, strict=True):
            table = table.append_column(field, column)
        return table

    def _search(
        self, name: str, unique: list[SearchText], searched: list[int], *, similarity: bool
    ) -> tuple[RankedLists, np.ndarray | None]:
        """Searches the texts with the indexes `searched`; with `similarity` also embeds all texts."""
        retriever = self._retrievers[name]
        vectors = None
        if similarity and isinstance(retriever, Embedder):
            vectors = retriever.embed(unique)  # before the search, which then reuses the vectors
        lists = fill(
            None,
            [unique[i] for i in searched],
            lambda texts: [list(zip(texts, single_lists(retriever.search(texts, self._depth, heartbeat)), strict=True))],
        )
        return joined_lists(lists), vectors

    def _charge(
        self, name: str, texts: list[Text], lists: np.ndarray, seconds: float, spent: list[list[dict[str, Any]]]
    ) -> None:
        """Adds a cost entry per routed query to `spent`; a list shared by several queries is charged to the first."""
        searches, routed = [0] * len(spent), [False] * len(spent)
        seen: set[int] = set()
        for text, number in zip(texts, lists.tolist(), strict=True):
            if number >= 0:
                routed[text.row] = True
                searches[text.row] += number not in seen
                seen.add(number)
        each = seconds / max(1, len(seen))
        for row, number in enumerate(searches):
            if routed[row]:
                model = self._models[name]
                spent[row].append(costs.entry("retrieve", name, each * number, model=model, searches=number))

    def _to_fuse(self, flat: _Flat) -> np.ndarray:
        """Returns which lists are fused, shape (lists,): those of weight above 0, and the original's."""
        return np.array(
            [
                text.strategy == ORIGINAL or list_weight(self._weights, text.strategy, name, text.weight) > 0
                for text, name in flat.of
            ],
            dtype=bool,
        )

    def _write(self, storage: Any, table: pa.Table, flat: _Flat) -> dict[str, Any]:
        """Writes all lists of the block; returns the file as an entry of `stored`."""
        shard = shard_of(table)
        file = write_table(storage, "runs", shard, _rows(table.column("query_id").combine_chunks(), flat))
        return {"table": "runs"} | file._asdict()


class _Flat(NamedTuple):
    """The lists of a block as flat arrays.

    List i belongs to the text and retriever `of[i]` and has `sizes[i]` hits. `take` holds, list after list, the indexes of
    the hits in `doc_ids` and `scores`.
    """

    of: list[tuple[Text, str]]
    sizes: np.ndarray
    take: np.ndarray
    doc_ids: pa.Array
    scores: np.ndarray


def _texts(table: pa.Table) -> list[Text]:
    """Returns the texts of the block, row by row: the original, then the rewrites in order."""
    texts = []
    rows = zip(table.column("query").to_pylist(), table.column("rewrites").to_pylist(), strict=True)
    for row, (query, rewrites) in enumerate(rows):
        texts.append(Text(row, ORIGINAL, 1, 1.0, SearchText(query, "query")))
        texts += [
            Text(row, one["strategy"], one["position"], one["weight"], SearchText(one["text"], one["search_as"]))
            for one in rewrites
        ]
    return texts


def _flat(texts: list[Text], found: Mapping[str, tuple[np.ndarray, RankedLists]]) -> _Flat:
    """Returns the lists sorted by text and retriever; in arrays, since a shard holds about a million hits."""
    names = list(found)
    bases = np.cumsum([0, *(len(found[name][1].scores) for name in names)])
    of, begins, lengths = [], [], []
    for number, text in enumerate(texts):
        for base, name in zip(bases, names, strict=False):
            place = found[name][0][number]
            if place < 0:
                continue
            begin, end = found[name][1].offsets[place : place + 2]
            of.append((text, name))
            begins.append(base + begin)
            lengths.append(end - begin)
    sizes = np.array(lengths, dtype=np.int64)
    doc_ids = pa.concat_arrays([found[name][1].doc_ids for name in names])
    scores = np.concatenate([found[name][1].scores for name in names])
    return _Flat(of, sizes, ranges(np.array(begins, dtype=np.int64), sizes), doc_ids, scores)


def _rows(query_ids: pa.Array, flat: _Flat) -> pa.Table:
    """Returns the rows of runs/."""
    lists = pa.array(np.repeat(np.arange(len(flat.of)), flat.sizes))
    of_lists = {
        "query_id": query_ids.take(pa.array([text.row for text, _ in flat.of], pa.int64())),
        "strategy": pa.array([text.strategy for text, _ in flat.of], pa.string()),
        "position": pa.array([text.position for text, _ in flat.of], pa.int32()),
        "retriever": pa.array([name for _, name in flat.of], pa.string()),
    }
    columns = {name: values.take(lists) for name, values in of_lists.items()} | {
        "doc_id": flat.doc_ids.take(pa.array(flat.take)),
        "rank": pa.array(ranks(flat.sizes).astype(np.int32)),
        "score": pa.array(flat.scores[flat.take]),
    }
    return pa.table([columns[name] for name in STORED["runs"].names], schema=STORED["runs"])


def _runs(rows: int, flat: _Flat, depth: int, to_fuse: np.ndarray) -> pa.ListArray:
    """Returns the column `runs`: the first `depth` hits of the lists to fuse."""
    kept = np.flatnonzero(to_fuse)
    of = [flat.of[i] for i in kept]
    starts = (np.cumsum(flat.sizes) - flat.sizes)[kept]
    sizes = np.minimum(flat.sizes[kept], depth)
    take = flat.take[ranges(starts, sizes)]
    hits = pa.StructArray.from_arrays([flat.doc_ids.take(pa.array(take)), pa.array(flat.scores[take])], fields=list(HIT))
    runs = pa.StructArray.from_arrays(
        [
            pa.array([text.strategy for text, _ in of], pa.string()),
            pa.array([text.position for text, _ in of], pa.int32()),
            pa.array([name for _, name in of], pa.string()),
            nested(offsets_of(sizes), hits, RUN.field("hits").type),
        ],
        fields=list(RUN),
    )
    per_row = np.bincount(np.array([text.row for text, _ in of], dtype=np.int64), minlength=rows)
    return nested(offsets_of(per_row), runs, pa.list_(RUN))


def _similarity(rows: int, texts: list[Text], vectors: np.ndarray | None) -> pa.ListArray:
    """Returns the cosines between the texts of each row, row-major, rounded to 6 decimals: the seventh depends on the batch."""
    kind = Retrieve.ADDS.field("similarity").type
    if vectors is None:
        return pa.nulls(rows, kind)
    counts = np.bincount([text.row for text in texts], minlength=rows)
    squares = [part @ part.T for part in np.split(vectors, np.cumsum(counts)[:-1])]
    flat = np.concatenate([square.ravel() for square in squares]).round(6).astype(np.float32)
    return nested(offsets_of(counts**2), pa.array(flat), kind)


def without_lists(table: pa.Table, error: Exception) -> pa.Table:
    """Returns a query on which a retriever failed, without lists and with a row in errors; RetrieverErrors are raised."""
    if isinstance(error, RetrieverError):  # an error of the index or the server, not of this query
        raise error
    table = with_appended(table, "errors", [[failed("retrieve", error)]])
    for field, empty in zip(Retrieve.ADDS, ([[]], [None], [[]]), strict=True):
        table = table.append_column(field, pa.array(empty, field.type))
    return table

"""The retrieval stage: searches the original and every rewrite with every retriever that they are routed to.

The lists are written to runs/ whole; only the hits that are fused are passed on to the next stage.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from cluster import costs
from cluster.run.shards import write_table
from cluster.run.stage import heartbeat, shard_of
from cluster.storage import open_storage
from jobs.chain.chosen import Choosing, choose, chosen_column, flag_unchosen, searched
from jobs.chain.drift import drifted, flagged
from jobs.chain.fill import fill
from jobs.chain.list_columns import Cuts, FlatLists, Found, flat_lists, runs_column, stored_rows
from jobs.chain.search_texts import Text, block_texts, joined
from jobs.job.opening import open_retriever
from jobs.tables import CHOSEN, FILE, ORIGINAL, RUN, nested, with_appended, with_failure
from retrievers.fusion import takes_part
from retrievers.hybrid.retriever import search_shares
from retrievers.hybrid.settings import search_names
from retrievers.joined import search_vectors
from retrievers.predictors import predicted, statistics_of
from retrievers.ranking import offsets_of
from retrievers.retriever import (
    Embedder,
    JoinedText,
    RankedList,
    RetrieverSettings,
    SearchText,
    distinct,
    joined_lists,
    single_lists,
)
from retrievers.settings import FuseSettings, TypoSettings


class Retrieve:
    """A worker of the retrieval stage.

    Equal texts of a shard are encoded and searched once; the list is returned for every strategy that has the text. A retriever
    with `together` searches all texts of a query as one.
    """

    NEEDS = ("shard", "query_id", "query", "values", "rewrites")
    # `similarity`: matrix of the cosines of a query's texts (original first, then the rewrites; those of a strategy with
    # `as_one` are one), row-major; null without a dense retriever. `stored`: files written but not committed yet, in the
    # block's first row. `chosen`: which text is searched, where one of each query is.
    ADDS = pa.schema(
        [("runs", pa.list_(RUN)), ("similarity", pa.list_(pa.float32())), ("stored", pa.list_(FILE)), ("chosen", CHOSEN)]
    )  # fmt: skip
    DROPS = ("values",)

    def __init__(
        self,
        retrievers: Mapping[str, RetrieverSettings],
        identities: Mapping[str, Mapping[str, Any]],
        routes: Mapping[str, list[str]],
        depth: int,
        fuse: FuseSettings,
        dense: str | None,
        device: str,
        run: str | None,
        cuts: Cuts | None = None,
        typos: TypoSettings | None = None,
        as_one: Mapping[str, str] | None = None,
        drift: float | None = None,
        filters: Mapping[str, str] | None = None,
        choosing: Choosing | None = None,
    ) -> None:
        """Opens the retrievers.

        Args:
            retrievers: name -> settings.
            identities: name -> identity of the index at planning; an index replaced since is refused.
            routes: strategy -> names of its retrievers; default: all.
            depth: hits per list.
            fuse: the config's `fuse`. Lists of weight 0 are not fused; the original's lists are always passed on.
            dense: the retriever whose embeddings give `similarity`; None: no similarity.
            device: the torch device of encoders.
            run: the run's folder; None: lists are not written.
            cuts: of strategies and retrievers that have their own.
            typos: in the originals, as they are searched; None: none.
            as_one: of strategies whose texts make one search, what it is made of.
            drift: texts with a smaller cosine are flagged in `rewrites`; None: none are.
            filters: the config's `retrieve.filters`.
            choosing: how one text of each query is chosen; None: all are searched.

        Raises:
            RetrieverError: an index is missing or was replaced.
        """
        self._retrievers = {
            name: open_retriever(name, settings, device=device, expect_identity=identities[name])
            for name, settings in retrievers.items()
        }
        self._routes, self._depth, self._dense = routes, depth, dense
        self._fuse, self._cuts, self._typos, self._as_one = fuse, cuts or Cuts(), typos, as_one or {}
        self._drift = drift
        self._filters, self._choosing = filters or {}, choosing
        self._together = {name for name, one in retrievers.items() if one.together}
        self._searched_as = {name: search_names(name, one) for name, one in retrievers.items()}
        self._storage = None if run is None else open_storage(run)

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with `runs`, `similarity`, `stored`, `chosen`, costs, and flags in `rewrites`."""
        texts = block_texts(table, self._typos, self._as_one, self._filters)
        table, chosen, to_search = self._choose(table, texts)
        spent: list[list[dict[str, Any]]] = [[] for _ in range(table.num_rows)]
        found: dict[str, Found] = {}
        vectors = None
        for name, retriever in self._retrievers.items():
            began = time.perf_counter()
            if name == self._dense and isinstance(retriever, Embedder):  # before the search, which reuses the vectors
                vectors = search_vectors([text.search for text in texts], retriever.embed)
            routed = [text for text in to_search if name in self._routes.get(text.strategy, self._retrievers)]
            found[name], made = self._find(name, routed)
            self._charge(name, made, time.perf_counter() - began, spent)
            heartbeat()
        flat = flat_lists(found)
        stored = [self._write(self._storage, table, flat)] if self._storage is not None and len(flat.take) else []
        columns = [
            runs_column(table.num_rows, flat, self._to_fuse(flat), self._fuse.depth, self._cuts),
            similarity(table.num_rows, texts, vectors),
            pa.array([stored, *[[]] * (table.num_rows - 1)], self.ADDS.field("stored").type),
            chosen,
        ]
        table = flagged(with_appended(table, "costs", spent), drifted(texts, vectors, self._drift))
        table = table.drop_columns(list(self.DROPS))
        for field, column in zip(self.ADDS, columns, strict=True):
            table = table.append_column(field, column)
        return table

    def _choose(self, table: pa.Table, texts: list[Text]) -> tuple[pa.Table, pa.Array, list[Text]]:
        """Returns the block with flags of texts that were not chosen, the column `chosen`, and the texts to search."""
        if self._choosing is None:
            return table, pa.nulls(table.num_rows, CHOSEN), texts
        statistics = statistics_of(self._retrievers[self._choosing.retriever])
        scores = predicted([text.search for text in texts], self._choosing.predictor, statistics)
        numbers = choose(texts, scores, table.num_rows, self._fuse, lambda one: self._routes.get(one, list(self._retrievers)))
        table = flag_unchosen(table, texts, numbers, self._as_one)
        return table, chosen_column(texts, scores, numbers), searched(texts, numbers)

    def _find(self, name: str, routed: list[Text]) -> tuple[Found, list[tuple[Text, int]]]:
        """Returns the lists of the texts routed to a retriever, and every search that was needed with its list's number.

        With `together` a row whose list has no hit gets the list of its original, which may have to stand in.
        """
        texts = joined(routed, name, self._fuse) if name in self._together else routed
        place, lists = self._search(name, texts)
        made = list(zip(texts, place.tolist(), strict=True))
        if name in self._together:
            originals = {text.row: text for text in routed if text.strategy == ORIGINAL}
            empty = [i for i, (text, number) in enumerate(made) if text.number != 0 and not len(lists[number].scores)]
            empty = [i for i in empty if texts[i].row in originals]
            standing = [originals[texts[i].row] for i in empty]
            their_place, more = self._search(name, standing)
            for i, text, number in zip(empty, standing, (their_place + len(lists)).tolist(), strict=True):
                texts[i], place[i] = text, number
                made.append((text, number))
            lists += more
        return Found(texts, place, joined_lists(lists)), made

    def _search(self, name: str, texts: list[Text]) -> tuple[np.ndarray, list[RankedList]]:
        """Searches equal texts once; returns the number of each text's list, shape (texts,), and the lists."""
        retriever = self._retrievers[name]
        unique, place = distinct([text.search for text in texts])

        def search(some: list[SearchText | JoinedText]) -> list[list[tuple[SearchText | JoinedText, RankedList]]]:
            return [list(zip(some, single_lists(retriever.search(some, self._depth, heartbeat)), strict=True))]

        return place, list(fill(None, unique, search))

    def _charge(self, name: str, made: list[tuple[Text, int]], seconds: float, spent: list[list[dict[str, Any]]]) -> None:
        """Adds a cost entry per row that searched to `spent`; a list shared by several queries is charged to the first."""
        searches, saved = dict.fromkeys((text.row for text, _ in made), 0), Counter[int]()
        seen: set[int] = set()
        for text, number in made:
            searches[text.row] += number not in seen
            saved[text.row] += text.texts - (number not in seen)
            seen.add(number)
        shares = search_shares(self._retrievers[name])
        for (counted, model), share in zip(self._searched_as[name].items(), shares, strict=True):
            each = seconds * share / max(1, len(seen))
            for row, count in searches.items():
                spent[row].append(costs.entry("retrieve", counted, each * count, model=model, searches=count, saved=saved[row]))

    def _to_fuse(self, flat: FlatLists) -> np.ndarray:
        """Returns which lists are fused, shape (lists,): those of weight above 0, and the original's."""
        return np.array(
            [
                text.strategy == ORIGINAL or takes_part(self._fuse, text.strategy, name, text.weight, text.position_weight)
                for text, name in flat.of
            ],
            dtype=bool,
        )

    def _write(self, storage: Any, table: pa.Table, flat: FlatLists) -> dict[str, Any]:
        """Writes all lists of the block; returns the file as an entry of `stored`."""
        shard = shard_of(table)
        file = write_table(storage, "runs", shard, stored_rows(table.column("query_id").combine_chunks(), flat))
        return {"table": "runs"} | file._asdict()


def similarity(rows: int, texts: list[Text], vectors: np.ndarray | None) -> pa.ListArray:
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
    table = with_failure(table, "retrieve", error).drop_columns(list(Retrieve.DROPS))
    for field, empty in zip(Retrieve.ADDS, ([[]], [None], [[]], [None]), strict=True):
        table = table.append_column(field, pa.array(empty, field.type))
    return table

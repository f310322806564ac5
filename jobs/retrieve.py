"""The retrieval stage: the original and every rewrite, searched by every retriever they are routed to."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cluster import costs
from cluster.stage import pulse
from jobs.indexes import open_retriever
from jobs.tables import HIT, ORIGINAL, RETRIEVED, RUN, failed, with_appended
from retrievers.retriever import (
    Embedder,
    RankedLists,
    RetrieverError,
    SearchText,
    distinct,
)
from rewriters.strategy import load_strategy


class Text(NamedTuple):
    """A text to be searched, and where it comes from."""

    row: int
    strategy: str
    position: int
    search: SearchText


class Retrieve:
    """A worker: REWRITTEN -> RETRIEVED.

    Equal texts of a shard are encoded and searched once; each list still stands under every strategy that asked for it.

    Args:
        retrievers: name -> the config's block.
        identities: name -> what the plan found there; an index that was replaced since is refused.
        routes: strategy -> names of its retrievers.
        depth: hits per list.
        dense: the retriever whose embeddings give `similarity`, or None.
        device: for encoders.
    """

    def __init__(
        self,
        retrievers: Mapping[str, Mapping[str, Any]],
        identities: Mapping[str, Mapping[str, Any]],
        routes: Mapping[str, list[str]],
        depth: int,
        dense: str | None,
        device: str,
    ) -> None:
        self._retrievers = {
            name: open_retriever(name, settings, device=device, expect_identity=identities[name])
            for name, settings in retrievers.items()
        }
        self._routes, self._depth, self._dense = routes, depth, dense
        self._models = {name: (block.get("encoder") or {}).get("model") for name, block in retrievers.items()}

    def __call__(self, table: pa.Table) -> pa.Table:
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
            pulse()
        table = with_appended(table, "costs", spent)
        return table.append_column(RETRIEVED.field("runs"), _runs(table.num_rows, texts, found)).append_column(
            RETRIEVED.field("similarity"), _similarity(table.num_rows, texts, vectors)
        )

    def _search(
        self, name: str, unique: list[SearchText], searched: list[int], *, similarity: bool
    ) -> tuple[RankedLists, np.ndarray | None]:
        """Search the texts numbered `searched`; with `similarity` also embed all of them, as they are or would be searched."""
        retriever = self._retrievers[name]
        vectors = None
        if similarity and isinstance(retriever, Embedder):
            vectors = retriever.embed(unique)  # first: the search then finds them made
        return retriever.search([unique[i] for i in searched], self._depth, pulse), vectors

    def _charge(
        self, name: str, texts: list[Text], lists: np.ndarray, seconds: float, spent: list[list[dict[str, Any]]]
    ) -> None:
        """One entry per query; a list that several queries share is charged to the first of them."""
        searches, asked = [0] * len(spent), [False] * len(spent)
        seen: set[int] = set()
        for text, number in zip(texts, lists.tolist(), strict=True):
            if number >= 0:
                asked[text.row] = True
                searches[text.row] += number not in seen
                seen.add(number)
        each = seconds / max(1, len(seen))
        for row, number in enumerate(searches):
            if asked[row]:
                model = self._models[name]
                spent[row].append(costs.entry("retrieve", name, each * number, model=model, searches=number))


def _texts(table: pa.Table) -> list[Text]:
    """Every text of the block: the original, then the rewrites in their order."""
    texts = []
    kinds: dict[str, str] = {}
    rows = zip(table.column("query").to_pylist(), table.column("rewrites").to_pylist(), strict=True)
    for row, (query, rewrites) in enumerate(rows):
        texts.append(Text(row, ORIGINAL, 1, SearchText(query, "query")))
        for rewrite in rewrites:
            strategy = rewrite["strategy"]
            if strategy not in kinds:
                kinds[strategy] = load_strategy(strategy).kind
            texts.append(Text(row, strategy, rewrite["position"], SearchText(rewrite["text"], kinds[strategy])))
    return texts


def _runs(rows: int, texts: list[Text], found: Mapping[str, tuple[np.ndarray, RankedLists]]) -> pa.ListArray:
    """All lists as nested columns, built from flat arrays: a shard holds a million hits."""
    names = list(found)
    doc_ids = pa.concat_arrays([found[name][1].doc_ids for name in names])
    scores = np.concatenate([found[name][1].scores for name in names])
    bases = np.cumsum([0, *(len(found[name][1].scores) for name in names)])
    per_row = np.zeros(rows, dtype=np.int64)
    strategies, positions, retrievers, begins, lengths = [], [], [], [], []
    for number, text in enumerate(texts):
        for base, name in zip(bases, names, strict=False):
            place = found[name][0][number]
            if place < 0:
                continue
            begin, end = found[name][1].offsets[place : place + 2]
            strategies.append(text.strategy)
            positions.append(text.position)
            retrievers.append(name)
            begins.append(base + begin)
            lengths.append(end - begin)
            per_row[text.row] += 1
    sizes = np.array(lengths, dtype=np.int64)
    ends = np.cumsum(sizes)
    take = np.repeat(np.array(begins, dtype=np.int64) - (ends - sizes), sizes) + np.arange(ends[-1] if len(ends) else 0)
    hits = pa.StructArray.from_arrays([doc_ids.take(pa.array(take)), pa.array(scores[take])], fields=list(HIT))
    runs = pa.StructArray.from_arrays(
        [
            pa.array(strategies, pa.string()),
            pa.array(positions, pa.int32()),
            pa.array(retrievers, pa.string()),
            pa.ListArray.from_arrays(_offsets(sizes), hits, type=RUN.field("hits").type),
        ],
        fields=list(RUN),
    )
    return pa.ListArray.from_arrays(_offsets(per_row), runs, type=RETRIEVED.field("runs").type)


def _similarity(rows: int, texts: list[Text], vectors: np.ndarray | None) -> pa.ListArray:
    """Cosines between the texts of each row, row-major, rounded: the seventh digit depends on the batch."""
    kind = RETRIEVED.field("similarity").type
    if vectors is None:
        return pa.nulls(rows, kind)
    counts = np.bincount([text.row for text in texts], minlength=rows)
    squares = [part @ part.T for part in np.split(vectors, np.cumsum(counts)[:-1])]
    flat = np.concatenate([square.ravel() for square in squares]).round(6).astype(np.float32)
    return pa.ListArray.from_arrays(_offsets(counts**2), pa.array(flat), type=kind)


def _offsets(lengths: np.ndarray) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))


def without_lists(table: pa.Table, error: Exception) -> pa.Table:
    """What becomes of a query that a retriever fails on: no lists, and a row in errors."""
    if isinstance(error, RetrieverError):  # the index or the server, not this query
        raise error
    table = with_appended(table, "errors", [[failed("retrieve", error)]])
    for name, empty in (("runs", [[]]), ("similarity", [None])):
        field = RETRIEVED.field(name)
        table = table.append_column(field, pa.array(empty, field.type))
    return table

"""The fusing stage: the lists of a query become one list of candidates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster import costs
from jobs.tables import FUSED, ORIGINAL, with_appended
from retrievers.fusion import Fused, RunList, Similarity, fuse

Weights = dict[tuple[str, int], float]  # (strategy, position) -> weight


class Fuse:
    """A worker: RETRIEVED -> FUSED. A query without candidates, or whose original stood in, has a row in errors.

    Args:
        settings: the config's `fuse`.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings

    def __call__(self, table: pa.Table) -> pa.Table:
        matrices = table.column("similarity").to_pylist()
        candidates, notes = [], []
        weights = _weights(table)
        for runs, texts, flat in zip(_run_lists(table, weights, self._settings["depth"]), weights, matrices, strict=True):
            similarity = None if flat is None else Similarity(list(texts), np.array(flat).reshape(len(texts), -1))
            fused = fuse(runs, **self._settings, similarity=similarity)
            candidates.append([_candidate(candidate) for candidate in fused.candidates])
            notes.append(_notes(fused))
        method = self._settings["method"]
        table = with_appended(table, "errors", notes)
        table = with_appended(table, "costs", [[costs.entry("fuse", method)] for _ in candidates])
        field = FUSED.field("candidates")
        return table.append_column(field, pa.array(candidates, field.type))


def fuse_original(rows: Iterable[Mapping[str, Any]], settings: Mapping[str, Any]) -> dict[str, list[tuple[str, float]]]:
    """What the original alone would have come to: its lists (rows of runs/, in order of rank) fused the same way."""
    lists: dict[str, dict[str, RunList]] = {}
    for row in rows:
        found = lists.setdefault(row["query_id"], {})
        run = found.setdefault(row["retriever"], RunList(ORIGINAL, row["position"], row["retriever"], [], []))
        run.doc_ids.append(row["doc_id"])  # type: ignore[attr-defined]
        run.scores.append(row["score"])  # type: ignore[attr-defined]
    alone = dict(settings) | {"weights": {}, "redundancy": "none"}
    return {
        query_id: [(candidate.doc_id, candidate.score) for candidate in fuse(list(found.values()), **alone).candidates]
        for query_id, found in lists.items()
    }


def _run_lists(table: pa.Table, weights: Sequence[Weights], depth: int) -> Iterable[list[RunList]]:
    """The lists of each row, cut at `depth` before they become Python objects: a shard holds a million hits."""
    lists = table.column("runs").combine_chunks()
    flat = lists.flatten()
    hits = pc.list_slice(flat.field("hits"), 0, depth)
    ends = np.cumsum(pc.list_value_length(hits).to_numpy(zero_copy_only=False))
    doc_ids = hits.flatten().field("doc_id").to_pylist()
    scores = hits.flatten().field("score").to_pylist()
    names = [flat.field(name).to_pylist() for name in ("strategy", "position", "retriever")]
    number, begin = 0, 0
    for count, of_row in zip(pc.list_value_length(lists).to_pylist(), weights, strict=True):
        runs = []
        for _ in range(count):
            strategy, position, retriever = (column[number] for column in names)
            end = int(ends[number])
            weight = of_row[strategy, position]
            runs.append(RunList(strategy, position, retriever, doc_ids[begin:end], scores[begin:end], weight))
            number, begin = number + 1, end
        yield runs


def _weights(table: pa.Table) -> list[Weights]:
    """Every text of each row with its own weight, in the order of `similarity`: the original, then the rewrites."""
    lists = table.column("rewrites").combine_chunks()
    flat = lists.flatten()
    columns = zip(*(flat.field(name).to_pylist() for name in ("strategy", "position", "weight")), strict=True)
    return [
        {(ORIGINAL, 1): 1.0} | {(strategy, position): weight for strategy, position, weight in islice(columns, count)}
        for count in pc.list_value_length(lists).to_pylist()
    ]


def _candidate(candidate: Any) -> dict[str, Any]:
    return {
        "doc_id": candidate.doc_id,
        "score": candidate.score,
        "sources": [source._asdict() for source in candidate.sources],
    }


def _notes(fused: Fused) -> list[dict[str, Any]]:
    notes = []
    if fused.stood_in:
        notes.append(_note("original_stands_in", "no list of weight above 0 has a hit; the original's are used instead"))
    if not fused.candidates:
        notes.append(_note("no_hits", "no list has a hit for this query"))
    return notes


def _note(reason: str, message: str) -> dict[str, Any]:
    return {"stage": "fuse", "component": None, "reason": reason, "message": message, "raw": None, "attempts": 1}

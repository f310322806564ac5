"""The fusing stage: fuses the lists of a query into one list of candidates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster import costs
from cluster.run.stage import heartbeat
from jobs.job.opening import open_documents
from jobs.tables import CANDIDATE, SOURCE, nested, with_appended
from retrievers.corpora.duplicates import fuse_distinct
from retrievers.fusion import Fused, fuse
from retrievers.lists import Hits, Lists, by_document
from retrievers.ranking import offsets_of
from retrievers.redundancy import Similarity
from retrievers.retriever import DocumentStore, RetrieverSettings
from retrievers.settings import FuseSettings


class Fuse:
    """A worker of the fusing stage."""

    NEEDS = ("runs", "similarity")
    ADDS = pa.schema([("candidates", pa.list_(CANDIDATE))])
    DROPS = ("runs", "similarity")

    def __init__(self, settings: FuseSettings, documents: tuple[str, RetrieverSettings] | None = None) -> None:
        """Opens the documents, if duplicates are dropped.

        Args:
            settings: the config's `fuse`.
            documents: (name, settings) of the retriever whose index has the texts.
        """
        self._settings = settings
        self._documents = open_documents(*documents, patient=True) if documents and settings.duplicates == "drop" else None

    def __call__(self, table: pa.Table) -> pa.Table:
        """Returns the block with candidates; a query without any, or with the original standing in, gets a row in errors."""
        lists = _lists(table, self._settings.depth)
        similar = similarity_of(table.column("similarity").combine_chunks())
        fused = fuse_candidates(by_document(lists, table.num_rows), self._settings, similar, self._documents)
        table = with_appended(table, "errors", _notes(fused))
        table = with_appended(table, "costs", [[costs.entry("fuse", self._settings.method)]] * table.num_rows)
        (field,) = self.ADDS
        return table.drop_columns(list(self.DROPS)).append_column(field, _candidates(lists, fused))


def fuse_candidates(
    hits: Hits, settings: FuseSettings, similarity: Similarity | None, documents: DocumentStore | None
) -> Fused:
    """Returns the candidates of each query; with `documents` those of different texts."""
    if documents is None:
        return fuse(hits, settings, similarity)
    return fuse_distinct(hits, settings, similarity, lambda doc_ids: documents.texts(doc_ids, heartbeat))


def _lists(table: pa.Table, depth: int) -> Lists:
    """Returns the lists of all rows, cut at `depth` hits."""
    column = table.column("runs").combine_chunks()
    runs = column.flatten()
    hits = pc.list_slice(runs.field("hits"), 0, depth)
    return Lists(
        np.repeat(np.arange(table.num_rows), pc.list_value_length(column).to_numpy()),
        runs.field("strategy"),
        runs.field("position").to_numpy(),
        runs.field("retriever"),
        runs.field("text").to_numpy(),
        runs.field("weight").to_numpy(),
        runs.field("position_weight").to_numpy(),
        offsets_of(pc.list_value_length(hits).to_numpy()),
        hits.flatten().field("doc_id"),
        hits.flatten().field("score").to_numpy(),
    )


def similarity_of(column: pa.ListArray) -> Similarity:
    """Returns a column `similarity` as fusion takes it."""
    return Similarity(offsets_of(pc.fill_null(pc.list_value_length(column), 0).to_numpy()), column.flatten().to_numpy())


def source_lists(lists: Lists, fused: Fused) -> pa.ListArray:
    """Returns the sources of each candidate."""
    at = pa.array(fused.source_list)
    sources = pa.StructArray.from_arrays(
        [
            lists.strategy.take(at),
            pa.array(lists.position).take(at),
            lists.retriever.take(at),
            pa.array(fused.source_rank.astype(np.int32)),
            pa.array(fused.source_score),
        ],
        fields=list(SOURCE),
    )
    return nested(fused.source_offsets, sources, CANDIDATE.field("sources").type)


def _candidates(lists: Lists, fused: Fused) -> pa.ListArray:
    columns = [fused.doc_ids, pa.array(fused.scores), source_lists(lists, fused)]
    return nested(fused.offsets, pa.StructArray.from_arrays(columns, fields=list(CANDIDATE)), pa.list_(CANDIDATE))


def _notes(fused: Fused) -> list[list[dict[str, Any]]]:
    notes: list[list[dict[str, Any]]] = [[] for _ in fused.stood_in]
    for row in np.flatnonzero(fused.stood_in):
        notes[row].append(_note("original_stands_in", "no list of weight above 0 has a hit; the original's are used instead"))
    for row in np.flatnonzero(np.diff(fused.offsets) == 0):
        notes[row].append(_note("no_hits", "no list has a hit for this query that takes part"))
    return notes


def _note(reason: str, message: str) -> dict[str, Any]:
    return {"stage": "fuse", "component": None, "reason": reason, "message": message, "raw": None, "attempts": 1}

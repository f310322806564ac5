"""The reranking stage: candidates -> results, scored against the original query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster import costs
from jobs.tables import RERANKED, RESULT, with_appended
from retrievers.reranker import combine, open_reranker
from retrievers.retriever import distinct, open_documents


class Rerank:
    """A worker: FUSED -> RERANKED. Documents' texts are fetched here, once each per shard, and dropped here.

    Args:
        settings: the config's `rerank`.
        documents: (name, block) of the retriever whose index has the texts.
        device: where the model computes.
    """

    def __init__(self, settings: Mapping[str, Any], documents: tuple[str, Mapping[str, Any]], device: str) -> None:
        self._settings = settings
        self._reranker = open_reranker(settings, device)
        self._documents = open_documents(*documents) if self._reranker else None
        model = settings["model"] if settings["kind"] == "cross_encoder" else (settings["encoder"] or {}).get("model")
        self._model = model if self._reranker else None

    def __call__(self, table: pa.Table) -> pa.Table:
        lists = table.column("candidates").combine_chunks()
        lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
        flat = lists.flatten()
        doc_ids = flat.field("doc_id").to_pylist()
        fused = flat.field("score").to_pylist()
        scores = self._score(np.repeat(np.array(table.column("query").to_pylist(), dtype=object), lengths).tolist(), doc_ids)
        chosen, scored, counts = [], [], []
        ends = np.cumsum(lengths)
        for begin, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True):
            hits = self._order(doc_ids[begin:end], fused[begin:end], None if scores is None else scores[begin:end])
            place = {doc_id: begin + i for i, doc_id in enumerate(doc_ids[begin:end])}
            chosen += [place[doc_id] for doc_id, _ in hits]
            scored += [score for _, score in hits]
            counts.append(len(hits))
        kept = flat.take(pa.array(chosen, pa.int64()))
        columns = [kept.field("doc_id"), pa.array(scored, pa.float64()), kept.field("score"), kept.field("sources")]
        hits = pa.StructArray.from_arrays(columns, fields=list(RESULT))
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        field = RERANKED.field("hits")
        table = table.append_column(field, pa.ListArray.from_arrays(offsets, hits, type=field.type))
        if self._reranker is None:
            return table
        spent = [
            [costs.entry("rerank", self._settings["kind"], float(n), model=self._model, pairs=n)] for n in lengths.tolist()
        ]
        return with_appended(table, "costs", spent)

    def _score(self, queries: list[str], doc_ids: list[str]) -> np.ndarray | None:
        """The reranker's score of every pair, or None without one."""
        if self._reranker is None or self._documents is None:
            return None
        once, place = distinct(doc_ids)
        texts = self._documents.texts(once)
        return self._reranker.score(queries, [texts[i] for i in place])

    def _order(self, doc_ids: list[str], fused: list[float], scores: np.ndarray | None) -> list[tuple[str, float]]:
        """The results of one query, best first, with what they are ordered by."""
        if scores is None:
            return list(zip(doc_ids, fused, strict=True))
        how, keep = self._settings["combine"], self._settings["keep"]
        return [(hit.doc_id, hit.score) for hit in combine(doc_ids, fused, scores.tolist(), how, keep)]

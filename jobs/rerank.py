"""The reranking stage: candidates -> results, scored against the original query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster import costs
from cluster.stage import pulse
from jobs.indexes import open_documents
from jobs.tables import RERANKED, RESULT, failed, with_appended
from retrievers.reranker import combine, open_reranker
from retrievers.retriever import RetrieverError, distinct

PORTION = 2048  # pairs scored between two signs of life: some minutes on two CPU cores, sorted by length inside


class Rerank:
    """A worker: FUSED -> RERANKED. Documents' texts are fetched here, once each per shard, and dropped here.

    Args:
        settings: the config's `rerank`.
        documents: (name, block) of the retriever whose index has the texts.
        device: where the model computes.
        corpus: what the plan found the documents to be; others are refused.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        documents: tuple[str, Mapping[str, Any]],
        device: str,
        corpus: str | None = None,
    ) -> None:
        self._settings = settings
        self._reranker = open_reranker(settings, device)
        self._documents = open_documents(*documents) if self._reranker else None
        found = getattr(self._documents, "entry", {}).get("corpus")
        if corpus is not None and found is not None and found != corpus:
            raise RetrieverError(
                f"retrieve.retrievers.{documents[0]}: the documents of its index were replaced since this run was planned; "
                "start a new run, or put the old index back"
            )
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
        texts = self._documents.texts(once, pulse)
        scores = np.empty(len(doc_ids))
        for begin in range(0, len(doc_ids), PORTION):
            part = slice(begin, begin + PORTION)
            scores[part] = self._reranker.score(queries[part], [texts[i] for i in place[part]])
            pulse(min(1.0, (begin + PORTION) / len(doc_ids)))
        return scores

    def _order(self, doc_ids: list[str], fused: list[float], scores: np.ndarray | None) -> list[tuple[str, float]]:
        """The results of one query, best first, with what they are ordered by."""
        if scores is None:
            return list(zip(doc_ids, fused, strict=True))
        how, keep = self._settings["combine"], self._settings["keep"]
        return [(hit.doc_id, hit.score) for hit in combine(doc_ids, fused, scores.tolist(), how, keep)]


def fused_order(table: pa.Table, error: Exception, keep: int) -> pa.Table:
    """What becomes of a query that the reranker fails on: its candidates in fused order, and a row in errors."""
    if isinstance(error, RetrieverError):  # the index or the model, not this query
        raise error
    candidates = table.column("candidates").to_pylist()
    hits = [[hit | {"fused_score": hit["score"]} for hit in found[:keep]] for found in candidates]
    table = with_appended(table, "errors", [[failed("rerank", error)]])
    field = RERANKED.field("hits")
    return table.append_column(field, pa.array(hits, field.type))

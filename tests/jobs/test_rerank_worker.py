"""The reranking worker: pairs of the original query and the documents' texts, in the order that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from jobs.config import Rerank as RerankConfig
from jobs.rerank import Rerank, fused_order
from jobs.tables import FUSED, RERANKED
from retrievers.encoder import Encoder, encoder_settings
from retrievers.reranker import combine
from retrievers.retriever import RetrieverError, SearchText

Row = dict[str, Any]
Block = dict[str, Any]
SOURCE = {"strategy": "original", "position": 1, "retriever": "bm25", "rank": 1, "score": 2.5}


def settings(encoder: Block | None = None, **changes: Any) -> Block:
    return RerankConfig(**changes).model_dump() | {"encoder": encoder}


@pytest.fixture(scope="module")
def worker(bm25: Block, dense: Block) -> Callable[..., Rerank]:
    """A bi_encoder's worker; those with the same settings are one."""

    @cache
    def build(**changes: Any) -> Rerank:
        return Rerank(settings(dense["encoder"], kind="bi_encoder", **changes), ("bm25", bm25), "cpu")

    return build


def query(text: str, *candidates: tuple[str, float]) -> Row:
    return {
        "shard": 0, "query_id": text, "query": text, "log_count": 1, "costs": [], "errors": [], "rewrites": [], "runs": [],
        "similarity": None,
        "candidates": [{"doc_id": doc_id, "score": score, "sources": [SOURCE]} for doc_id, score in candidates],
    }  # fmt: skip


def block(*rows: Row) -> pa.Table:
    return pa.Table.from_pylist(list(rows), FUSED)


def hits(result: pa.Table) -> list[list[tuple[str, float, float]]]:
    return [[(one["doc_id"], one["score"], one["fused_score"]) for one in row] for row in result.column("hits").to_pylist()]


ROWS = [
    query("when do spring tides come", ("d03", 0.9), ("d07", 0.8), ("d06", 0.7), ("d01", 0.1)),
    query("nothing was found"),
    query("cousins of bread yeast", ("d08", 0.5), ("d05", 0.4)),
]


def test_none_hands_the_fused_order_on(bm25: Block) -> None:
    result = Rerank(settings(kind="none", keep=1), ("bm25", bm25), "cpu")(block(*ROWS))
    assert result.schema == RERANKED
    assert hits(result) == [[(c["doc_id"], c["score"], c["score"]) for c in row["candidates"]] for row in ROWS]
    assert result.column("hits").to_pylist()[0][0]["sources"] == [SOURCE]
    assert result.column("costs").to_pylist() == [[], [], []]


@pytest.mark.parametrize("how", ["replace", "blend"])
def test_the_order_is_that_of_the_scores_combined_by_hand(
    worker: Callable[..., Rerank], dense: Block, passages: dict[str, str], how: str
) -> None:
    """bi_encoder: the cosine of query and document, here encoded one text at a time."""
    encoder = Encoder(encoder_settings(dense["encoder"]), "cpu")

    def cosine(text: str, doc_id: str) -> float:
        query_vector = encoder.encode([SearchText(text, "query")])[0]
        return float(query_vector @ encoder.encode([SearchText(passages[doc_id], "passage")])[0])

    result = worker(combine=how, keep=3)(block(*ROWS))
    assert result.schema == RERANKED
    for row, found in zip(ROWS, hits(result), strict=True):
        doc_ids = [one["doc_id"] for one in row["candidates"]]
        fused = [one["score"] for one in row["candidates"]]
        wanted = combine(doc_ids, fused, [cosine(row["query"], doc_id) for doc_id in doc_ids], how, 3)
        assert [one[0] for one in found] == [one.doc_id for one in wanted]
        assert [one[1] for one in found] == pytest.approx([one.score for one in wanted], abs=1e-4)
        assert [one[2] for one in found] == [one.fused_score for one in wanted]


def test_what_is_paid_for_is_every_pair_also_those_that_are_not_kept(worker: Callable[..., Rerank], dense: Block) -> None:
    rows = worker(keep=1)(block(*ROWS))
    spent = [[(one["component"], one["model"], one["pairs"]) for one in row] for row in rows.column("costs").to_pylist()]
    model = dense["encoder"]["model"]
    assert spent == [[("bi_encoder", model, pairs)] for pairs in (4, 0, 2)]
    assert [len(row) for row in hits(rows)] == [1, 0, 1]


def test_the_sources_stay_with_their_document(worker: Callable[..., Rerank]) -> None:
    row = query("when do spring tides come", ("d03", 0.9), ("d07", 0.8))
    for place, candidate in enumerate(row["candidates"]):
        candidate["sources"] = [SOURCE | {"rank": 10 + place}]
    (found,) = worker(combine="replace", keep=3)(block(row)).column("hits").to_pylist()
    assert [(one["doc_id"], one["sources"][0]["rank"]) for one in found] == [("d07", 11), ("d03", 10)]


def test_a_block_without_any_candidate(worker: Callable[..., Rerank], bm25: Block) -> None:
    for one in (worker(keep=1), Rerank(settings(kind="none"), ("bm25", bm25), "cpu")):
        result = one(block(query("a"), query("b")))
        assert result.schema == RERANKED
        assert hits(result) == [[], []]


def test_a_block_in_pieces_is_reranked_like_a_whole_one(worker: Callable[..., Rerank]) -> None:
    pieces = pa.concat_tables([block(ROWS[2]), block(ROWS[0]), block(*ROWS[1:])]).slice(1)
    assert hits(worker(keep=1)(pieces)) == hits(worker(keep=1)(block(*ROWS)))


def test_a_candidate_that_the_index_does_not_have_is_refused(worker: Callable[..., Rerank]) -> None:
    with pytest.raises(RetrieverError, match="no document 'd99'"):
        worker(keep=1)(block(query("a", ("d99", 1.0))))


def test_a_query_that_the_reranker_fails_on_keeps_its_fused_order() -> None:
    sources = [{"strategy": "original", "position": 1, "retriever": "bm25", "rank": 1, "score": 2.0}]
    candidates = [{"doc_id": f"d{n}", "score": 3.0 - n, "sources": sources} for n in range(3)]
    row = {"shard": 0, "query_id": "q", "query": "x", "log_count": 1, "costs": [], "errors": [], "rewrites": [], "runs": []}
    table = pa.Table.from_pylist([row | {"similarity": None, "candidates": candidates}], schema=FUSED)
    result = fused_order(table, RuntimeError("device-side\nassert"), keep=2)
    assert result.schema.equals(RERANKED)
    (after,) = result.to_pylist()
    assert [(hit["doc_id"], hit["score"], hit["fused_score"]) for hit in after["hits"]] == [("d0", 3.0, 3.0), ("d1", 2.0, 2.0)]
    assert [(e["stage"], e["reason"], e["message"]) for e in after["errors"]] == [
        ("rerank", "failed", "RuntimeError: device-side assert")
    ]
    with pytest.raises(RetrieverError):
        fused_order(table, RetrieverError("index replaced"), keep=2)


def test_a_worker_says_how_far_its_shard_is(worker: Callable[..., Rerank], monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[float] = []
    monkeypatch.setattr("jobs.rerank.pulse", said.append)
    monkeypatch.setattr("jobs.rerank.PORTION", 4)
    worker()(block(*ROWS))
    assert said == [4 / 6, 1.0]

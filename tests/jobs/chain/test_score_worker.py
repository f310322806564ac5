"""The scoring worker: the reranker's own score of every pair of the original query and a candidate's text."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import RetrieverError
from jobs.chain.pipeline import without
from jobs.chain.stages.score import Score
from retrievers.encoder import Encoder
from retrievers.local.build import build_local_index
from retrievers.retriever import SearchText
from retrievers.settings import EncoderSettings, RerankSettings
from tests.support.jobs.in_flight import SCORED
from tests.support.jobs.workers import Block, Row, fused, orderer, plain, scorer
from tests.support.retrievers.blocks import index_fields

SOURCE = {"strategy": "original", "position": 1, "retriever": "bm25", "rank": 1, "score": 2.5}


def settings(encoder: Block | None = None, **changes: Any) -> RerankSettings:
    return RerankSettings(**changes, encoder=encoder)


@pytest.fixture(scope="module")
def worker(bm25: Block, dense: Block) -> Callable[[], Score]:
    """A bi_encoder's worker, always the same."""
    return cache(lambda: scorer(settings(dense["encoder"], kind="bi_encoder"), bm25))


@pytest.fixture(scope="module")
def cosine(dense: Block, passages: dict[str, str]) -> Callable[[str, str], float]:
    """A bi_encoder's score of a query and a document, each encoded alone."""
    encoder = Encoder(EncoderSettings(**dense["encoder"]), "cpu")

    def score(text: str, doc_id: str) -> float:
        query_vector = encoder.encode([SearchText(text, "query")])[0]
        return float(query_vector @ encoder.encode([SearchText(passages[doc_id], "passage")])[0])

    return score


def query(text: str, *candidates: tuple[str, float]) -> Row:
    return {
        "query_id": text, "query": text,
        "candidates": [{"doc_id": doc_id, "score": score, "sources": [SOURCE]} for doc_id, score in candidates],
    }  # fmt: skip


def block(*rows: Row) -> pa.Table:
    return fused(rows)


def scores(result: pa.Table) -> list[list[tuple[str, float]]]:
    return [[(one["doc_id"], one["score"]) for one in row["scores"]] for row in plain(result)]


def hits(result: pa.Table) -> list[list[tuple[str, float, float]]]:
    return [[(one["doc_id"], one["score"], one["fused_score"]) for one in row["hits"]] for row in plain(result)]


ROWS = [
    query("when do spring tides come", ("d03", 0.9), ("d07", 0.8), ("d06", 0.7), ("d01", 0.1)),
    query("nothing was found"),
    query("cousins of bread yeast", ("d08", 0.5), ("d05", 0.4)),
]


@pytest.mark.slow
def test_every_candidate_has_the_score_of_its_pair_in_fused_order(
    worker: Callable[[], Score], dense: Block, cosine: Callable[[str, str], float]
) -> None:
    result = worker()(block(*ROWS))
    assert result.schema == SCORED
    for row, found in zip(ROWS, scores(result), strict=True):
        assert [doc_id for doc_id, _ in found] == [one["doc_id"] for one in row["candidates"]]
        wanted = [cosine(row["query"], one["doc_id"]) for one in row["candidates"]]
        assert [score for _, score in found] == pytest.approx(wanted, abs=1e-4)


def test_what_is_paid_for_is_every_pair_also_those_that_are_not_kept(worker: Callable[[], Score], dense: Block) -> None:
    result = orderer("blend", 1)(worker()(block(*ROWS)))
    spent = [
        [(one["stage"], one["component"], one["model"], one["pairs"]) for one in row]
        for row in result.column("costs").to_pylist()
    ]
    assert spent == [[("rerank", "bi_encoder", dense["encoder"]["model"], pairs)] for pairs in (4, 0, 2)]
    assert [len(row) for row in hits(result)] == [1, 0, 1]


@pytest.mark.slow
def test_documents_of_one_text_are_one_pair(dense: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["the sea", "bread", "the sea"]
    pq.write_table(pa.table({"doc_id": ["a", "b", "c"], "title": ["", "", ""], "text": texts}), tmp_path / "corpus.parquet")
    build_local_index(tmp_path / "index", tmp_path / "corpus.parquet", index_fields("english"))
    asked: list[int] = []
    made = scorer(settings(dense["encoder"], kind="bi_encoder"), {"kind": "local", "index": str(tmp_path / "index")})
    ((_, reranker),) = made._rerankers
    score = reranker.score

    def counting(queries: list[str], texts: list[str]) -> Any:
        asked.append(len(queries))
        return score(queries, texts)

    monkeypatch.setattr(reranker, "score", counting)
    result = made(block(query("tides", ("a", 0.9), ("b", 0.8), ("c", 0.7))))
    assert asked == [2]
    ((a, b, c),) = scores(result)
    assert a[1] == c[1] != b[1]
    assert [one["pairs"] for one in result.column("costs").to_pylist()[0]] == [2]


def test_a_candidate_that_the_index_does_not_have_is_refused(worker: Callable[[], Score]) -> None:
    with pytest.raises(RetrieverError, match="no document 'd99'"):
        worker()(block(query("a", ("d99", 1.0))))


def test_documents_that_were_replaced_since_the_plan_are_refused(bm25: Block, dense: Block) -> None:
    with pytest.raises(RetrieverError, match="were replaced since this run was planned"):
        scorer(settings(dense["encoder"], kind="bi_encoder"), bm25, "another")


def test_a_query_that_the_reranker_fails_on_has_no_scores_and_a_row_in_errors() -> None:
    table = block(query("x", ("d0", 3.0), ("d1", 2.0), ("d2", 1.0)))
    result = without(table, RuntimeError("device-side\nassert"), "rerank", Score)
    assert result.schema.equals(SCORED)
    (after,) = result.to_pylist()
    assert after["scores"] is None
    assert [(e["stage"], e["reason"], e["message"]) for e in after["errors"]] == [
        ("rerank", "failed", "RuntimeError: device-side assert")
    ]
    assert hits(orderer("blend", 2)(result)) == [[("d0", 3.0, 3.0), ("d1", 2.0, 2.0)]]

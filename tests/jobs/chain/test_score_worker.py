"""The scoring worker: the reranker's own score of every pair of the original query and a candidate's text."""

from dataclasses import replace
from functools import cache
from math import isnan
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.errors import RetrieverError
from jobs.chain.pipeline import without
from jobs.chain.stages.llm.first_results import ShownResults
from jobs.chain.stages.score import Score
from retrievers.settings import RerankSettings
from tests.support.jobs.in_flight import SCORED
from tests.support.jobs.workers import Block, Row, fused, plain, reranked, results, scored, scorer

SOURCE = {"strategy": "original", "position": 1, "retriever": "bm25", "rank": 1, "score": 2.5}


@pytest.fixture(scope="module")
def worker(bm25: Block, served_dense: Block) -> Any:
    """Opens the worker of a bi_encoder over the documents of a version, always the same."""
    return cache(lambda corpus=None: scorer(RerankSettings(kind="bi_encoder", encoder=served_dense["encoder"]), bm25, corpus))


def query(text: str, *candidates: tuple[str, float]) -> Row:
    return {
        "query_id": text, "query": text,
        "candidates": [{"doc_id": doc_id, "score": score, "sources": [SOURCE]} for doc_id, score in candidates],
    }  # fmt: skip


def test_what_is_paid_for_is_every_pair_also_those_that_are_not_kept(worker: Any, served_dense: Block) -> None:
    rows = [
        query("Spring tides come with the moon", ("d03", 0.9), ("d07", 0.8), ("d06", 0.7), ("d01", 0.1)),
        query("nothing was found"),
        query("The yeast of bread and cousins of yeast", ("d08", 0.5), ("d05", 0.4)),
    ]
    result = worker()(fused(rows))
    assert [[one["doc_id"] for one in row["scores"]] for row in plain(result)] == [
        [one["doc_id"] for one in row["candidates"]] for row in rows
    ]
    spent = [
        [(one["stage"], one["component"], one["model"], one["pairs"]) for one in row]
        for row in result.column("costs").to_pylist()
    ]
    assert spent == [[("rerank", "bi_encoder", served_dense["encoder"]["model"], pairs)] for pairs in (4, 0, 2)]
    assert [[doc_id for doc_id, *_ in row[:1]] for row in results(result, reranked("replace"))] == [["d07"], [], ["d05"]]


def test_documents_with_one_text_are_one_pair(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (documents,) = worker()._documents.values()
    monkeypatch.setattr(documents, "texts", lambda ids, *_: ["bread"] * len(ids))
    with_scores = worker()(fused([query("yeast", ("d05", 0.5), ("d08", 0.4))]))
    assert [one["pairs"] for one in with_scores.column("costs")[0].as_py()] == [1]


def test_documents_that_are_not_those_of_the_plan_are_refused(worker: Any) -> None:
    with pytest.raises(RetrieverError, match="no document 'd99'"):
        worker()(fused([query("a", ("d99", 1.0))]))
    with pytest.raises(RetrieverError, match="were replaced since this run was planned"):
        worker("another")


def test_a_query_that_the_reranker_fails_on_has_no_scores_and_a_row_in_errors(worker: Any) -> None:
    table = fused([query("x", ("d01", 3.0), ("d03", 2.0), ("d05", 1.0))])
    result = without(table, RuntimeError("device-side\nassert"), "rerank", Score)
    assert result.schema.equals(SCORED)
    (after,) = result.to_pylist()
    assert (after["scores"], after["unscored"]) == ([], [-1])
    assert [(e["stage"], e["reason"], e["message"]) for e in after["errors"]] == [
        ("rerank", "failed", "RuntimeError: device-side assert")
    ]
    for later in (result, worker().scored(result, {0})):  # a further round does not score it either
        assert results(later, reranked("blend")) == [[("d01", 3.0, 3.0), ("d03", 2.0, 2.0), ("d05", 1.0, 1.0)]]


def test_an_arm_has_the_scores_of_its_own_pairs_alone() -> None:
    work = reranked("replace")
    (answer,) = work.answers
    work = replace(work, answers=(replace(answer, candidates=1),))
    scores = [{"doc_id": doc_id, "score": score} for doc_id, score in (("d01", 0.1), ("d03", 0.9))]  # another arm needs d03
    table = scored([query("x", ("d01", 3.0), ("d03", 2.0)) | {"scores": scores}])
    documents: Any = SimpleNamespace(texts=lambda ids, *_: ids, places=lambda ids: ids)
    (shown,) = ShownResults(table, work).shown({answer.documents: documents}, {0: 2})[0]
    assert [(one.doc_id, one.score) for one in shown] == [("d01", 0.1), ("d03", 2.0)]
    assert shown[0].reranked == 0.1
    assert isnan(shown[1].reranked or 0.0)

"""Further rounds of whole jobs in this process: which queries have one, what is asked and searched, and what comes of it."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from jobs.chain.stages.llm.iterate import Iterate
from jobs.runs.folder import RunFolder
from tests.support.jobs.in_process_runs import QUERIES, finished, prepared_work, rows
from tests.support.retrievers.fake_models import INFERENCE_FAILED, FakeModels
from tests.support.rewriters.fake_server import FakeServer


def said(body: dict[str, Any], more: str = "of the full moon") -> str:
    """Writes the refined query of a query."""
    return json.dumps({"query": f"{body['messages'][-1]['content'].rpartition('Query: ')[2]} {more}"})


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["refiner-8b"], text=said) as one:
        yield one


@pytest.fixture
def job(small_job: Callable[..., str], values: dict[str, Any], server: FakeServer) -> str:
    engine = {"kind": "openai", "model": "refiner-8b", "base_url": server.address}
    values["iterate"] = {"by": "bm25", "below": 1.2, "documents": 2, "merge": "best", "engine": engine}
    return small_job()


def results(run: RunFolder) -> dict[str, list[str]]:
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    found: dict[str, list[str]] = {}
    for one in sorted(rows(run, "results"), key=lambda one: one["rank"]):
        found.setdefault(texts[one["query_id"]], []).append(one["doc_id"])
    return found


def asked(server: FakeServer) -> Counter[str]:
    prompts = [one["messages"][-1]["content"] for one in server.bodies]
    return Counter(prompt.rpartition("Query: ")[2] for prompt in prompts if "Tried before" in prompt)


def overlap(query: str, texts: Sequence[str]) -> list[float]:
    """The reranker of the tests below: words in common, and the longer text first."""
    return [sum(word in text.lower() for word in query.split()) + len(text) / 1000 for text in texts]


@pytest.fixture
def reranker() -> Iterator[FakeModels]:
    with FakeModels("tei", score=overlap) as one:
        yield one


def test_what_a_failed_round_has_spent_is_charged(job: str, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    search = Iterate._search

    def search_or_fail(worker: Iterate, block: Any, arms: Any, texts: Any, number: int) -> None:
        if number == 2 and QUERIES[2] in block.table.column("query").to_pylist():
            raise ValueError("no list")
        search(worker, block, arms, texts, number)

    server.text = lambda body: said(body, str(len(server.bodies)))
    monkeypatch.setattr(Iterate, "_search", search_or_fail)
    run = finished(prepared_work(job, ["store=null", "iterate.below=1e9", "iterate.rounds=2"], None))
    (query_id,) = [one["query_id"] for one in rows(run, "errors") if one["message"] == "ValueError: no list"]
    spent = rows(run, "costs")
    assert sum(one["requests"] for one in spent if one["stage"] == "iterate") == len(server.bodies)
    assert sum(one["searches"] for one in spent if one["query_id"] == query_id and one["stage"] == "retrieve") == 3
    answers = [one["request"] for one in rows(run, "completions") if one["query_id"] == query_id]
    assert sorted(answers) == ["dmqr", "iterate", "iterate"]


@pytest.mark.slow
def test_a_query_on_which_the_reranker_failed_stays_as_it_was_fused(job: str, server: FakeServer, reranker: FakeModels) -> None:
    failed = QUERIES[2]
    plain = finished(prepared_work(job, ["iterate=null", "name=plain", "store=null"], None))
    reranker.fail(failed, INFERENCE_FAILED)
    rerank = {"kind": "server", "model": reranker.model, "base_url": reranker.address}
    settings = [f"rerank={json.dumps(rerank)}", "store=null", "iterate.below=1e9"]
    run = finished(prepared_work(job, [*settings, "iterate.by=rerank", "name=one"], None))
    assert asked(server) == Counter(set(QUERIES) - {failed})  # its best score is not known
    assert results(run)[failed] == results(plain)[failed]
    run = finished(prepared_work(job, [*settings, "name=two"], None))
    assert asked(server)[failed] == 1
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    own = [one for one in rows(run, "results") if texts[one["query_id"]] == failed]
    assert {one["rerank_score"] for one in own} == {None}
    assert [one["score"] for one in sorted(own, key=lambda one: one["rank"])] == sorted(
        (one["score"] for one in own), reverse=True
    )

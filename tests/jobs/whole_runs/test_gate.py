"""Whole jobs with a gate in this process: which queries are rewritten, what is asked and searched, and what comes of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobs.counts import GateQueries
from jobs.runs.folder import RunFolder
from tests.support.jobs.in_process_runs import (
    QUERIES,
    finished,
    prepared_work,
    rows,
)
from tests.support.params import rest_slow
from tests.support.rewriters.fake_server import FakeServer

BELOW = 1.2


def query_of(prompt: str) -> str:
    """The query that a prompt ends with, with or without quotation marks."""
    return max((one for one in QUERIES if prompt.rstrip(' "').endswith(one)), key=len)


def said(body: dict[str, Any]) -> str:
    prompt = body["messages"][-1]["content"]
    query = query_of(prompt)
    texts = {"general": f"{query} moon", "keyword": f"{query} lamp"}
    if body.get("response_format") or '"general"' in prompt:
        return json.dumps(texts)
    return texts["keyword" if "keywords of the search query" in prompt else "general"]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["rewriter-8b"], text=said) as one:
        yield one


@pytest.fixture
def job(small_job: Callable[..., str], server: FakeServer) -> str:
    engine = {"kind": "openai", "model": "rewriter-8b", "base_url": server.address}
    gate = {"by": "bm25", "below": BELOW}
    return small_job(rewrite={"engine": engine, "gate": gate, "strategies": ["general", "keyword"]})


def asked(server: FakeServer, since: int = 0) -> Counter[str]:
    return Counter(query_of(body["messages"][-1]["content"]) for body in server.bodies[since:])


def original_scores(run: RunFolder) -> dict[str, list[float]]:
    """Query -> the scores of its own list, best first."""
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    found: dict[str, list[float]] = {query: [] for query in QUERIES}
    for one in sorted(rows(run, "runs"), key=lambda one: one["rank"]):
        if (one["strategy"], one["retriever"]) == ("original", "bm25"):
            found[texts[one["query_id"]]].append(one["score"])
    return found


def by_query(run: RunFolder, table: str, *columns: str) -> dict[str, list[tuple[Any, ...]]]:
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    found: dict[str, list[tuple[Any, ...]]] = {}
    for one in rows(run, table):
        found.setdefault(texts[one["query_id"]], []).append(tuple(one[name] for name in columns))
    return {query: sorted(of) for query, of in found.items()}


def unsure(scores: dict[str, list[float]]) -> set[str]:
    """Returns the queries that are to be rewritten, by the rule as the documentation has it."""
    return {query for query, of in scores.items() if not of or of[0] < BELOW}


def searches(run: RunFolder) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in rows(run, "costs"):
        found[one["stage"]] += one["searches"]
    return +found


@pytest.mark.parametrize("calls", rest_slow(["joint", "separate"], ["joint"]))
def test_queries_of_which_the_retriever_is_sure_are_not_rewritten(job: str, server: FakeServer, calls: str) -> None:
    plain = finished(prepared_work(job, ["rewrite.gate=null", "name=plain", f"rewrite.calls={calls}"], None))
    alone = finished(prepared_work(job, ["rewrite.strategies=[]", "name=alone"], None))
    low = unsure(original_scores(plain))
    assert low not in (set(), set(QUERIES)), original_scores(plain)
    before = len(server.bodies)
    run = finished(prepared_work(job, [f"rewrite.calls={calls}", "store=null"], None))
    assert asked(server, before) == Counter(dict.fromkeys(low, 1 if calls == "joint" else 2))
    assert by_query(run, "rewrites", "strategy", "text").keys() == low
    chosen = by_query(run, "selections", "strategies", "reason")
    assert chosen.keys() == set(QUERIES)
    for query, ((strategies, reason),) in chosen.items():
        assert strategies == (["general", "keyword"] if query in low else [])
        assert reason.startswith("gate: bm25 ")
        assert ("is sure" in reason) == (query not in low)
    assert run.counts[GateQueries("sure").key] == len(QUERIES) - len(low)
    assert run.counts[GateQueries("unsure").key] == len(low)
    results, of_plain, of_alone = (by_query(one, "results", "rank", "doc_id", "score") for one in (run, plain, alone))
    for query in QUERIES:
        assert results.get(query) == (of_plain if query in low else of_alone).get(query)
    assert original_scores(run) == original_scores(plain)
    assert searches(run)["gate"] == len(QUERIES)
    texts = sum(len(of) for of in by_query(run, "rewrites", "text").values())
    assert searches(run)["retrieve"] == texts  # the originals' lists are not made again


@pytest.mark.parametrize(
    "select", ["adaptive", "{kind: random_k, k: 1}", "{kind: classified, by: llm}"], ids=lambda one: one[:16]
)
def test_the_gate_comes_before_any_selection(job: str, server: FakeServer, select: str) -> None:
    plain = finished(prepared_work(job, ["rewrite.strategies=[]", "name=plain"], None))
    low = unsure(original_scores(plain))
    more = ["rewrite.strategies=[general, keyword, hyde, step_back, decompose, multi_query]"] if "llm" in select else []
    run = finished(prepared_work(job, [f"rewrite.select={select}", *more], None))
    assert set(asked(server)) == low
    chosen = by_query(run, "selections", "strategies", "reason")
    assert {query for query, ((_, reason),) in chosen.items() if reason and "is sure" in reason} == set(QUERIES) - low
    assert all(not strategies for query, ((strategies, _),) in chosen.items() if query not in low)

"""Answers of whole jobs in this process, from an LLM's server: what is asked, what is stored, and what is paid again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.jobs.in_process_runs import QUERIES, WITHOUT_HITS, finished, job_in_process, prepared_work, rows
from tests.support.rewriters.fake_server import FakeServer, Reply, refusal

REFUSED = QUERIES[1]


def refused(body: dict[str, Any]) -> Reply | None:
    """Refuses one query."""
    return refusal(400, "no") if body["messages"][-1]["content"].endswith(REFUSED) else None


def said(body: dict[str, Any]) -> str:
    """Cites the first document, or for some queries one that is not there."""
    number = "9" if "yeast" in body["messages"][-1]["content"].rpartition("Question:")[2] else "1"
    return f"It is so [{number}]. Nothing else is known."


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["answerer-8b"], answer=refused, text=said) as one:
        yield one


@pytest.fixture
def job(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str], server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    engine = {"kind": "openai", "model": "answerer-8b", "base_url": server.address}
    values["answer"] = {"documents": 2, "engine": engine, "labels": {"by": "rank"}}
    return job_in_process(tmp_path, values, bm25, config_file)


def asked(server: FakeServer) -> list[str]:
    """The prompts that were sent, but those that ask whether the server is there."""
    return [one["messages"][-1]["content"] for one in server.bodies if one["messages"][-1]["content"].startswith("Documents:")]


def test_each_query_is_answered_from_its_first_results(job: str, server: FakeServer, passages: dict[str, str]) -> None:
    run = finished(prepared_work(job, [], None))
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    results: dict[str, list[str]] = {query_id: [] for query_id in texts}
    for one in sorted(rows(run, "results"), key=lambda one: one["rank"]):
        results[one["query_id"]].append(one["doc_id"])
    expected = set()
    for query_id, query in texts.items():
        first = results[query_id][:2]
        labels = ["High", "Medium" if len(first) == 2 else ""]
        shown = "\n\n".join(
            f"[{n}] ({label} relevance)\n{passages[doc]}" for n, (doc, label) in enumerate(zip(first, labels, strict=False), 1)
        )
        expected.add(f"Documents:\n\n{shown or '(none was found)'}\n\nQuestion: {query}")
    assert set(asked(server)) == expected
    assert {one["messages"][0]["role"] for one in server.bodies if len(one["messages"]) > 1} == {"system"}
    answers = {texts[one["query_id"]]: one for one in rows(run, "answers")}
    assert answers.keys() == set(QUERIES) - {REFUSED}
    for query, one in answers.items():
        given = [each["doc_id"] for each in one["documents"]]
        assert one["arm"] == "run"
        assert given == results[one["query_id"]][:2]
        wrong = "yeast" in query or query == WITHOUT_HITS
        assert one["cited"] == ([] if wrong else given[:1])
    errors = [(texts[one["query_id"]], one["reason"]) for one in rows(run, "errors") if one["stage"] == "answer"]
    assert sorted(errors) == sorted([(REFUSED, "bad_request"), ("yeast", "wrong_citation"), (WITHOUT_HITS, "wrong_citation")])
    costs = [one for one in rows(run, "costs") if one["stage"] == "answer"]
    assert sum(one["requests"] for one in costs) == len(QUERIES)


def test_a_second_run_asks_for_what_has_failed_alone(job: str, server: FakeServer) -> None:
    first = finished(prepared_work(job, [], None))
    sent = len(asked(server))
    second = finished(prepared_work(job, ["fuse.keep=40"], None))
    assert rows(second, "answers") == rows(first, "answers")
    assert [prompt.rpartition(": ")[2] for prompt in asked(server)[sent:]] == [REFUSED]

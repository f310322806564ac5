"""Corrective RAG in whole jobs: what an answer is asked from, what cannot be graded or searched, and what is masked."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobs.chain.stages.llm.grade import named_sentences
from tests.support.jobs.corrective_llm import kind_of, prompt_of, question_of, said
from tests.support.jobs.in_process_runs import QUERIES, finished, prepared_work, record, rows
from tests.support.jobs.nights import log
from tests.support.retrievers.web_server import WebServer
from tests.support.rewriters.fake_server import FakeServer, Reply, refusal

HITS = 2


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["grader-8b"], text=said) as one:
        yield one


@pytest.fixture
def web() -> Iterator[WebServer]:
    with WebServer("searxng") as one:
        yield one


@pytest.fixture
def job(small_job: Callable[..., str], values: dict[str, Any], server: FakeServer, web: WebServer, short_pauses: None) -> str:
    engine = {"kind": "openai", "model": "grader-8b", "base_url": server.address}
    values["grade"] = {"documents": 3, "engine": engine, "question": {"engine": engine}, "strips": {"engine": engine}}
    values["web"] = {"search": {**web.block(), "patience_minutes": 0.001}, "documents": HITS, "engine": engine}
    values["answer"] = {"documents": 5, "engine": engine}
    return small_job()


def asked(server: FakeServer, kind: str) -> list[str]:
    return [prompt for one in server.bodies if kind_of(prompt := prompt_of(one)) == kind]


@pytest.mark.slow
def test_answers_are_asked_from_what_the_grades_leave_and_from_pages(
    job: str, server: FakeServer, web: WebServer, passages: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frozen results of configs/crag.yaml say which documents and pages these are."""
    monkeypatch.setattr("jobs.chain.stages.llm.grade.split_sentences", lambda text: text.split(" ", 1))
    run = finished(prepared_work(job, [], None))
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    prompts = {prompt.rpartition("Question: ")[2]: prompt for prompt in asked(server, "answer")}
    assert len(prompts) == len(asked(server, "answer")) == len(QUERIES)
    grades = rows(run, "grades")
    found = Counter(one["verdict"] for one in grades)
    assert set(found) == {"relevant", "ambiguous", "irrelevant"}, "the draw has all three"
    assert {name: run.counts[f"graded/{name}"] for name in found} == found
    assert {one["strips"] in ("", passages[one["doc_id"]]) for one in grades if one["strips"] is not None} == {True, False}
    for one in grades:
        prompt, passage = prompts[texts[one["query_id"]]], passages[one["doc_id"]]
        whole = one["verdict"] == "relevant" or one["strips"] == passage
        assert (passage in prompt) == whole
        assert (one["strips"] or "") in prompt
    searched = {one["query_id"]: one["web_query"] for one in rows(run, "corrections") if one["web_query"] is not None}
    assert 0 < len(searched) < len(QUERIES)
    assert run.counts["web_asked"] == len(searched)
    assert Counter(web.texts) == Counter(set(searched.values()))
    for query_id, text in searched.items():
        for url, title, said_there in web.found(text, HITS):
            assert f"(source: {url})" in prompts[texts[query_id]]
            assert f"{title}. {said_there}" in prompts[texts[query_id]]


@pytest.mark.slow
def test_the_web_is_away_and_what_is_kept_stands_alone(job: str, web: WebServer) -> None:
    calm = finished(prepared_work(job, ["store=null", "name=first"], None))
    searched = {one["query_id"]: one["web_query"] for one in rows(calm, "corrections") if one["web_query"] is not None}
    kept = {
        one["query_id"]: [each["doc_id"] for each in one["documents"] if not each["doc_id"].startswith("web:")]
        for one in rows(calm, "answers")
    }
    failing = min(searched.values())
    web.fail(failing, "400")
    run = finished(prepared_work(job, ["store=null", "name=second"], None))
    asking = {query_id for query_id, text in searched.items() if text == failing}
    errors = [one for one in rows(run, "errors") if one["stage"] == "web"]
    assert {one["query_id"] for one in errors} == asking
    assert {one["raw"] for one in errors} == {failing}
    assert all("the search of the correction failed" in one["message"] for one in errors)
    for one in rows(run, "corrections"):
        if one["query_id"] in asking:
            assert (one["web_query"], one["hits"]) == (failing, None)
    for one in rows(run, "answers"):
        if one["query_id"] in asking:
            assert [each["doc_id"] for each in one["documents"]] == kept[one["query_id"]]


@pytest.mark.slow
def test_what_cannot_be_graded_stays(job: str, server: FakeServer) -> None:
    """A refused grade and a verdict in other words are rows in errors; their documents are answered from."""

    def refused(body: dict[str, Any]) -> Reply | None:
        prompt = prompt_of(body)
        return refusal(400, "no") if kind_of(prompt) == "grade" and "moon" in prompt else None

    server.answer = refused
    run = finished(prepared_work(job, [], None))
    errors = [one for one in rows(run, "errors") if one["stage"] == "grade"]
    assert errors
    assert {one["component"] for one in errors} == {"three_grades"}
    ungraded = {(one["query_id"], one["doc_id"]) for one in rows(run, "grades") if one["verdict"] is None}
    assert len(errors) == len(ungraded) == run.counts["graded/ungraded"]
    shown = {(one["query_id"], each["doc_id"]) for one in rows(run, "answers") for each in one["documents"]}
    assert ungraded <= shown


@pytest.mark.parametrize(
    ("said_of_them", "kept"),
    [
        ("2, 3", [2, 3]), ("2-4", [2, 3, 4]), ("1, 3 – 4.", [1, 3, 4]), ("none", []), ("None.", []), ("7", None), ("0", None),
        ("all", None), ("1-99", None),
    ],
)  # fmt: skip
def test_sentences_are_named_by_numbers_and_ranges(said_of_them: str, kept: list[int] | None) -> None:
    assert named_sentences(said_of_them, 5) == kept


def test_what_is_masked_in_the_query_is_masked_in_every_prompt(job: str, server: FakeServer) -> None:
    """In other words no pattern would tell the number: it is known from the query."""
    query = "spring tide of tel 5551234"
    log([query])
    record({query: {"dmqr": json.dumps({"general": "tide of 5551234"})}})
    engine = {"kind": "openai", "model": "grader-8b", "base_url": server.address}
    judge = {"engine": engine, "relevance": {"prompt": "three_grades", "documents": 2}, "accuracy": {}}
    run = finished(prepared_work(job, ["rewrite.guards.mask=[phone]", f"judge={json.dumps(judge)}"], None))
    assert [one["question"] for one in rows(run, "corrections")] == [question_of(query, ["tide of 5551234"])]
    prompts = [prompt_of(one) for one in server.bodies if "a probe" not in prompt_of(one)]
    assert {kind_of(one) for one in prompts} >= {"question", "grade", "answer"}
    assert any("Reference answers:" in one for one in prompts), "answers are judged"
    assert not [one for one in prompts if "5551234" in one.rpartition("Question: ")[2]]  # pages say what they were asked

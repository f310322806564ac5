"""Corrective RAG in whole jobs: questions, grades, strips and searches of the web against the rule computed apart."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.chain.steps.grades import named_sentences
from jobs.runs.folder import RunFolder
from rewriters.reading.words.sentences import split_sentences
from tests.support.jobs.corrective_llm import (
    kept_of,
    kind_of,
    prompt_of,
    question_of,
    said,
    verdict_of,
    web_query_of,
)
from tests.support.jobs.in_process_runs import QUERIES, finished, prepared_work, rows
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
def job(
    small_job: Callable[..., str], values: dict[str, Any], server: FakeServer, web: WebServer, monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    for pause in ("FIRST_PAUSE", "LONGEST_PAUSE"):
        monkeypatch.setattr(f"cluster.outages.{pause}", 0.02)
    engine = {"kind": "openai", "model": "grader-8b", "base_url": server.address}
    values["grade"] = {"documents": 3, "engine": engine, "question": {"engine": engine}, "strips": {"engine": engine}}
    values["web"] = {"search": {**web.block(), "patience_minutes": 0.001}, "documents": HITS, "engine": engine}
    values["answer"] = {"documents": 5, "engine": engine}
    return small_job()


def asked(server: FakeServer, kind: str) -> list[str]:
    return [prompt for one in server.bodies if kind_of(prompt := prompt_of(one)) == kind]


class ByHand:
    """Returns what is to be made of the results of an arm, from the tables of what came before."""

    def __init__(
        self, run: RunFolder, passages: dict[str, str], arm: str, *, rewrites_of: str = "", when: str = "none"
    ) -> None:
        self.texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
        self.questions: dict[str, str | None] = {}
        self.grades: dict[tuple[str, str], tuple[str, str | None]] = {}
        self.web: dict[str, str] = {}
        self.kept: dict[str, list[str]] = {}
        rewrites: dict[str, list[str]] = {query_id: [] for query_id in self.texts}
        for one in rows(run, "rewrites"):
            if one.get("arm", "") in ("", rewrites_of or arm):
                rewrites[one["query_id"]].append(one["text"])
        results: dict[str, list[str]] = {query_id: [] for query_id in self.texts}
        for one in sorted(rows(run, "results"), key=lambda one: one["rank"]):
            if one["arm"] == arm:
                results[one["query_id"]].append(one["doc_id"])
        for query_id, query in self.texts.items():
            made = rewrites[query_id]
            self.questions[query_id] = question_of(query, made) if made else None
            question, verdicts = self.questions[query_id] or query, []
            self.kept[query_id] = []
            for doc_id in results[query_id][:3]:
                verdict, strips = verdict_of(question, passages[doc_id]), None
                if verdict == "ambiguous":
                    sentences = split_sentences(passages[doc_id])
                    strips = " ".join(sentences[n - 1] for n in kept_of(question, [" ".join(one.split()) for one in sentences]))
                self.grades[query_id, doc_id] = verdict, strips
                verdicts.append(verdict)
                if verdict != "irrelevant" and strips != "":
                    self.kept[query_id].append(doc_id)
            relevant = verdicts.count("relevant")
            if relevant == 0 or (when == "any" and relevant < len(verdicts)):
                self.web[query_id] = web_query_of(question)


def check(run: RunFolder, by_hand: ByHand, web: WebServer, arm: str = "run") -> None:
    """Checks grades/, corrections/, web/ and answers/ of an arm against what is computed apart."""
    grades = {(one["query_id"], one["doc_id"]): one for one in rows(run, "grades") if one["arm"] == arm}
    assert {key: (one["verdict"], one["strips"]) for key, one in grades.items()} == by_hand.grades
    corrections = {one["query_id"]: one for one in rows(run, "corrections") if one["arm"] == arm}
    assert {key: one["question"] for key, one in corrections.items()} == by_hand.questions
    assert {key: one["web_query"] for key, one in corrections.items() if one["web_query"] is not None} == by_hand.web
    pages = {text: [url for url, _, _ in web.found(text, 10)] for text in by_hand.web.values()}
    stored: dict[str, list[str]] = {}
    for one in sorted(rows(run, "web"), key=lambda one: one["rank"]):
        assert one["retriever"] == "web.search"
        if one["searched"] == by_hand.web.get(one["query_id"]):  # else of another arm
            stored.setdefault(one["searched"], []).append(one["url"])
    answers = {
        one["query_id"]: [each["doc_id"] for each in one["documents"]] for one in rows(run, "answers") if one["arm"] == arm
    }
    for query_id, kept in by_hand.kept.items():
        shown = answers[query_id]
        assert shown[: len(kept)] == kept
        text = by_hand.web.get(query_id)
        assert len(shown) - len(kept) == (0 if text is None else len(pages[text][:HITS]))
        assert corrections[query_id]["hits"] == (None if text is None else len(pages[text][:HITS]))
        if text is not None and pages[text]:
            assert stored[text][: len(pages[text])] == pages[text]


@pytest.mark.slow
def test_results_are_corrected_as_the_rule_says(job: str, server: FakeServer, web: WebServer, passages: dict[str, str]) -> None:
    run = finished(prepared_work(job, [], None))
    by_hand = ByHand(run, passages, "run")
    check(run, by_hand, web)
    found = Counter(verdict for verdict, _ in by_hand.grades.values())
    assert set(found) == {"relevant", "ambiguous", "irrelevant"}, "the draw has all three"
    assert Counter(web.texts) == Counter(set(by_hand.web.values()))
    assert 0 < len(by_hand.web) < len(QUERIES)
    assert run.counts["web_asked"] == len(by_hand.web)
    assert {name: run.counts[f"graded/{name}"] for name in found} == found
    refined = [key for key, (verdict, _) in by_hand.grades.items() if verdict == "ambiguous"]
    counted = {"question": 5, "grade": len(by_hand.grades), "strips": len(refined), "web": len(by_hand.web), "answer": 6}
    assert {kind: len(asked(server, kind)) for kind in counted} == counted
    spent = Counter[str]()
    for one in rows(run, "costs"):
        spent[f"{one['stage']}/{one['component']}"] += one["requests"] if one["stage"] != "web" else one["searches"]
    assert spent["grade/three_grades"] == len(by_hand.grades)
    assert spent["web/web.search"] == len(set(by_hand.web.values()))
    contexts = asked(server, "answer")
    for query_id, query in by_hand.texts.items():
        (prompt,) = [one for one in contexts if one.endswith(f"Question: {query}")]
        for (of, doc_id), (verdict, strips) in by_hand.grades.items():
            if of == query_id and strips is not None:
                assert (strips in prompt) or not strips
            if of == query_id and verdict == "irrelevant":
                assert passages[doc_id] not in prompt
        if query_id in by_hand.web:
            for url, title, text in web.found(by_hand.web[query_id], HITS):
                assert f"(source: {url})" in prompt
                assert f"{title}. {text}" in prompt


@pytest.mark.slow
def test_the_web_is_away_and_what_is_kept_stands_alone(job: str, web: WebServer, passages: dict[str, str]) -> None:
    texts = set(ByHand(finished(prepared_work(job, ["store=null", "name=first"], None)), passages, "run").web.values())
    failing = sorted(texts)[0]
    web.fail(failing, "400")
    run = finished(prepared_work(job, ["store=null", "name=second"], None))
    by_hand = ByHand(run, passages, "run")
    asking = {query_id for query_id, text in by_hand.web.items() if text == failing}
    errors = [one for one in rows(run, "errors") if one["stage"] == "web"]
    assert {one["query_id"] for one in errors} == asking
    assert {one["raw"] for one in errors} == {failing}
    assert all("the search of the correction failed" in one["message"] for one in errors)
    for one in rows(run, "corrections"):
        if one["query_id"] in asking:
            assert (one["web_query"], one["hits"]) == (failing, None)
    for one in rows(run, "answers"):
        if one["query_id"] in asking:
            assert [each["doc_id"] for each in one["documents"]] == by_hand.kept[one["query_id"]]


@pytest.mark.slow
def test_what_cannot_be_graded_stays(job: str, server: FakeServer, passages: dict[str, str]) -> None:
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


def test_what_is_masked_in_the_query_is_masked_in_every_prompt(job: str, server: FakeServer, tmp_path: Path) -> None:
    """In other words no pattern would tell the number: it is known from the query."""
    query = "spring tide of tel 5551234"
    pq.write_table(pa.table({"query": [query]}), tmp_path / "log.parquet")
    recorded = {"query": query, "completions": {"dmqr": json.dumps({"general": "tide of 5551234"})}}
    (tmp_path / "recorded.jsonl").write_text(json.dumps(recorded) + "\n")
    engine = {"kind": "openai", "model": "grader-8b", "base_url": server.address}
    judge = {"engine": engine, "relevance": {"prompt": "three_grades", "documents": 2}, "accuracy": {}}
    run = finished(prepared_work(job, ["rewrite.guards.mask=[phone]", f"judge={json.dumps(judge)}"], None))
    assert [one["question"] for one in rows(run, "corrections")] == [question_of(query, ["tide of 5551234"])]
    prompts = [prompt_of(one) for one in server.bodies if "a probe" not in prompt_of(one)]
    assert {kind_of(one) for one in prompts} >= {"question", "grade", "answer"}
    assert any("Reference answers:" in one for one in prompts), "answers are judged"
    assert not [one for one in prompts if "5551234" in one.rpartition("Question: ")[2]]  # pages say what they were asked

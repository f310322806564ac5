"""Answers of whole jobs in this process, from an LLM's server: what is asked, stored and paid again, and their file."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dmqr
from jobs.__main__ import main
from jobs.runs.folder import RunFolder
from tests.support.jobs.corrective_llm import prompt_of
from tests.support.jobs.in_process_runs import QUERIES, finished, prepared_work, rows
from tests.support.rewriters.fake_server import FakeServer, Reply, refusal

REFUSED = QUERIES[1]
SAID = "It is so [1], e.g. here. Nothing else is known."
MODEL = "answerer-8b"


def refused(body: dict[str, Any]) -> Reply | None:
    """Refuses one query."""
    return refusal(400, "no") if prompt_of(body).endswith(REFUSED) else None


def said(body: dict[str, Any]) -> str:
    """Grades, or cites the first document, for some queries one that is not there."""
    prompt = prompt_of(body)
    if "Document:" in prompt and "Question:" not in prompt:
        return json.dumps({"match": 1, "trust": 2, "overall": 2})
    return SAID.replace("[1]", "[9]") if "yeast" in prompt.rpartition("Question:")[2] else SAID


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer([MODEL], answer=refused, text=said) as one:
        yield one


@pytest.fixture
def engine(server: FakeServer) -> dict[str, str]:
    return {"kind": "openai", "model": MODEL, "base_url": server.address}


@pytest.fixture
def job(small_job: Callable[..., str], values: dict[str, Any], engine: dict[str, str]) -> str:
    Path("gold.tsv").write_text("yeast\tgas\nyeast\tso they say\nspring tide\tmoon\n")
    values["answer"] = {"documents": 2, "engine": engine, "labels": {"by": "rank"}}
    values["evaluate"] = {"answers": "gold.tsv", "key": "query"}
    return small_job()


def lines(run: RunFolder) -> list[dict[str, Any]]:
    """The file of answers."""
    dmqr.evaluate(run.storage.root, rows="answers.jsonl")
    return [json.loads(line) for line in Path("answers.jsonl").read_text(encoding="utf-8").splitlines()]


# ---------------------------------------------------------------- the file


def test_a_line_has_all_that_is_known_of_an_answer(
    job: str, engine: dict[str, str], passages: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    judge = {"engine": engine, "relevance": {"documents": 2}}
    run = finished(prepared_work(job, [f"judge={json.dumps(judge)}"], None))
    assert main(["evaluate", run.storage.root, "--rows", "answers.jsonl", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)["files"][0]
    assert values["rows"] == 5
    assert values["notes"] == ["1 queries without an answer have no line", "3 without a gold answer"]
    texts = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    answers = sorted(rows(run, "answers"), key=lambda one: one["query_id"])
    gold = {"yeast": ["gas", "so they say"], "spring tide": ["moon"]}
    judged = rows(run, "judgements")
    assert {one["grade"] for one in judged} == {2}
    for one, answer in zip(lines(run), answers, strict=True):
        query = texts[answer["query_id"]]
        assert (one["query_id"], one["arm"], one["query"]) == (answer["query_id"], "run", query)
        assert (one["answer"], one["model"], one["cut"], one["cited"]) == (answer["text"], MODEL, False, answer["cited"])
        documents = [(document["doc_id"], document["label"]) for document in answer["documents"]]
        assert one["contexts"] == [
            {"doc_id": doc, "label": label, "place": None, "text": passages[doc]} for doc, label in documents
        ]
        assert one["gold_answers"] == gold.get(query, [])
        assert (one["f1"] is None) == (one["em"] is None) == (query not in gold)
        rewrites = [each for each in rows(run, "rewrites") if each["query_id"] == answer["query_id"]]
        assert one["rewrites"] == [{"strategy": each["strategy"], "text": each["text"]} for each in rewrites]
        own = {(each["doc_id"], each["grade"]) for each in judged if each["query_id"] == answer["query_id"]}
        assert {(each["doc_id"], each["grade"]) for each in one["judgements"]} == own

"""A judge in `try`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobs.__main__ import main
from tests.support.jobs.corrective_llm import prompt_of
from tests.support.jobs.in_process_runs import QUERIES
from tests.support.rewriters.fake_server import FakeServer

MAIL = "ann@example.org"


def kind_of(prompt: str) -> str:
    """What a request asks for."""
    if prompt.startswith("Query: "):
        return "relevance"
    return "accuracy" if "Reference answers:" in prompt else "answer"


def said(body: dict[str, Any]) -> str:
    prompt = prompt_of(body)
    return {
        "accuracy": "correct",
        "relevance": json.dumps({"match": 3, "trust": 3, "overall": 3}),
        "answer": f"By gas, write to {MAIL} [1].",
    }[kind_of(prompt)]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["judge-70b", "answerer-8b"], text=said) as one:
        yield one


@pytest.fixture
def job(small_job: Callable[..., str], values: dict[str, Any], server: FakeServer) -> str:
    engine = {"kind": "openai", "base_url": server.address, "max_in_flight": 2}
    values["answer"] = {"documents": 1, "engine": engine | {"model": "answerer-8b"}}
    values["judge"] = {"engine": engine | {"model": "judge-70b"}, "relevance": {"documents": 2}, "accuracy": {}}
    return small_job()


def judged(server: FakeServer) -> list[str]:
    """The prompts that the judge was sent."""
    sent = [prompt_of(one) for one in server.bodies if one["model"] == "judge-70b"]
    return [one for one in sent if one.startswith(("Query: ", "Question: "))]


def test_try_shows_grades(job: str, server: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["try", job, QUERIES[0], "--json"]) == 0
    (trial,) = json.loads(capsys.readouterr().out)
    assert {(one["kind"], one["grade"]) for one in trial["judgements"]} == {("relevance", 3), ("accuracy", 1)}
    assert sum(of["requests"] for of in trial["costs"]["judge"].values()) == len(judged(server))
    assert main(["try", job, QUERIES[0]]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "accuracy 1" in shown

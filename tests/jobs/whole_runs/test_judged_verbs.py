"""A judge in `try` and `plan`, within a budget, and what it is shown of personal data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.storage import open_storage
from jobs.__main__ import main
from jobs.run.limits import Stopped
from tests.support.jobs.corrective_llm import prompt_of
from tests.support.jobs.in_process_runs import QUERIES, finished, prepared_work, rows, run_in_process
from tests.support.rewriters.fake_server import FakeServer

TOKENS = 10  # of each answer
PRICE = 1e-3  # USD of each: 100 USD for a million tokens
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
    with FakeServer(["judge-70b", "answerer-8b"], text=said, completion_tokens=TOKENS) as one:
        yield one


@pytest.fixture
def job(small_job: Callable[..., str], values: dict[str, Any], server: FakeServer) -> str:
    Path("prices.yaml").write_text("tokens: {judge-70b: {completion: 100}, answerer-8b: {completion: 0}}\n")
    engine = {"kind": "openai", "base_url": server.address, "max_in_flight": 2}
    values["answer"] = {"documents": 1, "engine": engine | {"model": "answerer-8b"}}
    judge = {"engine": engine | {"model": "judge-70b"}, "relevance": {"documents": 2}, "accuracy": {}}
    values["judge"] = judge
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


@pytest.mark.slow
def test_plan_counts_the_requests_and_prices_them_by_what_was_judged(
    job: str, server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", job, "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    # two documents, an answer
    assert planned["left"]["judgements"] == 6 * (2 + 1)
    run = finished(prepared_work(job, ["store=null"], None))
    spent = len(judged(server)) * PRICE
    assert run.spent["judge"]
    again = ["plan", job, "--set", "store=null", "--set", "label=later", "--json"]
    assert main(again) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["expected"]["usd"] == pytest.approx(spent)
    assert "the last run of this kind" in planned["expected"]["basis"]
    assert main(again[:-1]) == 0
    assert "judgements about 18 (0 to 18)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_a_budget_stops_in_the_judging_stage_and_the_next_start_pays_the_rest(job: str, server: FakeServer) -> None:
    whole = finished(prepared_work(job, ["store=null", "output=whole"], None))
    needed = len(judged(server))
    for limit in (0.3, 0.6):
        server.bodies.clear()
        settings = ["store=null", f"output=part-{limit}", f"limits.max_cost_usd={limit * needed * PRICE}"]
        with pytest.raises(Stopped) as stopped:
            run_in_process(prepared_work(job, settings, None))
        assert stopped.value.code == "stopped-cost"
        first = len(judged(server))
        assert 0 < first <= limit * needed  # a request is expected to have as many tokens as it may
        resumed = finished(prepared_work(job, [*settings[:2], "limits.max_cost_usd=1000"], None))
        assert len(judged(server)) == needed  # nothing is paid for twice
        assert sorted(rows(resumed, "judgements"), key=repr) == sorted(rows(whole, "judgements"), key=repr)
        costs = [one for one in rows(resumed, "costs") if one["stage"] == "judge"]
        assert sum(one["requests"] for one in costs) == needed
        assert {one["start"] for one in costs if one["requests"]} == {1, 2}


def test_the_judge_sees_no_personal_data_of_a_query(job: str, server: FakeServer, tmp_path: Path) -> None:
    pq.write_table(pa.table({"query": [f"why does bread rise {MAIL}"]}), tmp_path / "log.parquet")
    run = finished(prepared_work(job, ["rewrite.guards.mask=[mail]", "rewrite.strategies=[]"], None))
    sent = judged(server)
    assert {kind_of(one) for one in sent} == {"relevance", "accuracy"}
    assert not any(MAIL in one for one in sent)
    assert all("<MAIL_1>" in one for one in sent)
    (answer,) = rows(run, "answers")
    assert MAIL in answer["text"]  # its own answer has it again
    assert all("write to <MAIL_1>" in one for one in sent if kind_of(one) == "accuracy")
    assert open_storage(run.storage.root).get("_SUCCESS.json") is not None

"""Judgements of whole jobs in this process, from an LLM's server: measures by them, of runs, arms and pairs of runs."""

import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobs.__main__ import main
from jobs.measure.comparison import compare
from jobs.measure.diff.diff import diff, diff_values
from jobs.measure.evaluate import evaluate
from jobs.measure.judge import judged_relevance
from jobs.pages.comparison import comparison_values
from tests.support.jobs.corrective_llm import prompt_of
from tests.support.jobs.in_process_runs import QUERIES, finished, prepared_work, rows
from tests.support.rewriters.fake_server import FakeServer


def grade_of(query: str, text: str) -> int:
    """The grade that the judge gives, by chance of the texts."""
    return zlib.crc32(f"{query}|{text}".encode()) % 4


def parts(prompt: str) -> tuple[str, str]:
    """The query and the document that a prompt of relevance shows."""
    query, _, text = prompt.removeprefix("Query: ").partition("\n\nDocument:\n")
    return query, text


def said(body: dict[str, Any]) -> str:
    grade = grade_of(*parts(prompt_of(body)))
    return json.dumps({"match": 3 - grade, "trust": 0, "overall": grade})


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(["judge-70b"], text=said) as one:
        yield one


@pytest.fixture
def job(small_job: Callable[..., str], values: dict[str, Any], server: FakeServer) -> str:
    engine = {"kind": "openai", "model": "judge-70b", "base_url": server.address}
    values["judge"] = {"engine": engine, "relevance": {"documents": 3}}
    return small_job()


def test_measures_by_the_judge_need_no_file(job: str) -> None:
    run = finished(prepared_work(job, [], None))
    judgements = judged_relevance(run)
    assert judgements is not None
    found = evaluate(run, judgements)
    assert tuple(found.pairs) == ("nDCG@3", "P(rel=2)@3", "Success(rel=2)@3")
    relevant = sum(one["grade"] >= 2 for one in rows(run, "judgements"))  # of the first three results of each query
    assert found.pairs["P(rel=2)@3"].b == pytest.approx(relevant / 3 / len(QUERIES))  # one without results counts as 0
    assert not found.has_original
    notes = found.notes
    assert notes[0].startswith("judged by judge-70b, an LLM")
    assert "original alone: not measured, since the judge graded the results only" in notes
    assert found.values()["judged_by"] == "judge-70b"


def test_an_arm_that_is_judged_less_deep_is_not_compared(job: str) -> None:
    run = finished(prepared_work(job, [], {"arms": {"short": {"fuse.depth": 2}}}))
    judgements = judged_relevance(run)
    assert judgements is not None
    settings = run.config.evaluate.model_copy(update={"measures": judgements.measures(run.config.evaluate.measures)})
    found = compare(run, judgements, settings)
    assert "short" not in found.frame.arms  # its lists end at two documents, and the judge's measures read three
    assert found.notes[0].startswith("judged by judge-70b")
    assert comparison_values(found)["judged_by"] == "judge-70b"


def test_try_shows_the_grades(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["try", job, QUERIES[0], "--json"]) == 0
    (trial,) = json.loads(capsys.readouterr().out)
    assert [one["kind"] for one in trial["judgements"]] == ["relevance"] * 3


@pytest.mark.slow
def test_two_runs_are_compared_by_the_grades_of_both(job: str) -> None:
    a, b = (finished(prepared_work(job, [setting], None)) for setting in ("fuse.depth=3", "judge.relevance.documents=4"))
    (found,) = diff(a, b, None, None, 5).judged
    assert tuple(found.measures) == ("nDCG@3", "P(rel=2)@3", "Success(rel=2)@3"), "as deep as both are judged"
    grades = {(one["query_id"], one["doc_id"]): one["grade"] for run in (a, b) for one in rows(run, "judgements")}
    for run, mean in ((a, found.measures["P(rel=2)@3"].a), (b, found.measures["P(rel=2)@3"].b)):
        first = [one for one in rows(run, "results") if one["query_id"] in found.frame.query_ids and one["rank"] <= 3]
        relevant = sum(grades.get((one["query_id"], one["doc_id"]), 0) >= 2 for one in first)
        assert mean == pytest.approx(relevant / 3 / len(found.frame.query_ids))
    shown = diff_values(diff(a, b, None, None, 5))
    assert (shown["judged_results"]["judged_by"], shown["judged_answers"]) == ("judge-70b", {})
    alone = finished(prepared_work(job, ["judge=null"], None))
    assert diff_values(diff(alone, b, None, None, 5))["judged_results"] is None

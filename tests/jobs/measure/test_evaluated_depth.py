"""Runs are measured by the measures of their config or of the command line, as deep as their lists are, and it is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from jobs.log.judgements import Judgements
from jobs.measure.evaluate.evaluate import evaluate, evaluation_table, evaluation_values
from jobs.pages.summary import closing_table
from jobs.runs.folder import RunFolder
from tests.support.jobs.report_runs import Query, RunMaker, query_id

Side = Callable[..., RunFolder]
DOCS = [f"d{n:02}" for n in range(30)]
GRADES = {query_id(n): {"d08": 1, "d25": 1} for n in range(2)}
JUDGED = Judgements("", GRADES, "query_id")


@pytest.fixture
def side(tmp_path: Path) -> Side:
    """A run of two queries: one finds thirty documents, one three."""

    def make(name: str, keep: int, measures: list[str] | None = None, **settings: Any) -> RunFolder:
        queries = [
            Query("many", hits={("original", "bm25"): DOCS}),
            Query("few", hits={("original", "bm25"): DOCS[7:10]}),
        ]
        given = {"fuse": {"keep": keep}} | ({"evaluate": {"measures": measures}} if measures else {}) | settings
        return RunMaker(tmp_path / name)(queries, (), **given)

    return make


def shown(part: Any) -> str:
    console = Console(width=100, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(part)
    return " ".join(captured.get().split())


def test_a_run_is_measured_by_the_measures_of_its_config(side: Side) -> None:
    run = side("a", 50, ["R@20", "AP"])
    found = evaluate(run, JUDGED)
    assert found.measures == ("R@20", "AP")
    assert found.results["R@20"] == 0.5
    assert "R@20 0.5000" in shown(evaluation_table(found))
    assert "R@20 0.5000" in shown(closing_table(run, None, found))
    assert list(evaluation_values(found)["measures"]) == ["R@20", "AP"]
    assert evaluate(run, JUDGED, ["RR@10"]).measures == ("RR@10",)


def test_a_list_that_was_cut_above_a_measure_marks_it(side: Side) -> None:
    found = evaluate(side("a", 5, ["R@20", "P@5"]), JUDGED)
    looked = found.looked["R@20"]
    assert (looked.reads, looked.documents, looked.keys) == (20, 5, 1)  # the list of three is whole
    assert "P@5" not in found.looked
    words = shown(evaluation_table(found))
    assert "* R@20 looked at 5 of 20 for 1 of 2 judged: results, original alone; what stands behind was cut off" in words
    assert "R@20 0.2500*" in words
    assert "results' first 5" in words
    value = json.loads(json.dumps(evaluation_values(found)))["measures"]["R@20"]
    assert value["looked"] == {"reads": 20, "documents": 5.0, "keys": 1}
    assert not value["uneven"]

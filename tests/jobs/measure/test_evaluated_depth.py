"""Runs are measured by the measures of their config or of the command line, as deep as their lists are, and it is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.log.judgements import Judgements
from jobs.measure.diff.quality import quality
from jobs.measure.evaluate import evaluate, evaluation_values
from jobs.pages.measured import MeasuredRun
from jobs.pages.summary import closing_table
from jobs.runs.folder import RunFolder
from tests.support.jobs.report_runs import Query, RunMaker, query_id
from tests.support.jobs.terminals import printed

Side = Callable[..., RunFolder]
DOCS = [f"d{n:02}" for n in range(30)]
GRADES = {query_id(n): {"d08": 1, "d25": 1} for n in range(2)}
JUDGED = Judgements("", GRADES, "query_id")


@pytest.fixture
def side(tmp_path: Path) -> Side:
    """A run of two queries: one finds thirty documents, one three."""

    def make(name: str, keep: int, measures: list[str] | None = None, **settings: Any) -> RunFolder:
        queries = [Query("many", hits={("original", "bm25"): DOCS}), Query("few", hits={("original", "bm25"): DOCS[7:10]})]
        given = {"fuse": {"keep": keep}} | ({"evaluate": {"measures": measures}} if measures else {}) | settings
        return RunMaker(tmp_path / name)(queries, (), **given)

    return make


def shown(part: Any) -> str:
    return " ".join(printed(part).split())


def test_a_run_is_measured_by_the_measures_of_its_config(side: Side) -> None:
    run = side("a", 50, ["R@20", "AP@20"])
    found = evaluate(run, JUDGED)
    assert tuple(found.pairs) == ("R@20", "AP@20")
    assert found.pairs["R@20"].b == 0.5
    assert "R@20 0.5000" in shown(MeasuredRun(found).page())
    assert "R@20 0.5000" in shown(closing_table(run, None, MeasuredRun(found)))
    assert list(evaluation_values(found)["measures"]) == ["R@20", "AP@20"]
    assert tuple(evaluate(run, JUDGED, ["RR@10"]).pairs) == ("RR@10",)


def test_a_measure_that_looks_deeper_than_the_results_is_left_out(side: Side) -> None:
    found = evaluate(side("a", 5, ["R@20", "P@5"]), JUDGED)
    assert tuple(found.pairs) == ("P@5",)
    note = "lists end at 5 (run, original; 1 of 2 judged); raise fuse.keep (5) to 20, or measure R@5"
    words = shown(MeasuredRun(found).page())
    assert note in words  # the list of three is whole
    assert "results' first 5" in words
    values = evaluation_values(found)
    assert list(values["measures"]) == ["P@5"]
    assert any(note in one for one in values["notes"])
    assert evaluate(side("b", 50, ["R@20"]), JUDGED).frame.left_out == ()
    (deep,) = evaluate(
        side("c", 5, ["AP", "RR(rel=2)", "Bpref", "P@5"]), JUDGED
    ).frame.left_out  # without a cutoff they read 1,000
    assert deep.startswith("AP, RR(rel=2), Bpref: left out: reads 1,000 documents, lists end at 5")
    assert deep.endswith(" to 1,000, or measure AP@5, RR(rel=2)@5, nDCG@5 in place of Bpref")


def test_where_every_measure_looks_deeper_nothing_is_measured_and_why_is_said(side: Side) -> None:
    run = side("a", 5, ["R@20"])
    assert str(evaluate(run, JUDGED).warning).startswith("nothing is measured: R@20: left out: reads 20 documents")
    assert "nothing is measured: R@20" in shown(MeasuredRun(evaluate(run, JUDGED)).page())
    found = quality(side("b", 50, ["R@20"]), run, JUDGED, 5)
    assert str(found.warning).startswith("nothing is measured: B: R@20: left out")


def test_the_original_alone_ends_at_the_fuse_depth(side: Side) -> None:
    run = side("a", 50, ["R@20", "P@5"], fuse={"keep": 50, "depth": 15})
    assert tuple(evaluate(run, JUDGED).pairs) == ("P@5",)

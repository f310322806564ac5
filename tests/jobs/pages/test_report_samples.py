"""The samples of a report: which queries, in which order, what of them is shown; and the answers that failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.log.judgements import Judgements
from jobs.measure import judged_rows
from jobs.measure.frame import measure
from jobs.measure.judged_rows import database
from jobs.pages.report.failures import failures
from jobs.pages.report.figures import Figures
from jobs.pages.report.judged_queries import Judged, judged_queries
from jobs.pages.report.samples import Sample, samples
from jobs.runs.folder import RunFolder
from tests.support.jobs.report_runs import QUERIES, Make, Query, RunMaker, page, query_id, stored


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return RunMaker(tmp_path)


def found_in(run: RunFolder, count: int = 99, judged: Judged | None = None) -> list[Sample]:
    figures = Figures(run)
    return samples(figures, failures(figures, texts=True), count, texts=True, judged=judged).queries


# ---------------------------------------------------------------- which, and in which order


def test_samples_are_those_that_gained_lost_and_were_asked_most(make: Make) -> None:
    queries = [Query(f"query {n}", {"general": "g"}, asked=9 if n == 17 else 1) for n in range(30)]
    queries[8] = Query("failing", {}, {"general": ("said", "raw")})
    run = make(queries, ("general",), shard_size=4)
    values: dict[str, tuple[float, float | None]] = {query_id(n): (0.5, 0.5) for n in range(30)}
    values |= {query_id(3): (0.9, 0.1), query_id(25): (0.1, 0.9)}
    chosen = found_in(run, 5, Judged({}, values))
    assert {one.query for one in chosen} >= {"query 3", "query 25", "query 17", "failing"}
    assert len(chosen) == 5
    assert (chosen[0].query, chosen[-1].query) == ("query 3", "query 25")  # the greatest gain first
    assert chosen[0].gain == pytest.approx(0.8)
    assert [one.query for one in chosen] == [one.query for one in found_in(run, 5, Judged({}, values))]


def test_without_judgements_the_most_asked_come_first(make: Make) -> None:
    run = make([Query(name, {"general": "g"}, asked=asked) for name, asked in (("a", 1), ("b", 7), ("c", 3))], ("general",))
    assert [one.query for one in found_in(run)] == ["b", "c", "a"]
    tags = page(run).tags
    assert [attributes["value"] for tag, attributes in tags if tag == "option"] == ["asked"]
    asked = [attributes["data-asked"] for _, attributes in tags if attributes.get("class") == "sample"]
    assert asked == ["7", "3", "1"]


def test_the_most_asked_of_an_unfinished_run_are_committed_ones(make: Make) -> None:
    queries = [Query(f"query {n}", {"general": "g"}, asked=n + 1) for n in range(12)]
    run = make(queries, ("general",), shard_size=2, commit=2, finished=False)
    assert [one.query for one in found_in(run, 5)] == ["query 3", "query 2", "query 1", "query 0"]


def test_judged_queries_have_the_mean_of_their_rows(make: Make) -> None:
    run = make()
    judgements = Judgements("qrels", {query_id(0): {"d01": 1, "d05": -1}, query_id(1): {"d04": 3}}, "query_id")
    values = measure(run, judgements)
    found = judged_queries(judgements, values)
    assert found.grades == judgements.grades
    assert found.values[query_id(0)] == (values.values[0, 0, 0], values.values[1, 0, 0])
    assert [name for name, _ in found.by_gain()] == [query_id(1), query_id(0)]
    assert found.moved() == (1, 0, 1)
    twice = Judgements("qrels", {"r1": {"d01": 1}, "r2": {"d01": 2, "d02": 0}})
    rows = replace(values, keys=("r1", "r2"), query_ids=(query_id(0),) * 2)
    assert judged_queries(twice, rows).grades == {query_id(0): {"d01": 2, "d02": 0}}


# ---------------------------------------------------------------- what is shown


@pytest.mark.parametrize("fuse", [{}, {"method": "minmax"}, {"weights": {"original": 0}}])
def test_the_original_alone_is_the_one_that_is_measured(make: Make, fuse: dict[str, object]) -> None:
    run = make(fuse=fuse)
    with database(run) as connection:
        wanted = judged_rows.query_of(connection, run, Judgements("q", {query_id(n): {} for n in range(3)}, "query_id"))
        rows = [row for table in judged_rows.originals(connection, run, 10) for row in table.to_pylist()]
    measured: dict[str, list[str]] = {}
    for row in rows:
        measured.setdefault(row["query_id"], []).append(row["doc_id"])
    assert len(wanted) == 3
    assert measured[query_id(0)] != []
    for one in found_in(run):
        assert [hit.doc_id for hit in one.alone] == measured.get(one.query_id, [])


# ---------------------------------------------------------------- failures of one answer


def test_an_answer_that_fails_for_several_strategies_counts_once(make: Make) -> None:
    raw = "beginword " + "x" * 5_000 + " endword"
    failed = {"general": ("cut off", raw), "keyword": ("cut off", raw)}
    run = make([Query("one", {}, failed), Query("two", {"general": "g"}, {"keyword": ("cut off", "short")}), QUERIES[0]])
    found = page(run)
    assert len([row for row in stored(run, "errors") if row["reason"] == "truncated"]) == 3
    assert found.row("errors", "truncated") == ["rewrite", "2", "3", "general\xa01, keyword\xa02"]
    text = found.sections["errors"]
    assert text.count("endword") == 1
    assert "beginword" not in text  # the answer was cut: its end is shown
    assert "4,418 characters before" in text
    assert "general, keyword" in text
    assert "2 of 2 queries" in text
    sample = next(one for one in found_in(run) if one.query == "one")
    assert sample.failures[0] == ("rewrite", "truncated", "cut off", ["general", "keyword"])
    assert "rewrite, general, keyword: truncated cut off" in found.sections["samples"]


# ---------------------------------------------------------------- the first screen

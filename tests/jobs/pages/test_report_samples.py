"""The samples of a report: which queries, in which order, what of them is shown; and the answers that failed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.log.judgements import Judgements
from jobs.measure import judged_rows
from jobs.measure.evaluate.evaluate import MEASURES, Evaluation
from jobs.measure.frame import measure
from jobs.measure.judged_rows import database
from jobs.pages.report import report
from jobs.pages.report.failures import failures
from jobs.pages.report.figures import Figures
from jobs.pages.report.judged_queries import Judged, judged_queries
from jobs.pages.report.samples import Sample, samples
from jobs.runs.folder import RunFolder
from tests.support.jobs.report_runs import PRICES, QUERIES, Make, Page, Query, RunMaker, page, query_id, stored


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


def test_gain_and_order_are_on_the_page_where_queries_are_judged(make: Make) -> None:
    run = make()
    judged = Judged({query_id(0): {"d04": 2, "d02": 0, "d99": 1}}, {query_id(0): (0.25, 0.75)})
    found = page(run, judged=judged)
    assert [attributes["value"] for tag, attributes in found.tags if tag == "option"] == ["gain", "loss", "asked"]
    assert [one["data-gain"] for _, one in found.tags if "data-gain" in one] == ["-0.500000"]
    text = re.sub(r"\s+", " ", found.sections["samples"])
    assert "▼ −0.50 asked 3 ×" in text
    assert "nDCG@10: original alone 0.7500, results 0.2500" in text
    assert re.search(r"d04 \S+ \+ new ★ relevant 2", text)
    assert re.search(r"d02 \S* ?judged not relevant", text)
    assert "Relevant, but not among these results: d99 (1)" in text


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


def test_results_of_a_reranker_stand_beside_as_many_documents_of_the_original(make: Make) -> None:
    run = make(rerank={"kind": "cross_encoder", "keep": 2})
    assert [len(one.alone) for one in found_in(run)][:2] == [2, 1]
    assert "Original alone, fused, not reranked" in page(run, None, evaluation(reranked=True)).sections["samples"]


def test_prompt_and_answer_are_shown_folded(make: Make) -> None:
    text = re.sub(r"\s+", " ", page(make()).sections["samples"])
    assert "Prompt and raw answer dmqr: 100 prompt tokens, 7 completion tokens, stop" in text
    assert "Prompt prompt alpha lighthouse Answer of writer answer to alpha lighthouse" in text
    closed = re.sub(r"\s+", " ", page(make(), texts=False).sections["samples"])
    assert "dmqr: 100 prompt tokens, 7 completion tokens, stop" in closed
    assert "lighthouse" not in closed


def test_a_long_prompt_keeps_its_end_and_a_cut_answer_too(make: Make) -> None:
    name = "needle" + " hay" * 4_000 + " haystack"
    text = page(make([Query(name, {"general": "g"}, finish_reason="length")])).sections["samples"]
    assert "cut by the token limit" in text
    prompt, _, answer = text.partition("Answer of writer")
    assert re.search(r"prompt needle hay.*\[… [\d,]+ characters …\].* haystack", prompt, re.DOTALL)
    assert re.search(r"[\d,]+ characters before …", answer)
    assert answer.partition("Original alone")[0].rstrip().endswith("haystack")


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


def test_another_failed_answer_is_shown_from_its_beginning(make: Make) -> None:
    rejected = [{"log_id": "r", "stage": "log", "reason": "empty", "message": "m", "raw": "first" + "x" * 700, "attempts": 1}]
    text = page(make(rejected=rejected)).sections["errors"]
    assert "first" in text
    assert "105 more characters" in text


# ---------------------------------------------------------------- the first screen


def evaluation(**values: object) -> Evaluation:
    results, original = dict.fromkeys(MEASURES, 0.5), dict.fromkeys(MEASURES, 0.4)
    return Evaluation(7, 2, results, original, dict.fromkeys(MEASURES, (0.02, 0.2)), **values)  # type: ignore[arg-type]


def test_quality_and_cost_come_first(make: Make) -> None:
    run = make()
    run.record["label"] = "2026-03-01"
    judged = Judged({}, {query_id(0): (0.5, 0.25), query_id(1): (0.5, 0.5)})
    found = page(run, PRICES, evaluation(), judged=judged)
    assert "2026-03-01" in found.sections[""]
    text = re.sub(r"\s+", " ", found.sections["glance"])
    places = [text.index(words) for words in ("+0.1000 better", "cost per 1,000 queries", "distinct queries", "Quality of the")]
    assert places == sorted(places)
    assert "1 queries gained, 0 lost, 1 did neither" in text
    drawn = next(one["style"] for tag, one in found.tags if tag == "i" and one.get("class") == "dot")
    assert drawn == "left:50.00%"  # 0.1, in the middle of 0 and 0.2


def test_without_judgements_and_prices_the_first_screen_says_so(make: Make) -> None:
    text = re.sub(r"\s+", " ", page(make(), None).sections["glance"])
    assert "not measured" in text
    assert "--qrels FILE" in text
    assert "worker time per 1,000 queries" in text
    assert "there are no prices" in text
    nothing = page(make(), None, Evaluation(7, 7, {}, None, None)).sections["glance"]
    assert "none of 7 judged log rows is in the log" in nothing


def test_every_table_can_be_downloaded_under_a_name_of_its_own(make: Make) -> None:
    found = Page(report(make(), PRICES, evaluation()))
    names = [attributes.get("data-csv") for tag, attributes in found.tags if tag == "table"]
    assert len(names) == len(set(names)) > 10
    assert None not in names


def test_rounded_cells_carry_their_value(make: Make) -> None:
    cells = [float(one["data-v"] or "") for tag, one in page(make()).tags if tag == "td" and "data-v" in one]
    assert len(cells) > 20


def test_the_flow_is_a_list_too_for_narrow_screens(make: Make) -> None:
    found = page(make())
    text = re.sub(r"\s+", " ", found.sections["flow"])
    assert "planned original3 general3 keyword3" in text

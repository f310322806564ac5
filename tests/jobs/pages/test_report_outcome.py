"""What came of a run, on its page: the sentence in words, quality by traffic, queries that find nothing, notices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.measure.evaluate import Evaluation
from jobs.measure.measures import MEASURES
from jobs.pages.report import report
from jobs.pages.report.figures import Figures
from jobs.pages.report.glance import quality
from jobs.pages.report.judged_queries import Judged
from jobs.pages.report.lists import lists
from jobs.pages.report.outcome.by_traffic import ALL, by_traffic
from jobs.pages.report.outcome.nothing_found import nothing_found
from jobs.pages.report.outcome.verdict import verdict
from jobs.runs.folder import RunFolder
from tests.support.jobs.report_runs import Page, Query, RunMaker, page, query_id

HITS = {("original", "bm25"): ["d01"], ("general", "bm25"): ["d01"], ("keyword", "bm25"): ["d02"]}
JUDGED = 20


def evaluation(difference: float, half: float) -> Evaluation:
    """Of results that are better than the original alone by a difference, with half the width of its interval."""
    alone = dict.fromkeys(MEASURES, 0.5)
    results = {name: value + difference for name, value in alone.items()}
    ends = dict.fromkeys(MEASURES, (difference - half, difference + half))
    return Evaluation(JUDGED, 0, results, alone, ends, queries=JUDGED)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Twenty queries of which `keyword` alone finds d02, and one without a hit."""
    texts = {"general": "a", "keyword": "b"}
    asked = [Query(f"topic{n}", texts, hits=HITS, asked=20 if n == 0 else 1) for n in range(JUDGED)]
    return RunMaker(tmp_path)([*asked, Query("zzz", texts, asked=7), Query("yyy", texts, asked=9)], shard_size=4)


def judged(relevant: str = "d02") -> Judged:
    values = {query_id(n): (1.0 if n else 0.0, 0.5) for n in range(JUDGED)}
    return Judged({query_id(n): {relevant: 1} for n in range(JUDGED)}, values)


def said(run: RunFolder, one: Evaluation | None, of: Judged | None) -> str | None:
    figures = Figures(run)
    return verdict(figures, quality(one), of, lists(figures))


def test_rewriting_helps_and_by_what(run: RunFolder) -> None:
    assert said(run, evaluation(0.2, 0.1), judged()) == (
        "Rewriting helps, mostly by keyword (20 of 20 relevant documents that the original does not find): nDCG@10 +0.2000 "
        "over the original alone, 95 % interval +0.1000 to +0.3000."
    )


def test_nothing_is_claimed_where_the_interval_holds_0(run: RunFolder) -> None:
    found = said(run, evaluation(0.2, 0.25), judged())
    assert found is not None
    assert found.startswith("It is not clear whether rewriting helps")
    assert "mostly" not in found


def test_no_strategy_is_named_where_none_stands_out(run: RunFolder) -> None:
    for relevant in ("d01", "d99"):
        found = said(run, evaluation(0.2, 0.1), judged(relevant))
        assert found is not None
        assert found.startswith("Rewriting helps: nDCG@10 +0.2000")


def test_harm_is_said(run: RunFolder) -> None:
    assert (said(run, evaluation(-0.2, 0.1), judged()) or "").startswith("Rewriting does harm: nDCG@10")


def test_without_judgements_nothing_is_known(run: RunFolder) -> None:
    assert said(run, None, None) == (
        "Whether rewriting helps is not known: nothing is measured. Of the first 10 results of a query 50.0 % were found by "
        "rewrites only."
    )


def test_quality_by_traffic(run: RunFolder) -> None:
    head, *rest, every = by_traffic(run, judged())
    assert (head.name, head.queries, head.asked, head.results, head.difference) == ("head", 1, 20, 0.0, -0.5)
    assert sum(one.queries for one in rest) == JUDGED - 1
    assert all(one.results == 1.0 for one in rest)
    assert (every.name, every.queries, every.asked) == (ALL, JUDGED, 39)
    assert every.results == pytest.approx(19 / 39)
    found = page(run, None, evaluation(0.2, 0.1), judged=judged())
    assert found.row("glance", "head (few)")[:3] == ["1", "20", "−0.5000"]


def test_the_same_words_after_other_turns_are_no_near_duplicates(run: RunFolder) -> None:
    for path in run.tables["queries"]:
        rows = pq.read_table(path)
        turns = pa.array([f"a turn about {name}" for name in rows["query"].to_pylist()])
        rows = rows.set_column(rows.schema.get_field_index("query"), "query", pa.array(["tell me more"] * rows.num_rows))
        pq.write_table(rows.append_column("context", turns), path)
    values = {query_id(n): (n / JUDGED, 0.0) for n in range(JUDGED)}
    *thirds, _ = by_traffic(run, Judged({}, values))
    assert [one.interval is None for one in thirds] == [one.queries < 2 for one in thirds]
    assert any(one.interval for one in thirds)


def test_all_queries_that_find_nothing_by_traffic(run: RunFolder) -> None:
    found = nothing_found(Figures(run))
    assert found is not None
    assert [(query, asked) for _, query, asked in found.listed] == [("yyy", 9), ("zzz", 7)]
    assert (found.queries, found.asked, found.traffic) == (2, 16, 55)
    shown = page(run)
    assert [row for row in shown.rows["errors"] if row[1:] == ["yyy", "9"]]
    assert "zzz" not in report(run, None, None, texts=False)


def boxes(html: str) -> tuple[str, str]:
    """The text of the red box and of the grey one."""
    red, grey = '<ul class="notices">', '<ul class="notices remarks">'
    found = [html.partition(one)[2].partition("</ul>")[0] for one in (red, grey)]
    return found[0], found[1]


def test_the_red_box_holds_what_went_wrong(run: RunFolder, tmp_path: Path) -> None:
    red, grey = boxes(report(run, None, None))
    assert red == ""
    assert "No list has a hit for 2 queries" in grey
    assert "Redundancy weights are by overlap" in grey
    settings: dict[str, Any] = {"commit": 1, "finished": False}
    red, _ = boxes(report(RunMaker(tmp_path / "open")(**settings), None, None))
    assert "This run is not finished" in red
    assert Page(report(run, None, None)).sections

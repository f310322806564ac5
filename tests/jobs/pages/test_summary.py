"""Tables as data, printed into a terminal and on a page: charts, the closing table, the flags that the docs name."""

import math
import re
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.prices import Prices
from jobs.chain.drift import DRIFT
from jobs.measure.evaluate import Evaluation
from jobs.pages.charts import Point, axis, scatter
from jobs.pages.comparison import UNMEASURED, MeasuredRun
from jobs.pages.render import Head, Interval, Section, Table, difference, interval, render
from jobs.pages.summary import _shown, closing_table
from jobs.runs.folder import RunFolder
from jobs.terminal.formats import count, percent
from jobs.terminal.live_display import page_text
from rewriters.guards import preserve
from rewriters.guards.guards import NEAR_DUPLICATE, REPAIRED
from rewriters.reasons import CUT, FLAGS, MASKED, OTHER_SCRIPT
from tests.support.jobs.run_folders import Make, Page, Query, frame_of
from tests.support.jobs.terminals import lines, printed
from tests.support.jobs.whole_runs import ROOT

CORES = [Query("one", {"keyword": "a, b", "core_content": "a b c"}), Query("two", {"keyword": "a", "core_content": "a"})]


def printed_lines(run: RunFolder, measured: MeasuredRun = UNMEASURED) -> list[str]:
    return [" ".join(line.split()) for line in printed(closing_table(run, None, measured), 120).splitlines()]


def test_texts_are_counted_by_how_they_were_read(make: Make) -> None:
    shown = printed_lines(make(CORES, ("keyword", "core_content")))
    assert "core_content json 2" in shown
    assert "keyword json 2" in shown
    assert any(line.startswith("cost: not in money: there is no prices.yaml beside ") for line in shown)


@pytest.mark.parametrize(("reranked", "alone"), [(True, "original alone, fused, not reranked"), (False, "original alone")])
def test_what_the_results_are_compared_with(make: Make, reranked: bool, alone: str) -> None:
    run = make()
    rerank = run.config.rerank.model_copy(update={"kind": "bi_encoder" if reranked else "none"})
    evaluation = Evaluation(frame_of([[0.5] * 5, [0.4] * 5]), run.config.model_copy(update={"rerank": rerank}))
    shown = printed_lines(run, MeasuredRun(evaluation))
    assert f"nDCG@10 0.5000 ({alone} 0.4000)" in shown
    assert f"Success@5 (H@5) 0.5000 ({alone} 0.4000)" in shown


def test_where_nothing_is_judged_a_warning_stands_and_no_row_of_dashes(make: Make) -> None:
    run, nothing = make(), frame_of([[], []], judged=7, missing=7, unmatched=("q1", "log.parquet#0"))
    shown = printed_lines(run, MeasuredRun(Evaluation(nothing, run.config)))
    assert not [line for line in shown if line.startswith(("nDCG", "R@"))]
    assert "warning: nothing is measured: none of 7 judged log rows is in the log" in " ".join(shown)


def test_the_cost_is_the_bill_by_stage_driver_and_idle_nodes(make: Make) -> None:
    run = make()
    start = run.record["starts"][0]
    start |= {
        "node_seconds": {"cpu": 3600.0},
        "spent": {"driver": {"work@": {"driver_seconds": 90.0}, "storage@": {"put": 1, "get": 1}}},
    }
    shown = filter(None, printed(closing_table(run, Prices(node_hour=2.0))).splitlines())
    said = {line.split()[0]: " ".join(line.split()[1:]) for line in shown}
    assert said["cost"].startswith("$2.00, ")
    assert said["driver"].endswith("1 min 30 s of the driver, 2 requests to S3")
    shown = [
        float(said[name].split(",")[0].removeprefix("$"))
        for name in ("rewrite", "retrieve", "fuse", "write", "driver", "idle")
        if name in said
    ]
    assert sum(shown) == pytest.approx(2.0, abs=0.03)  # of cents, six of them


def test_a_stage_of_which_only_zeros_would_be_said_has_no_row() -> None:
    assert not _shown({"seconds": 0.2}, 0.00004)
    assert _shown({"seconds": 0.2}, 0.0001)
    assert _shown({"seconds": 0.6}, None)
    assert _shown({"put": 1}, None)


def test_a_terminal_warns_where_no_answer_is_measured() -> None:
    answers = SimpleNamespace(kind="answers", warning="none is in the log")
    shown = page_text(MeasuredRun(None, [answers]).page(), 80)  # type: ignore[list-item]
    assert shown.strip() == "warning: answers, against gold answers: none is in the log"


TEXTS = st.text(st.characters(min_codepoint=32, blacklist_categories=["Cs", "Cc"]), max_size=20)

COLUMNS = [Head("arm"), Head("queries", count), Head("moved", difference)]

COLUMNS += [Head("95 % interval", interval), Head("share", percent)]

TABLE = Table(
    COLUMNS,
    [
        ["one", 1234, "+0.2500+", Interval(0.1, 0.4, 0.25), 0.5],
        ["  part of it", None, math.nan, Interval(math.nan, math.nan, 0.0), ""],
    ],
    note="a note",
)


def test_one_table_is_printed_and_on_a_page() -> None:
    assert lines(TABLE.terminal()) == [
        "arm queries moved 95 % interval share",
        "one 1,234 +0.2500+ +0.1000 to +0.4000 50.0 %",
        "part of it - - -",
        "a note",
    ]
    page = Page(render("Kind", "Title", [], "", [Section("s", "S", parts=[TABLE])], texts=True))
    assert page.row("s", "one") == ["1,234", "+0.2500+", "+0.1000 to +0.4000", "50.0 %"]
    assert page.row("s", "part of it") == ["–", "–", "–", ""]
    kinds = [attributes.get("class") for tag, attributes in page.tags if tag in {"tr", "td"}]
    assert {"part", "none"} <= set(kinds)
    assert {attributes["data-label"] for _, attributes in page.tags if "data-label" in attributes} == {
        column.label for column in COLUMNS[1:]
    }


def test_a_column_of_which_nothing_is_known_is_left_out() -> None:
    table = Table([Head("a"), Head("b", count), Head("c", count)], [["x", None, 1], ["y", None, 2]])
    assert [column.label for column in table.known().columns] == ["a", "c"]


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(-1, 1), TEXTS, TEXTS), min_size=1, max_size=12))
def test_charts_are_well_formed_and_their_texts_stay_texts(points: list[tuple[float, float, str, str]]) -> None:
    drawn = [Point(x, y, words, "arms", label) for x, y, words, label in points]
    read = ElementTree.fromstring(scatter(drawn, "USD", "nDCG@10", "{:.0f}".format, drawn[:2]))
    assert sorted(one.findtext("title") or "" for one in read.iter("circle")) == sorted(words for *_, words, _ in points)
    for one in read.iter("circle"):
        assert 0 <= float(one.attrib["cx"].rstrip("%")) <= 100


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8), st.booleans(), st.booleans())
def test_an_axis_holds_its_values_in_order(values: list[float], falling: bool, zero: bool) -> None:
    start, end = (100.0, 0.0) if falling else (0.0, 100.0)
    found = axis(values, start, end, zero=zero)
    places = [found.position(value) for value in sorted([*values, *([0.0] if zero else [])])]
    assert places == sorted(places, reverse=falling)
    assert all(-1e-6 <= place <= 100 + 1e-6 for place in places)
    assert 1 <= len(list(found.ticks())) <= 12


def test_the_pages_name_every_flag_of_a_text() -> None:
    page = (ROOT / "docs/results-and-tables.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| `guards` \|.*$", page, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == {"guards", *FLAGS}
    strategies = (ROOT / "docs/strategies.md").read_text(encoding="utf-8")
    table = strategies[strategies.index("| guard | in `rewrites.guards` |") :].partition("\n\n")[0]
    assert set(FLAGS) <= {*re.findall(r"`(\w+)`", table)}
    assert {
        *(preserve.NUMBER, preserve.NAME, preserve.PHRASE),
        REPAIRED,
        NEAR_DUPLICATE,
        MASKED,
        CUT,
        OTHER_SCRIPT,
        DRIFT,
    } < set(FLAGS)

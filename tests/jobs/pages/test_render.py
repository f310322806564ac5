"""Tables as data, printed into a terminal and on a page; and what charts are made of."""

from __future__ import annotations

import math
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from jobs.pages.charts import Point, axis, gains, scatter
from jobs.pages.render import Head, Interval, Marked, Section, Table, difference, interval, render
from jobs.terminal.formats import count, percent
from tests.support.jobs.run_folders import Page
from tests.support.jobs.terminals import lines

TEXTS = st.text(st.characters(min_codepoint=32, blacklist_categories=["Cs", "Cc"]), max_size=20)
COLUMNS = [Head("arm"), Head("queries", count), Head("moved", difference)]
COLUMNS += [Head("95 % interval", interval), Head("share", percent)]
TABLE = Table(
    COLUMNS,
    [
        ["one", 1234, Marked(0.25, "+", "best"), Interval(0.1, 0.4, 0.25), 0.5],
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
    assert {"part", "best", "none"} <= set(kinds)
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
    bars = ElementTree.fromstring(gains([y for _, y, *_ in points], "difference")).iter("rect")
    assert len(list(bars)) == sum(y != 0 for _, y, *_ in points)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8), st.booleans(), st.booleans())
def test_an_axis_holds_its_values_in_order(values: list[float], falling: bool, zero: bool) -> None:
    start, end = (100.0, 0.0) if falling else (0.0, 100.0)
    found = axis(values, start, end, zero=zero)
    places = [found.place(value) for value in sorted([*values, *([0.0] if zero else [])])]
    assert places == sorted(places, reverse=falling)
    assert all(-1e-6 <= place <= 100 + 1e-6 for place in places)
    assert 1 <= len(list(found.ticks())) <= 12

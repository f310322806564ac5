"""What charts are made of: elements that no text breaks out of, and the axis of differences."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from jobs.pages.charts import around_zero, drawing, element

TEXTS = st.text(st.characters(min_codepoint=32, blacklist_categories=["Cs", "Cc"]))


@given(TEXTS, TEXTS, st.floats(-1e6, 1e6))
def test_texts_stay_texts(words: str, label: str, place: float) -> None:
    text = element("text", words, element("title", words), class_="name", x=place, text_anchor=None)
    read = ElementTree.fromstring(drawing(10.0, 20.0, text, label=label))
    assert (read.get("viewBox"), read.get("aria-label")) == ("0 0 10 20", label)
    (found,) = read
    assert found.attrib == {"class": "name", "x": f"{place:.1f}"}
    assert (found.text or "", found[0].text or "") == (words, words)


@given(st.lists(st.floats(-1e3, 1e3)))
def test_an_axis_around_zero_holds_zero_and_all_ends(ends: list[float]) -> None:
    axis = around_zero(ends)
    places = [axis.place(end) for end in (*ends, 0.0)]
    assert all(0 < place < 100 for place in places)

"""Measures of ranked lists, against figures computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from jobs.log.judgements import Judgements
from jobs.measure.evaluate import measure as module
from jobs.measure.evaluate.measure import MEASURES, Measured, measure
from tests.support.jobs.measures_by_hand import by_hand

GRADES = {"l1": {"d1": 2, "d2": 1, "d3": 0, "d5": -3}, "l2": {"d4": 1}}
ASKED = {"q1": ["l1"], "q2": ["l2"]}


def of(grades: dict[str, dict[str, int]], asked: dict[str, list[str]], ranked: dict[str, list[str]]) -> Measured:
    return measure(Judgements("", grades), asked, ranked.items())


def test_figures_are_those_by_hand() -> None:
    long = [f"x{n}" for n in range(9)] + ["d4", "d1"]  # d4 just within the ten
    longer = [f"x{n}" for n in range(10)] + ["d4"]  # and just not
    one = ["d3", "d2", "d5", "d1"]
    for ranked in ({"q1": one, "q2": long}, {"q2": longer, "q1": one}):
        expected = [by_hand(GRADES["l1"], ranked["q1"]), by_hand(GRADES["l2"], ranked["q2"])]
        assert of(GRADES, ASKED, ranked).values == pytest.approx(np.array(expected))
    assert expected[1] == [0, 0, 0, 0, 0]
    assert len(MEASURES) == len(expected[0])


def test_a_grade_below_0_is_not_relevant() -> None:
    assert of({"l1": {"d1": -1, "d2": 1}}, {"q1": ["l1"]}, {"q1": ["d1", "d2"]}).values[0] == pytest.approx(
        by_hand({"d2": 1}, ["d1", "d2"])
    )
    assert not of({"l1": {"d1": -(10**20)}}, {"q1": ["l1"]}, {"q1": ["d1"]}).values.any()


def test_queries_without_documents_keep_zeros_in_their_place() -> None:
    found = of(GRADES, ASKED, {"q1": [], "q2": ["d4"], "q9": ["d1"]})
    assert found.values.tolist() == [[0, 0, 0, 0, 0], [1, 1, 0.2, 1, 1]]
    assert found.found == 1


def test_rows_of_one_query_are_measured_each_by_its_own_judgements() -> None:
    found = of({"a": {"d1": 1}, "b": {"d2": 1}}, {"q1": ["a", "b"]}, {"q1": ["d1", "d2"]})
    assert found.values[:, MEASURES.index("RR@10")].tolist() == [1, 0.5]
    assert found.found == 2


def test_a_query_for_which_nothing_is_relevant_counts_zero() -> None:
    assert of({"l1": {"d1": 0}}, {"q1": ["l1"]}, {"q1": ["d1"]}).values.tolist() == [[0, 0, 0, 0, 0]]


def test_ids_are_whole_texts() -> None:
    grades = {"l1": {"d\0a": 1, "": 1, "d 1": 0}}
    found = of(grades, {"q1": ["l1"]}, {"q1": ["d\0b", "", "d"]})  # trec_eval alone takes the first two for one
    assert found.values[0] == pytest.approx(by_hand(grades["l1"], ["d\0b", "", "d"]))


def test_share_without_judgement_is_of_the_first_ten() -> None:
    found = of(GRADES, ASKED, {"q1": ["d3", "x", "d1", "y"], "q2": [f"x{n}" for n in range(10)] + ["d4"]})
    assert found.unjudged == pytest.approx(12 / 14)
    assert of(GRADES, ASKED, {}).unjudged is None


def test_a_query_measured_in_a_later_chunk_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [f"q{n}" for n in range(7)]
    grades = {f"l{query}": {f"d{n}": n % 3 for n in range(7)} for query in ids}
    asked = {query: [f"l{query}"] for query in ids}
    ranked = {query: [f"d{(n + place) % 7}" for n in range(7)] for place, query in enumerate(ids)}
    whole = of(grades, asked, ranked)
    monkeypatch.setattr(module, "CHUNK", 3)
    assert (of(grades, asked, ranked).values == whole.values).all()
    assert len(set(whole.values[:, 0].tolist())) > 3


def test_nothing_asked() -> None:
    assert of(GRADES, {}, {"q1": ["d1"]}).values.shape == (0, len(MEASURES))

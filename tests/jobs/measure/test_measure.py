"""Measures of ranked lists, against figures computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from jobs.measure import measures as module
from jobs.measure.measures import MEASURES, ListMeasures, measured_lists
from tests.support.jobs.measures_by_hand import by_hand

GRADES = {"l1": {"d1": 2, "d2": 1, "d3": 0, "d5": -3}, "l2": {"d4": 1}}


def of(*lists: tuple[dict[str, int], list[str]]) -> np.ndarray:
    return measured_lists(MEASURES, lists)


def test_figures_are_those_by_hand() -> None:
    long = [f"x{n}" for n in range(9)] + ["d4", "d1"]  # d4 just within the ten
    longer = [f"x{n}" for n in range(10)] + ["d4"]  # and just not
    one = ["d3", "d2", "d5", "d1"]
    for second in (long, longer):
        expected = [by_hand(GRADES["l1"], one), by_hand(GRADES["l2"], second)]
        assert of((GRADES["l1"], one), (GRADES["l2"], second)) == pytest.approx(np.array(expected))
    assert expected[1] == [0, 0, 0, 0, 0]
    assert len(MEASURES) == len(expected[0])


def test_a_grade_below_0_is_not_relevant() -> None:
    assert of(({"d1": -1, "d2": 1}, ["d1", "d2"]))[0] == pytest.approx(by_hand({"d2": 1}, ["d1", "d2"]))
    assert not of(({"d1": -(10**20)}, ["d1"])).any()


def test_lists_without_documents_keep_zeros_in_their_place() -> None:
    assert of((GRADES["l1"], []), (GRADES["l2"], ["d4"])).tolist() == [[0, 0, 0, 0, 0], [1, 1, 0.2, 1, 1]]


def test_one_list_is_measured_by_each_of_its_judgements() -> None:
    found = of(({"d1": 1}, ["d1", "d2"]), ({"d2": 1}, ["d1", "d2"]))
    assert found[:, MEASURES.index("RR@10")].tolist() == [1, 0.5]


def test_a_query_for_which_nothing_is_relevant_counts_zero() -> None:
    assert of(({"d1": 0}, ["d1"])).tolist() == [[0, 0, 0, 0, 0]]


def test_ids_are_whole_texts() -> None:
    grades = {"d\0a": 1, "": 1, "d 1": 0}
    found = of((grades, ["d\0b", "", "d"]))  # trec_eval alone takes the first two for one
    assert found[0] == pytest.approx(by_hand(grades, ["d\0b", "", "d"]))


def test_a_list_measured_in_a_later_chunk_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = [({f"d{n}": n % 3 for n in range(7)}, [f"d{(n + place) % 7}" for n in range(7)]) for place in range(7)]
    whole = of(*lists)
    monkeypatch.setattr(module, "CHUNK", 3)
    assert (of(*lists) == whole).all()
    assert len(set(whole[:, 0].tolist())) > 3


def test_lists_measured_again_by_the_same_grades_are_measured_anew() -> None:
    measures = ListMeasures(["RR", "Compat(p=0.9)"], [GRADES["l1"], GRADES["l2"]])
    first = measures([["d1", "d2"], ["x", "d4"]])
    assert measures([["x"], []]).tolist() == [[0, 0], [0, 0]]
    assert (measures([["d1", "d2"], ["x", "d4"]]) == first).all()


def test_nothing_asked() -> None:
    assert of().shape == (0, len(MEASURES))

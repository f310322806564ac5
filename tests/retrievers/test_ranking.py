"""The arithmetic that fusion and the final order share."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrievers.ranking import among_best, encode, order_by_score, ranges, ranks, rounded


@given(st.lists(st.floats(allow_nan=False)), st.sampled_from([6, 12]))
def test_any_number_is_rounded_as_python_does_it(values: list[float], decimals: int) -> None:
    wanted = [round(value, decimals) + 0.0 for value in values]
    assert [value.hex() for value in rounded(np.array(values), decimals).tolist()] == [value.hex() for value in wanted]


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0, 3000.0, 1e6])
def test_numbers_halfway_between_two_are_rounded_as_python_does_it(scale: float) -> None:
    """np.round errs on these: its product with 10^12 is rounded before it is."""
    values = (np.random.default_rng(0).random(20_000) * scale).round(12) + 0.5e-12
    wanted = np.array([round(value, 12) for value in values.tolist()])
    assert (rounded(values) == wanted).all()
    assert (np.round(values, 12) != wanted).any()


@given(st.lists(st.text()))
def test_numbers_are_in_the_order_of_the_names(names: list[str]) -> None:
    numbers, distinct = encode(pa.array(names, pa.string()))
    assert distinct.to_pylist() == sorted(set(names))
    assert distinct.take(pa.array(numbers)).to_pylist() == names


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4))))
def test_ranges_are_counted_one_after_the_other(pairs: list[tuple[int, int]]) -> None:
    begins, lengths = (np.array([pair[i] for pair in pairs], dtype=np.int64) for i in (0, 1))
    assert ranges(begins, lengths).tolist() == [begin + i for begin, length in pairs for i in range(length)]
    assert ranks(lengths).tolist() == [rank for _, length in pairs for rank in range(1, length + 1)]


def test_equal_scores_stand_in_order_of_document_and_queries_apart() -> None:
    query, scores, document = np.array([1, 0, 1, 1]), np.array([5.0, 1.0, 7.0, 5.0]), np.array([9, 4, 8, 2])
    assert order_by_score(query, scores, document).tolist() == [1, 2, 3, 0]
    assert order_by_score(query, scores).tolist() == [1, 2, 0, 3]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 3))),
    st.sampled_from([1e-13, 0.25, 1e4]),
    st.integers(1, 5),
)
def test_the_best_are_the_same_whether_all_are_sorted_or_those_that_may_be_among_them(
    entries: list[tuple[int, int, int]], scale: float, keep: int
) -> None:
    query = np.sort(np.array([number for number, _, _ in entries], dtype=np.int64))
    scores = np.array([high * scale + low * 3e-13 for _, high, low in entries])  # many are rounded to one

    def best(places: np.ndarray) -> list[int]:
        order = places[order_by_score(query[places], rounded(scores[places]))]
        found: list[int] = order[ranks(np.bincount(query[order], minlength=4)) <= keep].tolist()
        return found

    assert best(among_best(query, scores, keep)) == best(np.arange(len(query)))

"""The arithmetic that fusion and the final order share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrievers.ranking import among_best, order_by_score, ranks, rounded


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

"""Cohen's kappa and over-rating, against scikit-learn."""

from __future__ import annotations

import math
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from jobs.measure.judged.agreement import agreement


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60))
def test_kappa_is_that_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = cohen_kappa_score([one for one, _ in pairs], [one for _, one in pairs])
    found = agreement(pairs)
    if math.isnan(expected):
        assert found.kappa is None
    else:
        assert found.kappa == pytest.approx(expected)
    assert found.same + found.higher + found.lower == found.pairs == len(pairs)


def test_over_rating_is_counted() -> None:
    # people 0 0 1 2, judge 1 2 1 1: 1 of 4 the same; by chance (0.25 x 0.75) = 0.1875
    found = agreement([(0, 1), (0, 2), (1, 1), (2, 1)])
    assert (found.same, found.higher, found.lower) == (1, 2, 1)
    assert found.kappa == pytest.approx((0.25 - (0.25 * 0.75 + 0.25 * 0.25)) / (1 - (0.25 * 0.75 + 0.25 * 0.25)))
    assert "25 % as they do, 50 % higher and 25 % lower" in found.note
    assert agreement([(1, 1), (1, 1)]).kappa is None

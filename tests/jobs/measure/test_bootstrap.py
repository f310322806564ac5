"""The interval: does it hold the true mean as often as it says, and does it count queries, not rows?"""

from __future__ import annotations

import numpy as np
import pytest

from jobs.measure.evaluate import intervals as bootstrap
from jobs.measure.evaluate.intervals import mean_interval


@pytest.fixture
def fewer_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "RESAMPLES", 1000)


def coverage(queries: int, simulations: int = 200) -> float:
    """How often the interval holds the true mean 0.05: skewed differences, mostly 0, over queries of 1 to 40 rows."""
    generator = np.random.default_rng(7)
    held = 0
    for _ in range(simulations):
        values = np.where(generator.random(queries) < 0.5, 0.0, generator.gamma(2.0, 0.15, queries) - 0.2)
        sizes = generator.zipf(2.5, queries).clip(1, 40)
        ends = mean_interval((values * sizes)[:, None], sizes)
        assert ends is not None
        held += ends[0, 0] <= 0.05 <= ends[0, 1]
    return held / simulations


@pytest.mark.usefixtures("fewer_draws")
def test_it_holds_the_true_mean_as_often_as_it_says() -> None:
    assert 0.90 <= coverage(150) <= 0.99


def test_it_is_close_to_the_normal_one_where_that_holds() -> None:
    values = np.random.default_rng(3).normal(0.1, 0.3, 2000)
    ends = mean_interval(values[:, None], np.ones(2000, np.int64))
    half = 1.96 * values.std() / np.sqrt(2000)
    assert ends is not None
    assert ends[0] == pytest.approx([values.mean() - half, values.mean() + half], abs=half * 0.05)


@pytest.mark.usefixtures("fewer_draws")
def test_repeated_rows_of_a_query_are_no_evidence() -> None:
    values = np.random.default_rng(3).normal(0.1, 0.3, 100)
    once = mean_interval(values[:, None], np.ones(100, np.int64))
    many = mean_interval(50 * values[:, None], np.full(100, 50))
    assert once is not None
    assert many == pytest.approx(once)


@pytest.mark.usefixtures("fewer_draws")
def test_columns_are_drawn_together_and_chunks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(3).normal(0.1, 0.3, 40)
    sizes = np.arange(1, 41)
    both = mean_interval(np.column_stack([values, 2 * values]), sizes)
    assert both is not None
    assert both[1] == pytest.approx(2 * both[0])
    monkeypatch.setattr(bootstrap, "CELLS", 1)  # a draw at a time
    assert mean_interval(np.column_stack([values, 2 * values]), sizes) == pytest.approx(both)


def test_it_is_the_same_every_time_and_needs_two_queries() -> None:
    values, sizes = np.array([[0.1], [0.4], [0.3]]), np.ones(3, np.int64)
    assert np.array_equal(mean_interval(values, sizes), mean_interval(values, sizes))
    assert mean_interval(values[:1], sizes[:1]) is None
    assert mean_interval(values[:0], sizes[:0]) is None

"""Bounds of what is only partly known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.plan.amounts import NOTHING, Amount, amount_text, exactly, of_others


@pytest.mark.parametrize("kind", ["even", "rare", "constant", "two values"])
@pytest.mark.parametrize(("sample", "rows"), [(10, 40), (64, 1_000), (500, 20)])
def test_the_others_are_within_the_bounds_as_often_as_is_said(kind: str, sample: int, rows: int) -> None:
    draw, most, inside, times = np.random.default_rng(5), 20, 0, 400
    for _ in range(times):
        values = {
            "even": lambda n: draw.integers(0, most + 1, n),
            "rare": lambda n: np.where(draw.random(n) < 0.02, most, 0),
            "constant": lambda n: np.full(n, 7),
            "two values": lambda n: draw.choice([3, 10], n),
        }[kind]
        found = of_others(values(sample).tolist(), rows, most)
        inside += found.low <= values(rows).sum() <= found.high
    assert inside >= 0.93 * times


@given(st.lists(st.integers(0, 9), max_size=30), st.floats(0, 50))
def test_bounds_are_in_order_and_possible(sample: list[int], rows: float) -> None:
    found = of_others(sample, rows, 9)
    assert 0 <= found.low <= found.expected <= found.high <= 9 * rows + 1e-9


def test_without_a_sample_it_is_all_or_nothing() -> None:
    assert of_others([], 4, 5) == of_others([3], 4, 5) == Amount(0, 20, 20)
    assert of_others([1, 2], 0, 5) == NOTHING


@pytest.mark.parametrize(
    ("amount", "said"),
    [(exactly(1234), "1,234"), (Amount(1000, 1200, 1300), "about 1,200 (1,000 to 1,300)"), (Amount(0.1, 0.2, 0.4), "0")],
)
def test_in_words(amount: Amount, said: str) -> None:
    assert amount_text(amount) == said

"""What the gate says of a query by the scores of its list, and thresholds that are quantiles."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewriters.scores.gate import GateSettings, decide, lead_of
from rewriters.scores.thresholds import Quantile, at_quantile, words_of

SCORES = st.lists(st.floats(-50, 50), max_size=5).map(lambda values: sorted(values, reverse=True))


@pytest.mark.parametrize(
    ("scores", "below", "lead", "sure", "words"),
    [
        ([14.0, 7.0], 12.0, None, True, "gate: bm25 is sure: best score 14 (at least 12)"),
        ([12.0], 12.0, None, True, "gate: bm25 is sure: best score 12 (at least 12)"),
        ([11.9, 1.0], 12.0, None, False, "gate: bm25 is not sure: best score 11.9 (below 12)"),
        ([10.0, 7.0], None, 0.3, True, "gate: bm25 is sure: lead 0.3 (at least 0.3)"),
        ([10.0, 8.0], None, 0.3, False, "gate: bm25 is not sure: lead 0.2 (below 0.3)"),
        ([4.0], None, 1.0, True, "gate: bm25 is sure: lead 1 (at least 1)"),
        ([14.0, 13.9], 12.0, 0.3, False, "gate: bm25 is not sure: lead 0.007143 (below 0.3)"),
        ([14.0, 7.0], 12.0, 0.3, True, "gate: bm25 is sure: best score 14 (at least 12), lead 0.5 (at least 0.3)"),
        ([], -1e9, None, False, "gate: bm25 finds nothing"),
    ],
)
def test_a_query_is_sure_where_all_that_is_set_holds(
    scores: list[float], below: float | None, lead: float | None, sure: bool, words: str
) -> None:
    assert decide("bm25", scores, below, lead) == (sure, words)


@given(SCORES, st.floats(-60, 60), st.floats(0.01, 1))
def test_more_asked_for_is_never_more_sure(scores: list[float], below: float, lead: float) -> None:
    both = decide("r", scores, below, lead).sure
    assert both == (decide("r", scores, below, None).sure and decide("r", scores, None, lead).sure)
    assert not decide("r", scores, below + 1, None).sure or decide("r", scores, below, None).sure


def test_a_lead_has_no_scale() -> None:
    assert lead_of([3.0, 2.0]) == pytest.approx(lead_of([30.0, 20.0]))
    assert lead_of([-1.0, -2.0]) > 0
    assert lead_of([0.0, -1.0]) == 0.0


@given(st.lists(st.floats(0, 100) | st.just(-math.inf), min_size=1, max_size=60), st.floats(0.01, 0.99))
def test_at_most_the_share_is_below_a_quantile(values: list[float], share: float) -> None:
    found = at_quantile(values, share)
    assert math.isfinite(found)
    hits = [value for value in values if math.isfinite(value)]
    without = len(values) - len(hits)
    below = sum(value < found for value in values)
    assert below <= max(share * len(values) + 1e-6, without)
    at_most = sum(value <= found for value in values)
    assert at_most >= min(share * len(values) - 1e-6, len(values))


def test_distinct_values_are_divided_exactly() -> None:
    assert at_quantile([5.0, 1.0, 4.0, 2.0, 3.0], 0.4) == 3.0
    assert at_quantile([-math.inf, -math.inf, 7.0], 0.5) == 7.0
    assert at_quantile([-math.inf], 0.5) == 0.0
    assert at_quantile([], 0.5) == 0.0


def test_a_threshold_is_a_number_or_a_quantile() -> None:
    settings = GateSettings.model_validate({"by": "bm25", "below": {"quantile": 0.3}, "lead": 0.5})
    assert settings.below == Quantile(quantile=0.3)
    assert words_of(settings.below) == "the 0.3 quantile of 500 queries"
    assert words_of(12.0) == "12"
    assert GateSettings.model_validate(settings.model_dump()) == settings

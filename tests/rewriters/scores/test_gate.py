"""What the gate says of a query by the scores of its list."""

from __future__ import annotations

import pytest

from rewriters.scores.gate import decide


@pytest.mark.parametrize(
    ("scores", "below", "sure", "words"),
    [
        ([14.0, 7.0], 12.0, True, "gate: bm25 is sure: best score 14 (at least 12)"),
        ([12.0], 12.0, True, "gate: bm25 is sure: best score 12 (at least 12)"),
        ([11.9, 1.0], 12.0, False, "gate: bm25 is not sure: best score 11.9 (below 12)"),
        ([], -1e9, False, "gate: bm25 finds nothing"),
    ],
)
def test_a_query_is_sure_from_the_threshold_on(scores: list[float], below: float, sure: bool, words: str) -> None:
    assert decide("bm25", scores, below) == (sure, words)

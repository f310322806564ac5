"""Click models on clicks that were drawn from a known one: what they find again, and what they cannot know."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import LogError
from jobs.clicks.interactions import Cells
from jobs.clicks.models import coec, estimate, position_based

Floats = npt.NDArray[np.float64]
PLACES, DOCUMENTS = 8, 8
EXAMINATION = 1 / np.arange(1, PLACES + 1) ** 0.9


def as_cells(shown: dict[tuple[int, int, int], int], clicked: dict[tuple[int, int, int], int]) -> Cells:
    """Cells of (query, document, place) -> counts."""
    keys = sorted(shown)
    pairs = sorted({key[:2] for key in keys})
    number = {pair: place for place, pair in enumerate(pairs)}
    return Cells(
        pa.table({"query_id": [f"{query:03d}" for query, _ in pairs], "doc_id": [f"{document:02d}" for _, document in pairs]}),
        np.array([number[key[:2]] for key in keys]),
        np.array([key[2] for key in keys]),
        np.array([shown[key] for key in keys], float),
        np.array([clicked.get(key, 0) for key in keys], float),
    )


def drawn(seed: int, queries: int, searches: int, luck: float, jitter: float = 0.15) -> tuple[Cells, Floats]:
    """Clicks of a position-based model, and the relevance of each pair.

    The ranking follows relevance plus `luck`, which stays the same for a document, and `jitter`, which is drawn anew.
    """
    random = np.random.default_rng(seed)
    relevance = random.beta(1, 3, (queries, DOCUMENTS))
    scores = relevance + random.normal(0, luck, relevance.shape)
    shown, clicked = Counter[tuple[int, int, int]](), Counter[tuple[int, int, int]]()
    for query in range(queries):
        order = np.argsort(-(scores[query] + random.normal(0, jitter, (searches, DOCUMENTS))), axis=1)[:, :PLACES]
        clicks = random.random(order.shape) < EXAMINATION * relevance[query][order]
        for place in range(PLACES):
            for document, click in zip(order[:, place].tolist(), clicks[:, place].tolist(), strict=True):
                shown[query, document, place + 1] += 1
                clicked[query, document, place + 1] += click
    cells = as_cells(shown, clicked)
    pairs = cells.pairs.to_pylist()
    return cells, np.array([relevance[int(pair["query_id"]), int(pair["doc_id"])] for pair in pairs])


def rate(cells: Cells) -> Floats:
    """Clicks by impressions, whatever the place."""
    return np.bincount(cells.pair, cells.clicked) / np.bincount(cells.pair, cells.shown)


def tau(a: Floats, b: Floats) -> float:
    """Kendall's tau-a."""
    first, second = np.triu_indices(len(a), 1)
    return float(np.mean(np.sign(a[first] - a[second]) * np.sign(b[first] - b[second])))


def agreement(cells: Cells, found: Floats, truth: Floats) -> float:
    """Kendall's tau with the truth, the mean of all queries."""
    query = np.array(cells.pairs.column("query_id").to_pylist())
    return float(np.mean([tau(found[query == one], truth[query == one]) for one in np.unique(query)]))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_where_place_says_little_of_relevance_documents_are_ordered_better_than_by_click_rate(seed: int) -> None:
    cells, truth = drawn(seed, 60, 200, luck=0.5)
    by_rate = agreement(cells, rate(cells), truth)
    assert agreement(cells, position_based(cells).relevance, truth) > by_rate + 0.05
    assert agreement(cells, coec(cells).relevance, truth) > by_rate


@pytest.mark.parametrize(("seed", "luck"), [(1, 0.5), (2, 0.5), (1, 0.2), (2, 0.2)])
def test_propensities_and_attractiveness_are_recovered(seed: int, luck: float) -> None:
    cells, truth = drawn(seed, 150, 200, luck)
    found = position_based(cells)
    assert found.converged
    assert found.propensity == pytest.approx(EXAMINATION, abs=0.06)
    mean = float(np.average(truth, weights=np.bincount(cells.pair, cells.shown)))
    error = np.sqrt(np.mean((found.relevance * mean - truth) ** 2))
    assert error < 0.75 * np.sqrt(np.mean((rate(cells) - truth) ** 2))
    assert found.examined == pytest.approx(np.bincount(cells.pair, cells.shown * found.propensity[cells.rank - 1]))


def test_pairs_that_are_shown_seldom_do_not_bias_propensities() -> None:
    cells, _ = drawn(4, 2500, 8, luck=0.5)
    assert np.median(np.bincount(cells.pair, cells.shown)) == 8
    assert position_based(cells).propensity == pytest.approx(EXAMINATION, abs=0.06)


def test_clicks_by_place_are_those_expected_of_each_pair() -> None:
    cells, _ = drawn(4, 40, 60, luck=0.3)
    found = position_based(cells)
    clicks = np.bincount(cells.pair, cells.clicked)
    share = cells.shown * found.propensity[cells.rank - 1] / found.examined[cells.pair]
    expected = np.bincount(cells.rank, clicks[cells.pair] * share)
    assert expected == pytest.approx(np.bincount(cells.rank, cells.clicked), rel=1e-3)


def test_clicks_over_expected_clicks_by_hand() -> None:
    # place 1: 30 of 100 clicked, place 2: 10 of 100, so it is looked at a third as often; 40 clicks on 400 / 3 examined
    # impressions are 0.3 on one, and each pair is given one
    shown = {(0, 0, 1): 60, (0, 1, 2): 60, (1, 0, 1): 40, (1, 1, 2): 40}
    clicked = {(0, 0, 1): 24, (0, 1, 2): 3, (1, 0, 1): 6, (1, 1, 2): 7}
    found = coec(as_cells(shown, clicked))
    expected = [(24 + 0.3) / 61, (3 + 0.3) / 21, (6 + 0.3) / 41, (7 + 0.3) / (40 / 3 + 1)]
    assert found.relevance == pytest.approx([one / 0.3 for one in expected])
    assert found.propensity == pytest.approx([1, 1 / 3])
    assert found.examined == pytest.approx([60, 20, 40, 40 / 3])


def test_the_model_refuses_to_guess_where_no_document_moves() -> None:
    cells = as_cells({(0, 0, 1): 9, (0, 1, 2): 9, (1, 1, 1): 9, (1, 0, 2): 9}, {(0, 0, 1): 3, (0, 1, 2): 2})
    with pytest.raises(LogError, match="no document of a query was clicked and shown at two places") as error:
        estimate(cells, "pbm")
    assert error.value.code == "log-clicks"
    assert "--model coec" in str(error.value)
    assert not np.isnan(estimate(cells, "coec").relevance).any()


def test_places_that_no_document_connects_are_left_out() -> None:
    # document 0 links the places 1 and 2, document 1 the places 5 and 6, which were shown less
    shown = {(0, 0, 1): 50, (0, 0, 2): 50, (0, 1, 5): 20, (0, 1, 6): 20, (0, 2, 3): 90}
    clicked = {(0, 0, 1): 20, (0, 0, 2): 10, (0, 1, 5): 5, (0, 1, 6): 4, (0, 2, 3): 9}
    found = position_based(as_cells(shown, clicked))
    assert np.isnan(found.propensity).tolist() == [False, False, True, True, True, True]
    assert found.propensity[:2] == pytest.approx([1, 0.5], abs=0.02)
    assert np.isnan(found.relevance).tolist() == [False, True, True]
    assert found.examined[1:].tolist() == [0, 0]


@st.composite
def some_cells(draw: st.DrawFn) -> Cells:
    keys = draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=20, unique=True)
    )
    counts = {key: draw(st.integers(1, 30)) for key in keys}
    clicks = {key: draw(st.integers(0, count)) for key, count in counts.items()}
    return as_cells(counts, clicks | ({} if any(clicks.values()) else {keys[0]: 1}))


@settings(max_examples=60, deadline=None)
@given(some_cells())
def test_estimates_are_numbers_in_their_ranges(cells: Cells) -> None:
    for model in (position_based, coec):
        try:
            found = model(cells)
        except LogError:
            continue
        known = ~np.isnan(found.relevance)
        assert (found.relevance[known] >= 0).all()
        assert np.isfinite(found.relevance[known]).all()
        assert (found.examined >= 0).all()
        assert (found.examined[~known] == 0).all()
        assert found.propensity[np.argmax(~np.isnan(found.propensity))] == pytest.approx(1)

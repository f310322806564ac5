"""How many pairs are scored: the rules against brute force, and what they may not go by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from retrievers.order import order
from retrievers.ranking import encode, offsets_of
from retrievers.rerankers.budget import PairBudget, WantedPairs, budget_of, scored_pairs
from retrievers.settings import RerankSettings
from tests.support.retrievers.order_oracle import combine


class Drawn:
    """The candidates of some queries with scores, ties among them, by a seed."""

    def __init__(self, seed: int, most: int = 30) -> None:
        self.random = random = np.random.default_rng(seed)
        self.lengths = random.integers(0, most + 1, 6)
        self.offsets = offsets_of(self.lengths)
        numbers = [f"d{number:02d}" for length in self.lengths for number in random.permutation(90)[:length]]
        self.doc_ids = pa.array(numbers, pa.string())
        self.documents = encode(self.doc_ids)[0]
        fused = np.concatenate([np.arange(length) for length in self.lengths])
        alike = random.random()  # how much the reranker thinks as fusion does
        scores = (1 - alike) * random.normal(size=len(fused)) - alike * fused / 4
        self.scores = np.round(scores, int(random.integers(0, 3)))

    def first(self, query: int, pairs: int, how: str, keep: int) -> list[str]:
        """The first results of a query of which so many pairs are scored."""
        part = slice(self.offsets[query], self.offsets[query] + pairs)
        best = order(np.array([0, pairs]), self.doc_ids[part], self.scores[part], how, keep)
        return self.doc_ids[part].take(pa.array(best.places)).to_pylist()

    def pairs(self, budget: PairBudget) -> list[int]:
        return scored_pairs(self.lengths, self.documents, self.scores, budget).tolist()


@pytest.mark.parametrize("seed", range(60))
def test_what_is_proven_are_the_first_results_in_their_order(seed: int) -> None:
    drawn = Drawn(seed)
    keep = int(drawn.random.integers(1, 5))
    most = int(drawn.random.integers(keep, 32))
    budget = PairBudget(most, keep, "blend", proven=True, step=int(drawn.random.integers(1, 6)))
    for query, pairs in enumerate(drawn.pairs(budget)):
        every = min(most, int(drawn.lengths[query]))
        assert pairs <= every
        assert drawn.first(query, pairs, "blend", keep) == drawn.first(query, every, "blend", keep)


def test_something_is_proven_before_the_end() -> None:
    budget = PairBudget(50, 1, "blend", proven=True)
    lengths = np.array([50])
    agrees = -np.arange(50.0)  # the reranker orders as fusion does
    assert scored_pairs(lengths, np.arange(50), agrees, budget).tolist() == [26]


def completions(scored: Sequence[float], more: int) -> Iterator[list[float]]:
    """All that the other pairs may score, but for ties: each places itself between two of the ranking."""
    if not more:
        yield list(scored)
        return
    levels = sorted(set(scored))
    between = [levels[0] - 1, *((a + b) / 2 for a, b in pairwise(levels)), levels[-1] + 1]
    for one in between:
        yield from completions([*scored, one], more - 1)


def outcomes(ids: Sequence[str], scored: Sequence[float], keep: int) -> set[tuple[int, ...]]:
    """The first results, by their fused places, under all scores of the other pairs."""
    fused, place = [0.0] * len(ids), {doc_id: number for number, doc_id in enumerate(ids)}
    return {
        tuple(place[one.doc_id] for one in combine(ids, fused, scores, "blend", keep))
        for scores in completions(scored, len(ids) - len(scored))
    }


@pytest.mark.parametrize("seed", range(40))
def test_it_stops_where_no_scores_of_the_others_change_anything_and_nowhere_else(seed: int) -> None:
    random = np.random.default_rng(seed)
    size, keep = int(random.integers(4, 9)), 1 + seed % 2
    ids = [f"d{number}" for number in random.permutation(9)[:size]]
    scores = np.round(-np.arange(size) / 3 * random.random() + random.normal(size=size) * random.random(), 6)
    documents = encode(pa.array(ids))[0]
    (pairs,) = scored_pairs(np.array([size]), documents, scores, PairBudget(size, keep, "blend", proven=True)).tolist()
    assert pairs >= max(keep, size - 4)  # more would take long to enumerate
    assert len(outcomes(ids, scores[:pairs].tolist(), keep)) == 1
    mirrored = [f"d{9 - int(doc_id[1:])}" for doc_id in ids]  # by which equal blends are the other way round
    for scored in range(max(keep, size - 4), pairs):
        known = scores[:scored].tolist()
        assert len(outcomes(ids, known, keep) | outcomes(mirrored, known, keep)) > 1, f"nothing is open after {scored}"


def settled(drawn: Drawn, query: int, budget: PairBudget) -> int:
    """The pairs of a query by the rule's words: look, and stop where the last ones brought nothing."""
    assert budget.settled is not None
    every = min(budget.pairs, int(drawn.lengths[query]))
    scored = min(every, budget.keep + budget.settled)
    while scored < every:
        begin = int(drawn.offsets[query])
        late = set(drawn.doc_ids[begin + scored - budget.settled : begin + scored].to_pylist())
        if late.isdisjoint(drawn.first(query, scored, budget.combine, budget.keep)):
            break
        scored = min(every, scored + budget.step)
    return scored


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("how", ["blend", "replace"])
def test_settled_stops_where_the_last_pairs_brought_nothing_into_the_first_results(seed: int, how: str) -> None:
    drawn = Drawn(seed)
    keep, after, step = (int(drawn.random.integers(1, 6)) for _ in range(3))
    budget = PairBudget(int(drawn.random.integers(keep, 32)), keep, how, settled=after, step=step)
    assert drawn.pairs(budget) == [settled(drawn, query, budget) for query in range(len(drawn.lengths))]


@pytest.mark.parametrize(
    "budget", [PairBudget(20, 3, "blend", settled=2, step=2), PairBudget(20, 2, "blend", proven=True), PairBudget(7)]
)
def test_scores_of_other_pairs_change_nothing(budget: PairBudget) -> None:
    drawn = Drawn(7)
    pairs = drawn.pairs(budget)
    unknown = drawn.scores.copy()
    for query, scored in enumerate(pairs):
        unknown[drawn.offsets[query] + scored : drawn.offsets[query + 1]] = np.nan
    assert scored_pairs(drawn.lengths, drawn.documents, unknown, budget).tolist() == pairs


def test_it_grows_look_by_look_and_each_query_by_itself() -> None:
    budget = PairBudget(12, 2, "replace", settled=2, step=3)
    lengths, scores = np.array([12, 12, 3, 0]), np.concatenate([-np.arange(12.0), np.arange(12.0), np.zeros(3)])
    pairs = WantedPairs(lengths, np.arange(27), budget)
    wanted = [pairs.wanted.tolist()]
    while pairs.grow(scores):
        wanted.append(pairs.wanted.tolist())
    assert wanted == [[4, 4, 3, 0], [4, 7, 3, 0], [4, 10, 3, 0], [4, 12, 3, 0]]


def test_a_query_with_a_score_that_is_none_is_scored_to_the_end() -> None:
    scores = np.array([5.0, np.nan, 3, 2, 1, 0])
    for budget in (PairBudget(6, 1, "blend", settled=1), PairBudget(6, 1, "blend", proven=True)):
        assert scored_pairs(np.array([6]), np.arange(6), scores, budget).tolist() == [6]


def budget(candidates: int = 50, **changes: Any) -> PairBudget | None:
    return budget_of(RerankSettings.model_validate(changes), candidates)


def test_what_a_config_asks_for() -> None:
    assert budget() == PairBudget(50)
    assert budget(kind="none") is None
    assert budget(budget={"pairs": 20}) == PairBudget(20)
    assert budget(candidates=15, budget={"pairs": 20}) == PairBudget(15)
    assert budget(keep=5, budget={"settled": 8}) == PairBudget(50, 5, "blend", 8, False, 5)
    assert budget(candidates=3, budget={"proven": True, "step": 2}) == PairBudget(3, 3, "blend", None, True, 2)
    assert not PairBudget(50).stops
    assert not PairBudget(10, 5, "blend", settled=5).stops  # there is nothing to look at before the end
    assert PairBudget(11, 5, "blend", settled=5).stops


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"budget": {}}, "says nothing"),
        ({"budget": {"pairs": 20, "step": 2}}, "step is of settled and proven"),
        ({"budget": {"pairs": 9}}, "fewer than the results"),
        ({"budget": {"proven": True}, "combine": "replace"}, "any other pair could still come first"),
    ],
)
def test_a_budget_that_means_nothing_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        RerankSettings.model_validate(changes)

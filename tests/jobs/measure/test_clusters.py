"""Clusters of near-duplicate queries, against all pairs compared by hand."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.measure.clusters import SIMILARITY, query_clusters


def by_all_pairs(texts: list[str]) -> list[set[int]]:
    sets = [set(text.split()) for text in texts]
    groups = [{n} for n in range(len(texts))]
    for one, other in itertools.combinations(range(len(texts)), 2):
        union = sets[one] | sets[other]
        if not union or 10 * len(sets[one] & sets[other]) >= round(10 * SIMILARITY) * len(union):
            first, second = (next(group for group in groups if n in group) for n in (one, other))
            if first is not second:
                groups.remove(second)
                first |= second
    return groups


def groups_of(numbers: np.ndarray) -> list[set[int]]:
    return [set(np.flatnonzero(numbers == n).tolist()) for n in range(int(numbers.max(initial=-1)) + 1)]


@given(st.lists(st.lists(st.sampled_from("abcdefghij"), max_size=9).map(" ".join), max_size=25))
def test_they_are_those_of_all_pairs(texts: list[str]) -> None:
    found = query_clusters(texts)
    assert len(found) == len(texts)
    assert sorted(map(sorted, groups_of(found))) == sorted(map(sorted, by_all_pairs(texts)))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("red lamp", "lamp red", True),
        ("red lamp?", "red, lamp", True),
        ("red lamp", "red lamps", False),
        ("red lamp", "red lamp price", False),
        ("a b c d", "a b c d e", True),
        ("a b c d", "a b c e", False),
        ("a b c d e f g h i", "a b c d e f g h j", True),
        ("東京の天気", "天気の東京", True),
        ("東京の天気", "大阪の天気", False),
        ("?", "!", False),
        ("?", "?", True),
    ],
)
def test_what_is_a_near_duplicate(one: str, other: str, same: bool) -> None:
    found = query_clusters([one, other])
    assert (found[0] == found[1]) == same


def test_a_long_log_takes_seconds() -> None:
    made = np.random.default_rng(1)
    words = np.array([f"w{n}" for n in range(4000)])
    chances = 1 / np.arange(1, 4001)
    chosen = made.choice(words, (8000, 8), p=chances / chances.sum())
    lengths = made.integers(1, 9, 8000)
    began = time.process_time()
    found = query_clusters([" ".join(row[:length]) for row, length in zip(chosen, lengths, strict=True)])
    assert 3000 < found.max() < 8000
    assert time.process_time() - began < 8

"""Candidates whose text another one has."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from retrievers.corpora.duplicates import without_duplicates
from retrievers.fusion import Fused


def fused(texts: list[list[str]]) -> Fused:
    """Returns the candidates of some queries, by their texts; candidate i has i % 3 sources."""
    sizes = [len(one) for one in texts]
    n = sum(sizes)
    sources = np.cumsum([0, *(place % 3 for place in range(n))])
    return Fused(
        np.cumsum([0, *sizes]), pa.array([f"d{place}" for place in range(n)], pa.string()), np.arange(n, 0, -1.0), sources,
        np.arange(sources[-1]), np.arange(sources[-1]), np.arange(sources[-1], dtype=float), np.zeros(len(texts), bool),
        np.zeros(len(texts), bool), np.arange(n),
    )  # fmt: skip


@given(st.lists(st.lists(st.sampled_from(["a b", "A  b", "a c", "", "d"]), max_size=6), max_size=4), st.sampled_from([None, 1]))
def test_the_best_of_each_text_stays_with_its_sources(texts: list[list[str]], chars: int | None) -> None:
    before = fused(texts)
    after = without_duplicates(before, [text for of_query in texts for text in of_query], chars)
    place = 0
    wanted: list[list[int]] = []
    for of_query in texts:
        first: dict[str, int] = {}
        for text in of_query:
            first.setdefault(" ".join(text.lower().split())[:chars], place)
            place += 1
        wanted.append(list(first.values()))
    assert [list(range(*after.offsets[i : i + 2])) for i in range(len(texts))] == [
        list(range(sum(map(len, wanted[:i])), sum(map(len, wanted[: i + 1])))) for i in range(len(texts))
    ]
    flat = [one for of_query in wanted for one in of_query]
    assert after.doc_ids.to_pylist() == [f"d{one}" for one in flat]
    assert after.scores.tolist() == [float(len(before.scores) - one) for one in flat]
    for number, one in enumerate(flat):
        kept = after.source_list[after.source_offsets[number] : after.source_offsets[number + 1]]
        assert kept.tolist() == list(range(before.source_offsets[one], before.source_offsets[one + 1]))

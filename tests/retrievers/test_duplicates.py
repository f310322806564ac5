"""Candidates whose text another one has: the next ones move up."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrievers.corpora.duplicates import fuse_distinct
from retrievers.fusion import Fused, fuse
from retrievers.lists import Hits, Lists, by_document
from retrievers.settings import FuseSettings


def hits_of(lists: list[tuple[int, str, list[str]]], queries: int) -> Hits:
    """Lists of a query by a strategy, of falling scores."""
    sizes = [len(ids) for _, _, ids in lists]
    return by_document(
        Lists(
            np.array([query for query, _, _ in lists], dtype=np.int64), pa.array([name for _, name, _ in lists], pa.string()),
            np.ones(len(lists), dtype=np.int32), pa.array(["bm25"] * len(lists), pa.string()),
            np.zeros(len(lists), dtype=np.int64), np.ones(len(lists)), np.ones(len(lists)), np.cumsum([0, *sizes]),
            pa.array([doc_id for _, _, ids in lists for doc_id in ids], pa.string()),
            np.array([100.0 - rank for size in sizes for rank in range(size)]),
        ),
        queries,
    )  # fmt: skip


def ids_of(hits: Hits, pairs: np.ndarray) -> list[str]:
    """The doc_ids of pairs."""
    return hits.doc_ids.take(pa.array(hits.pair_document[pairs])).to_pylist()


def listed(found: Fused) -> list[list[tuple[str, float]]]:
    flat = list(zip(found.doc_ids.to_pylist(), found.scores.tolist(), strict=True))
    return [flat[begin:end] for begin, end in pairwise(found.offsets.tolist())]


def test_a_list_of_one_passage_many_times_gives_as_many_candidates_as_there_are_texts() -> None:
    copies, others = [f"c{n:02d}" for n in range(60)], [f"o{n:02d}" for n in range(40)]
    hits = hits_of([(0, "original", copies + others)], 1)
    read: list[str] = []

    def texts(pairs: np.ndarray) -> list[str]:
        doc_ids = ids_of(hits, pairs)
        read.extend(doc_ids)
        return ["The same  Passage" if one.startswith("c") else one for one in doc_ids]

    settings = FuseSettings(depth=100, keep=30, duplicates="drop", redundancy="none")
    (found,) = listed(fuse_distinct(hits, settings, None, texts))
    assert [doc_id for doc_id, _ in found] == ["c00", *others[:29]]
    assert len(read) == len(set(read)) == 89  # no further than it takes


@given(
    st.lists(st.tuples(st.integers(0, 2), st.permutations([f"d{n}" for n in range(9)]), st.integers(0, 9)), max_size=6),
    st.lists(st.sampled_from(["a b", "A  b", "a c", "", "d"]), min_size=9, max_size=9),
    st.sampled_from([None, 1]),
    st.integers(1, 9),
    st.sampled_from(["rrf", "minmax", "best"]),
)
def test_it_is_the_cut_of_all_candidates_of_different_texts(
    given: list[tuple[int, list[str], int]], words: list[str], chars: int | None, keep: int, method: str
) -> None:
    hits = hits_of([(query, f"s{number}", ids[:size]) for number, (query, ids, size) in enumerate(given)], 3)
    text = {f"d{n}": word for n, word in enumerate(words)}
    settings = FuseSettings.model_validate(
        {"method": method, "keep": keep, "duplicates": "drop", "duplicate_chars": chars, "redundancy": "none"}
    )
    found = fuse_distinct(hits, settings, None, lambda pairs: [text[one] for one in ids_of(hits, pairs)])
    whole = fuse(hits, settings.model_copy(update={"keep": 99}))
    for mine, every in zip(listed(found), listed(whole), strict=True):
        first: dict[str, tuple[str, float]] = {}
        for doc_id, score in every:
            first.setdefault(" ".join(text[doc_id].lower().split())[:chars], (doc_id, score))
        assert mine == list(first.values())[:keep]
        if method == "best":  # of its documents the best score
            of = dict(every)
            for doc_id, score in mine:
                same = [
                    one
                    for one in of
                    if " ".join(text[one].lower().split())[:chars] == " ".join(text[doc_id].lower().split())[:chars]
                ]
                assert score == max(of[one] for one in same)
    all_sources = _sources(whole)
    assert _sources(found) == {pair: all_sources[pair] for pair in found.pairs.tolist()}


def _sources(fused: Fused) -> dict[int, list[tuple[int, int]]]:
    flat = list(zip(fused.source_list.tolist(), fused.source_rank.tolist(), strict=True))
    return {
        pair: flat[begin:end]
        for pair, (begin, end) in zip(fused.pairs.tolist(), pairwise(fused.source_offsets.tolist()), strict=True)
    }


def test_no_query_and_no_hit() -> None:
    settings = FuseSettings(duplicates="drop")
    assert listed(fuse_distinct(hits_of([], 2), settings, None, list)) == [[], []]
    with pytest.raises(KeyError):
        fuse_distinct(hits_of([(0, "original", ["d"])], 1), settings, None, lambda ids: [{}[one] for one in ids])

"""Documents with one text under several ids are one candidate."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrievers.fusion import Fused, fuse, fuse_distinct
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


def test_twins_that_two_lists_found_have_the_ranks_of_both() -> None:
    """As one document under one id: .0325 in place of the .0164 of the better of the two."""
    settings = FuseSettings(method="rrf", duplicates="drop", redundancy="none")
    lists = [(0, "general", ["a", "x", "b"]), (0, "keyword", ["y", "b", "c"])]
    hits = hits_of(lists, 1)
    text = {"a": "The Text", "b": "the  text"}
    (found,) = listed(
        fuse_distinct(hits, settings, None, lambda alone: [text.get(one, one) for one in ids_of(hits, alone.pairs)])
    )
    # b alone stands best, in two lists; of the first list the rank of a counts
    assert found == [("b", pytest.approx(1 / 61 + 1 / 62)), ("y", pytest.approx(1 / 61)), ("x", pytest.approx(1 / 62)),
                     ("c", pytest.approx(1 / 63))]  # fmt: skip


@given(
    st.lists(st.tuples(st.integers(0, 2), st.permutations([f"d{n}" for n in range(9)]), st.integers(0, 9)), max_size=6),
    st.lists(st.sampled_from(["a b", "A  b", "a c", "", "d"]), min_size=9, max_size=9),
    st.sampled_from([None, 1]),
    st.integers(1, 9),
    st.sampled_from(["rrf", "minmax", "best"]),
)
def test_it_is_the_fusion_of_lists_in_which_twins_have_one_id(
    given: list[tuple[int, list[str], int]], words: list[str], chars: int | None, keep: int, method: str
) -> None:
    lists = [(query, f"s{number}", ids[:size]) for number, (query, ids, size) in enumerate(given)]
    hits = hits_of(lists, 3)
    text = {f"d{n}": " ".join(word.lower().split())[:chars] for n, word in enumerate(words)}
    settings = FuseSettings.model_validate(
        {"method": method, "keep": keep, "duplicates": "drop", "duplicate_chars": chars, "redundancy": "none", "depth": 6}
    )
    found = fuse_distinct(hits, settings, None, lambda alone: [words[int(one[1:])] for one in ids_of(hits, alone.pairs)])
    best: list[dict[str, str]] = [{}, {}, {}]  # of each query: text -> the id that stands best
    for of_query, every in zip(best, listed(fuse(hits, settings.model_copy(update={"keep": 99}))), strict=True):
        for doc_id, _ in every:
            of_query.setdefault(text[doc_id], doc_id)
    renamed = hits_of([(query, name, [best[query][text[one]] for one in ids[:6]]) for query, name, ids in lists], 3)
    due = fuse(renamed, settings)
    assert listed(found) == listed(due)
    assert _sources(found) == _sources(due)
    assert ids_of(hits, found.pairs) == found.doc_ids.to_pylist()


def _sources(fused: Fused) -> list[tuple[int, int, float]]:
    return list(zip(fused.source_list.tolist(), fused.source_rank.tolist(), fused.source_score.tolist(), strict=True))


def test_no_query_and_no_hit() -> None:
    settings = FuseSettings(duplicates="drop")
    assert listed(fuse_distinct(hits_of([], 2), settings, None, lambda alone: [])) == [[], []]
    with pytest.raises(KeyError):
        fuse_distinct(
            hits_of([(0, "original", ["d"])], 1), settings, None, lambda alone: [{}[one] for one in alone.pairs.tolist()]
        )

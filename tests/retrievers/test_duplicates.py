"""Documents with one text under several ids are one candidate."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from retrievers.fusion import fuse, fuse_distinct
from retrievers.lists import Hits, by_document
from retrievers.settings import FuseSettings
from tests.support.retrievers.fusion_oracle import Query, RunList, as_lists, as_values

IDS = [f"d{n}" for n in range(9)]
QUERIES = 3


def hits_of(queries: list[Query]) -> Hits:
    return by_document(as_lists(queries), len(queries))


def ids_of(hits: Hits, pairs: np.ndarray) -> list[str]:
    """The doc_ids of pairs."""
    return hits.doc_ids.take(pa.array(hits.pair_document[pairs])).to_pylist()


@given(
    st.lists(st.tuples(st.integers(0, QUERIES - 1), st.permutations(IDS), st.integers(0, 9)), max_size=6),
    st.lists(st.sampled_from(["a b", "A  b", "a c", "", "d"]), min_size=9, max_size=9),
    st.sampled_from([None, 1]),
    st.integers(1, 9),
    st.sampled_from(["rrf", "minmax", "best"]),
)
def test_it_is_the_fusion_of_lists_in_which_twins_have_one_id(
    lists: list[tuple[int, list[str], int]], words: list[str], chars: int | None, keep: int, method: str
) -> None:
    queries: list[Query] = [([], None) for _ in range(QUERIES)]
    for number, (query, ids, size) in enumerate(lists):
        queries[query][0].append(RunList(f"s{number}", 1, "bm25", ids[:size], [100.0 - rank for rank in range(size)]))
    runs = [run for of_query, _ in queries for run in of_query]
    hits, text = hits_of(queries), dict(zip(IDS, words, strict=True))
    settings = FuseSettings.model_validate(
        {"method": method, "keep": keep, "duplicates": "drop", "duplicate_chars": chars, "redundancy": "none", "depth": 6}
    )
    found = fuse_distinct(hits, settings, None, lambda alone: [text[one] for one in ids_of(hits, alone.pairs)])
    every = as_values(runs, fuse(hits, settings.model_copy(update={"keep": 99})), "")
    compared = {doc_id: " ".join(one.lower().split())[:chars] for doc_id, one in text.items()}
    renamed: list[Query] = []
    for (of_query, _), fused in zip(queries, every, strict=True):
        best: dict[str, str] = {}  # text -> the id that stands best
        for candidate in fused.candidates:
            best.setdefault(compared[candidate.doc_id], candidate.doc_id)
        ids_left = [[best[compared[one]] for one in run.doc_ids[:6]] for run in of_query]
        renamed.append(
            ([run._replace(doc_ids=ids, scores=run.scores[:6]) for run, ids in zip(of_query, ids_left, strict=True)], None)
        )
    assert as_values(runs, found, "") == as_values(runs, fuse(hits_of(renamed), settings), "")
    assert ids_of(hits, found.pairs) == found.doc_ids.to_pylist()

"""Whose text a page of the web has after fusing, against plain loops."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cluster.costs import entry
from tests.support.jobs.workers import fuser, retrieved, rewrite

Row = dict[str, Any]
STRATEGIES = ["general", "keyword"]
TEXTS = [("original", 1), ("general", 1), ("general", 2), ("keyword", 1)]
WEB, INDEX = "r", "bm25"  # names of retrievers; those of lists with pages are of the web


def text_of(strategy: str, position: int, doc_id: str) -> str:
    """What is said of a page where a text was searched; of some the same for several texts."""
    return f"{doc_id} {'as ever' if doc_id in 'ab' and position == 1 else (strategy, position)}"


@st.composite
def queries(draw: st.DrawFn) -> Row:
    """A row as retrieval hands it on: lists of an index and of the web."""
    weights = {"original": 1.0} | {name: draw(st.sampled_from([0.0, 1.0])) for name in STRATEGIES}
    runs, pages = [], []
    for number, (strategy, position) in enumerate(TEXTS):
        for retriever in (WEB, INDEX):
            if not draw(st.booleans()):
                continue
            ids = draw(st.lists(st.sampled_from("abcdef"), unique=True, max_size=5))
            found = ids if retriever == WEB else [f"i{one}" for one in ids]
            for rank, doc_id in enumerate(found if retriever == WEB else (), start=1):
                said = text_of(strategy, position, doc_id)
                pages.append({"list": len(runs), "rank": rank, "doc_id": doc_id, "url": doc_id, "title": "", "text": said})
            hits = [{"doc_id": doc_id, "score": 10.0 - rank} for rank, doc_id in enumerate(found)]
            runs.append(
                {"strategy": strategy, "position": position, "retriever": retriever, "hits": hits, "text": number,
                 "weight": weights[strategy], "position_weight": 1.0}
            )  # fmt: skip
    written = [rewrite(strategy, weight=weights[strategy], position=position) for strategy, position in TEXTS[1:]]
    return {
        "query_id": "q", "query": "q", "costs": [entry("retrieve", "bm25", 1.0, start=1)], "rewrites": written, "runs": runs,
        "similarity": None, "web": pages,
    }  # fmt: skip


def wanted(row: Row, doc_id: str, depth: int) -> str | None:
    """The text of a document by the rule: of the original's list, else by strategy and position; None: of an index."""
    lists = sorted(row["runs"], key=lambda run: (run["strategy"] != "original", run["strategy"], run["position"]))
    for run in lists:
        used = run["strategy"] == "original" or run["weight"] > 0
        if run["retriever"] == WEB and used and doc_id in [hit["doc_id"] for hit in run["hits"][:depth]]:
            return text_of(run["strategy"], run["position"], doc_id)
    return None


@given(st.lists(queries(), min_size=1, max_size=3), st.integers(1, 5), st.sampled_from(["rrf", "minmax"]))
def test_a_page_has_the_text_of_the_first_list_that_takes_part(rows: list[Row], depth: int, method: str) -> None:
    fused = fuser(STRATEGIES, depth=depth, method=method, redundancy="none")(retrieved(*rows)).to_pylist()
    for row, found in zip(rows, fused, strict=True):
        documents = {one["doc_id"]: one["web"] for one in found["documents"]}
        assert len(documents) == len(found["documents"])
        for doc_id, place in documents.items():
            text = wanted(row, doc_id, depth)
            assert (None if place is None else found["web"][place]["text"]) == text
            assert place is None or found["web"][place]["doc_id"] == doc_id
        assert len(found["web"]) == sum(place is not None for place in documents.values())  # what nobody needs is dropped

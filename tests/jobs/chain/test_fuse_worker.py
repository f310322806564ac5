"""The fusing worker against fusion by plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.costs import entry
from jobs.measure.judged_rows import fuse_original
from jobs.tables import STORED
from retrievers.settings import FuseSettings
from tests.support.jobs.workers import fuser, plain, retrieved
from tests.support.jobs.workers import rewrite as text_of
from tests.support.retrievers.fusion_oracle import Candidate, RunList, Similarity, Source
from tests.support.retrievers.fusion_oracle import plain as by_loops

Row = dict[str, Any]
Hits = list[tuple[str, float]]

_NO_FORMULA = {
    "duplicates", "duplicate_chars", "keep_candidates", "original_floor"
}  # fmt: skip


def run(strategy: str, retriever: str, hits: Hits, position: int = 1) -> Row:
    found = [{"doc_id": doc_id, "score": score} for doc_id, score in hits]
    return {"strategy": strategy, "position": position, "retriever": retriever, "hits": found}


def rewrite(strategy: str, weight: float = 1.0, position_weight: float = 1.0) -> Row:
    return text_of(strategy, weight=weight, position_weight=position_weight)


def query(query_id: str, rewrites: list[Row], runs: list[Row], cosines: list[list[float]] | None = None) -> Row:
    """A row; its lists get the index and the weights of their texts, as the retrieval stage gives them."""
    texts: list[Row] = [rewrite("original"), *rewrites]
    place = {(one["strategy"], one["position"]): number for number, one in enumerate(texts)}
    runs = [
        {"text": number, "weight": texts[number]["weight"], "position_weight": texts[number]["position_weight"]} | one
        for one in runs for number in [place.get((one["strategy"], one["position"]), 0)]
    ]  # fmt: skip
    return {
        "query_id": query_id, "query": "q", "costs": [entry("retrieve", "bm25", 1.0, start=1)], "rewrites": rewrites,
        "runs": runs, "similarity": None if cosines is None else [value for row in cosines for value in row],
    }  # fmt: skip


def by_hand(row: Row, **options: Any) -> list[Candidate]:
    """The candidates of one row, from plain lists."""
    lists = [
        RunList(one["strategy"], 1, one["retriever"], [hit["doc_id"] for hit in one["hits"]],
                [hit["score"] for hit in one["hits"]], one["weight"], one["position_weight"])
        for one in row["runs"]
    ]  # fmt: skip
    similarity = None
    if row["similarity"] is not None:
        texts = [("original", 1), *((one["strategy"], 1) for one in row["rewrites"])]
        similarity = Similarity(texts, np.array(row["similarity"], dtype=np.float32).reshape(len(texts), len(texts)))
    return by_loops(lists, **FuseSettings(**options).model_dump(exclude=_NO_FORMULA), similarity=similarity).candidates


def candidates(row: Row) -> list[Candidate]:
    """What the worker wrote, as the values it was made from."""
    return [
        Candidate(one["doc_id"], one["score"], tuple(Source(**source) for source in one["sources"]))
        for one in row["candidates"]
    ]


BOTH = [
    run("original", "bm25", [("a", 3.0), ("b", 2.0), ("c", 1.0)]),
    run("original", "dense", [("b", 0.9), ("d", 0.8)]),
    run("keyword", "bm25", [("c", 7.0), ("a", 1.0)]),
    run("keyword", "dense", []),
]
ROWS = [
    query("one", [rewrite("keyword", 0.5)], BOTH, [[1, 0.8], [0.8, 1]]),
    query("two", [], [run("original", "bm25", [("x", 1.0)]), run("original", "dense", [])], [[1.0]]),
    query("three", [rewrite("general"), rewrite("keyword")], [run("general", "bm25", [("y", 2.0)])], np.eye(3).tolist()),
    query(
        "four",
        [rewrite("general", 2.0, 0.5), rewrite("keyword", 3.0, 0.0)],
        [run("general", "bm25", [("y", 2.0), ("z", 1.0)]), run("keyword", "bm25", [("w", 2.0)])],
        np.eye(3).tolist(),
    ),
    query(
        "five",
        [rewrite("keyword")],
        [
            run("original", "dense", [("b", 0.9), ("d", 0.8)]),
            run("keyword", "dense", [("c", 0.9), ("b", 0.1)]),
            run("together", "bm25", [("b", 9.0), ("a", 8.0), ("c", 1.0)]) | {"text": -1, "weight": 2.0},
        ],
        [[1, 0.5], [0.5, 1]],
    ),
]


@given(
    st.lists(
        st.lists(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 3)), max_size=4, unique_by=lambda hit: hit[0]),
                 min_size=3, max_size=3),
        min_size=1, max_size=4,
    ),
    st.sampled_from([1, 2, 30]),
    st.integers(0, 3),
)  # fmt: skip
def test_any_block_however_cut_is_fused_as_by_hand(lists: list[list[list[Any]]], depth: int, cut: int) -> None:
    names = ("original", "general", "keyword")
    rows = [
        query(
            str(n), [rewrite(name, 0.7) for name in names[1:]],
            [run(name, "r", [(d, float(s)) for d, s in hits]) for name, hits in zip(names, row, strict=True)],
        )
        for n, row in enumerate(lists)
    ]  # fmt: skip
    cut = min(cut, len(rows) - 1)
    result = fuser(depth=depth)(pa.concat_tables([retrieved(*rows[:cut]), retrieved(*rows[cut:])]))
    assert [candidates(row) for row in plain(result)] == [by_hand(row, depth=depth) for row in rows]


def test_a_strategy_may_give_several_texts() -> None:
    """Each list has the weight and the place in `similarity` of its own text."""
    texts = [rewrite("general", 0.5) | {"position": 2}, rewrite("keyword"), rewrite("general", 2.0)]
    runs = [run("original", "bm25", [("a", 2.0), ("b", 1.0)]), *(
        run(one["strategy"], "bm25", [("b", 3.0), ("c", 1.0), ("a", 0.5)][n:], one["position"]) for n, one in enumerate(texts)
    )]  # fmt: skip
    alike = np.eye(4) + np.triu(cosines := np.arange(16).reshape(4, 4) / 16, 1) + np.triu(cosines, 1).T
    row = query("a", texts, runs, alike.tolist())
    (after,) = plain(fuser()(retrieved(row)))
    weights = {("original", 1): 1.0} | {(one["strategy"], one["position"]): one["weight"] for one in texts}
    lists = [
        RunList(*key, "bm25", [h["doc_id"] for h in one["hits"]], [h["score"] for h in one["hits"]], weights[key])
        for one in runs for key in [(one["strategy"], one["position"])]
    ]  # fmt: skip
    similarity = Similarity(list(weights), alike.astype(np.float32))
    assert (
        candidates(after) == by_loops(lists, **FuseSettings().model_dump(exclude=_NO_FORMULA), similarity=similarity).candidates
    )


def test_a_list_whose_text_is_not_in_similarity_is_a_mistake() -> None:
    odd = run("general", "bm25", [("a", 1.0)]) | {"text": 2}
    with pytest.raises(ValueError, match="a list of general, text 2 of query 0: there are 2 texts in similarity"):
        fuser()(retrieved(query("a", [rewrite("keyword")], [odd], [[1, 0.5], [0.5, 1]])))


def test_every_query_has_a_cost_and_keeps_the_earlier_ones() -> None:
    rows = fuser(method="rrf")(retrieved(*ROWS)).column("costs").to_pylist()
    assert [[(one["stage"], one["component"]) for one in row] for row in rows] == [
        [("retrieve", "bm25"), ("fuse", "rrf")]
    ] * len(ROWS)


# ---------------------------------------------------------------- without hits


def notes(table: pa.Table) -> list[list[tuple[str, str]]]:
    return [[(one["stage"], one["reason"]) for one in row] for row in table.column("errors").to_pylist()]


def test_a_query_without_a_hit_says_so() -> None:
    empty = [run("original", "bm25", []), run("keyword", "bm25", [])]
    result = fuser()(retrieved(query("a", [rewrite("keyword")], empty), query("b", [], []), ROWS[1]))
    assert notes(result) == [[("fuse", "no_hits")], [("fuse", "no_hits")], []]
    assert [len(row["candidates"]) for row in plain(result)] == [0, 0, 1]


def test_the_original_stands_in_where_nothing_else_is_left() -> None:
    row = query("a", [rewrite("keyword")], [run("original", "bm25", [("a", 2.0), ("b", 1.0)]), run("keyword", "bm25", [])])
    result = fuser(weights={"original": 0})(retrieved(row, ROWS[0]))
    assert notes(result) == [[("fuse", "original_stands_in")], []]
    assert [one["doc_id"] for one in plain(result)[0]["candidates"]] == ["a", "b"]


def test_a_text_that_is_routed_nowhere_takes_no_part() -> None:
    """`similarity` has every text; lists are there only where the routes lead."""
    cosines = [[1.0, 0.9, 0.1], [0.9, 1.0, 0.2], [0.1, 0.2, 1.0]]
    lists = [run("original", "bm25", [("a", 2.0), ("b", 1.0)]), run("keyword", "bm25", [("c", 5.0), ("a", 1.0)])]
    row = query("a", [rewrite("general"), rewrite("keyword")], lists, cosines)
    (after,) = plain(fuser()(retrieved(row)))
    without = query("a", [rewrite("keyword")], lists, [[1.0, 0.1], [0.1, 1.0]])
    assert candidates(after) == by_hand(row) == by_hand(without)


# ---------------------------------------------------------------- the original alone


def stored(**lists: list[Row]) -> pa.Table:
    """Rows of runs/, as evaluation reads them, of each query's lists."""
    rows = [
        {"query_id": query_id, "position": 1, "retriever": one["retriever"], **hit}
        for query_id, found in lists.items() for one in found for hit in one["hits"]
    ]  # fmt: skip
    names = ("query_id", "position", "retriever", "doc_id", "score")
    return pa.Table.from_pylist(rows, pa.schema([STORED["runs"].field(name) for name in names]))


def test_the_original_alone_is_the_fusion_of_its_lists() -> None:
    other = [run("original", "bm25", [("x", 1.0), ("a", 0.5)])]
    found = fuse_original(stored(one=BOTH[:2], two=other), FuseSettings(weights={"original": 0, "keyword/bm25": 2}, keep=3))
    alone = [by_hand(query("", [], lists), redundancy="none") for lists in (BOTH[:2], other)]
    assert found == {
        name: [candidate.doc_id for candidate in wanted][:3] for name, wanted in zip(("one", "two"), alone, strict=True)
    }

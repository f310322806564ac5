"""Candidates of rounds merged: which documents, in which order, with which text and which pairs to be scored."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jobs.chain.steps.merging import Merged, QueryCandidates, Rankings, RoundArm, merged
from rewriters.steps.rounds import IterateSettings

Row = dict[str, Any]
K = 60


def arm(merge: str = "fuse", keep: int = 50, candidates: int = 50, reranker: int | None = None) -> RoundArm:
    fuse = SimpleNamespace(k=K, keep=keep, duplicate_chars=None)
    answer: Any = SimpleNamespace(arm="run", fuse=fuse, candidates=candidates, reranker=reranker)
    return RoundArm(0, answer, IterateSettings(by="bm25", below=1.0, merge=merge))


def found(ranking: list[str], *, pages: dict[str, str] | None = None, scored: tuple[str, ...] = ()) -> QueryCandidates:
    """Documents of one arm, best first; pages: doc_id -> what the web says of it."""
    of_web = pages or {}
    names = list(dict.fromkeys([*ranking, *scored]))
    documents: list[Row] = [
        {"doc_id": name, "scored_by": [], "web": list(of_web).index(name) if name in of_web else None} for name in names
    ]
    fused = [
        {"arm": 0, "document": names.index(name), "score": 1 / rank, "sources": None} for rank, name in enumerate(ranking, 1)
    ]
    scores = [{"reranker": 0, "document": names.index(name), "score": 1.0} for name in scored]
    web = [{"doc_id": name, "title": "", "text": text, "url": name} for name, text in of_web.items()]
    return QueryCandidates(documents, fused, scores, web)


def order(of: Merged) -> list[str]:
    return [of.documents[one["document"]]["doc_id"] for one in of.fused]


rankings = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)


@given(rounds=st.lists(rankings, min_size=2, max_size=4), keep=st.integers(1, 9), merge=st.sampled_from(["fuse", "best"]))
def test_rounds_are_merged_by_their_rankings(rounds: list[list[str]], keep: int, merge: str) -> None:
    known: Rankings = {}
    now, made = found(rounds[0][:keep]), None
    for ranking in rounds[1:]:
        made = merged(now, found(ranking[:keep]), [arm(merge, keep, keep)], known, {})
        now = QueryCandidates(made.documents, made.fused, [], made.pages)
    assert made is not None
    wanted: dict[str, float] = {}
    searched = [rounds[0], *(ranking for ranking in rounds[1:] if ranking)]
    for ranking in searched:
        for rank, name in enumerate(ranking[:keep], 1):
            if merge == "fuse":
                wanted[name] = wanted.get(name, 0.0) + 1 / (K + rank)
            else:
                wanted[name] = max(wanted.get(name, 0.0), 1 / rank)
    if len(searched) == 1:
        wanted = {name: 1 / rank for rank, name in enumerate(rounds[0][:keep], 1)}
    assert order(made) == sorted(wanted, key=lambda name: (-wanted[name], name))[:keep]
    assert len({document["doc_id"] for document in made.documents}) == len(made.documents)


@given(first=rankings, second=rankings, candidates=st.integers(1, 8))
def test_what_stands_behind_the_candidates_changes_none_of_them(first: list[str], second: list[str], candidates: int) -> None:
    short = merged(found(first[:candidates]), found(second[:candidates]), [arm(keep=candidates, candidates=candidates)], {}, {})
    deep = merged(found(first), found(second), [arm(keep=20, candidates=candidates)], {}, {})
    assert order(deep)[:candidates] == order(short)[:candidates] + order(deep)[len(order(short)) : candidates]
    assert set(order(deep)) == {*first, *second}


def test_a_page_keeps_the_text_that_the_arm_has() -> None:
    first, second = (
        found(["web:x", "a"], pages={"web:x": "old"}),
        found(["web:x", "web:y"], pages={"web:x": "new", "web:y": "y"}),
    )
    made = merged(first, second, [arm()], {}, {})
    texts = {one["doc_id"]: made.pages[one["web"]]["text"] for one in made.documents if one["web"] is not None}
    assert texts == {"web:x": "old", "web:y": "y"}
    assert order(made) == ["web:x", "a", "web:y"]


def test_an_arm_without_the_page_has_the_text_of_the_round() -> None:
    first = found(["web:x"], pages={"web:x": "old"})
    first.fused[0]["arm"] = 1  # of another arm, which has no round
    second = found(["web:x"], pages={"web:x": "new"})
    made = merged(first, second, [arm()], {}, {})
    texts = {one["arm"]: made.pages[made.documents[one["document"]]["web"]]["text"] for one in made.fused}
    assert texts == {0: "new", 1: "old"}


def test_a_page_behind_the_candidates_has_the_text_of_the_round() -> None:
    first, second = found(["a", "web:x"], pages={"web:x": "old"}), found(["web:x"], pages={"web:x": "new"})
    made = merged(first, second, [arm(candidates=1)], {}, {})
    assert order(made) == ["a", "web:x"]
    assert made.pages[made.documents[made.fused[1]["document"]]["web"]]["text"] == "new"


def test_pairs_that_have_no_score_are_named() -> None:
    first, second = found(["a", "b"], scored=("a", "b", "z")), found(["b", "c", "d"])
    made = merged(first, second, [arm(candidates=3, keep=9, reranker=0)], {}, {})
    unscored = {made.documents[document]["doc_id"] for _, document in made.unscored}
    assert unscored == set(order(made)[:3]) - {"a", "b"}
    failed = found(["a", "b"])._replace(scores=None)
    assert not merged(failed, second, [arm(reranker=0)], {}, {}).unscored  # the reranker failed on the query


def test_documents_of_two_rounds_with_one_text_are_one() -> None:
    dropping = arm()
    texts = {0: {"a": "The  Moon", "b": "bread", "c": "the moon", "d": "tides"}}
    made = merged(found(["a", "b"]), found(["c", "d"]), [dropping], {}, texts)
    assert order(made) == ["a", "b", "d"]
    made = merged(found(["b", "a"]), found(["c", "d"]), [dropping], {}, texts)
    assert order(made) == ["a", "b", "d"]  # the ranks of a and c add up
    made = merged(found(["b", "a"]), found(["c", "d"]), [arm("best")], {}, texts)
    assert [(made.documents[one["document"]]["doc_id"], one["score"]) for one in made.fused] == [("a", 1), ("b", 1), ("d", 0.5)]

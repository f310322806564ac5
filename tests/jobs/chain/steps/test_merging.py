"""Candidates of rounds merged: in which order, with which texts of pages, and as how many of one text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jobs.chain.stages.llm.merging import QueryCandidates, Rankings, RoundArm, merged
from rewriters.steps.rounds import IterateSettings

K = 60


def arm(merge: str = "fuse", keep: int = 50, candidates: int = 50) -> RoundArm:
    fuse = SimpleNamespace(k=K, keep=keep, duplicate_chars=None)
    answer: Any = SimpleNamespace(arm="run", fuse=fuse, candidates=candidates)
    return RoundArm(0, answer, IterateSettings(by="bm25", below=1.0, merge=merge))


def found(ranking: list[str], said: str | None = None, of: int = 0) -> QueryCandidates:
    """Documents of an arm, best first; those whose ids begin with `web:` are pages, with this text."""
    pages = [name for name in ranking if name.startswith("web:")]
    return QueryCandidates(
        [{"doc_id": name, "web": pages.index(name) if name in pages else None} for name in ranking],
        [{"arm": of, "document": rank - 1, "score": 1 / rank, "sources": None} for rank in range(1, len(ranking) + 1)],
        [{"doc_id": name, "title": "", "text": said, "url": name} for name in pages],
    )


def order(of: QueryCandidates) -> list[str]:
    return [of.documents[one["document"]]["doc_id"] for one in of.fused]


def texts(of: QueryCandidates) -> dict[tuple[int, str], str]:
    """The text of each page in each arm."""
    documents = ((one["arm"], of.documents[one["document"]]) for one in of.fused)
    return {(number, one["doc_id"]): of.pages[one["web"]]["text"] for number, one in documents if one["web"] is not None}


rankings = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)


@given(rounds=st.lists(rankings, min_size=2, max_size=4), keep=st.integers(1, 9), merge=st.sampled_from(["fuse", "best"]))
def test_rounds_are_merged_by_their_rankings(rounds: list[list[str]], keep: int, merge: str) -> None:
    known: Rankings = {}
    now = found(rounds[0][:keep])
    for ranking in rounds[1:]:
        now = merged(now, found(ranking[:keep]), [arm(merge, keep, keep)], known, {})
    wanted: dict[str, float] = {}
    searched = [rounds[0], *(ranking for ranking in rounds[1:] if ranking)]
    for ranking in searched:
        for rank, name in enumerate(ranking[:keep], 1):
            of_rank = 1 / (K + rank) if merge == "fuse" and len(searched) > 1 else 1 / rank
            wanted[name] = wanted.get(name, 0.0) + of_rank if merge == "fuse" else max(wanted.get(name, 0.0), of_rank)
    assert order(now) == sorted(wanted, key=lambda name: (-wanted[name], name))[:keep]
    assert len({document["doc_id"] for document in now.documents}) == len(now.documents)


@given(first=rankings, second=rankings, candidates=st.integers(1, 8))
def test_what_stands_behind_the_candidates_changes_none_of_them(first: list[str], second: list[str], candidates: int) -> None:
    short = merged(found(first[:candidates]), found(second[:candidates]), [arm(keep=candidates, candidates=candidates)], {}, {})
    deep = merged(found(first), found(second), [arm(keep=20, candidates=candidates)], {}, {})
    assert order(deep)[:candidates] == order(short)[:candidates] + order(deep)[len(order(short)) : candidates]
    assert set(order(deep)) == {*first, *second}


def test_a_page_keeps_the_text_that_the_arm_has_among_its_candidates() -> None:
    made = merged(found(["web:x", "a"], "old"), found(["web:x", "web:y"], "new"), [arm()], {}, {})
    assert texts(made) == {(0, "web:x"): "old", (0, "web:y"): "new"}
    other = merged(found(["web:x"], "old", of=1), found(["web:x"], "new"), [arm()], {}, {})  # that has no round
    assert texts(other) == {(0, "web:x"): "new", (1, "web:x"): "old"}
    behind = merged(found(["a", "web:x"], "old"), found(["web:x"], "new"), [arm(candidates=1)], {}, {})
    assert (order(behind), texts(behind)) == (["a", "web:x"], {(0, "web:x"): "new"})


def test_documents_of_two_rounds_with_one_text_are_one() -> None:
    of_arm = {0: {"a": "The  Moon", "b": "bread", "c": "the moon", "d": "tides"}}
    for first in (["a", "b"], ["b", "a"]):  # the ranks of a and c add up
        assert order(merged(found(first), found(["c", "d"]), [arm()], {}, of_arm)) == ["a", "b", "d"]
    made = merged(found(["b", "a"]), found(["c", "d"]), [arm("best")], {}, of_arm)
    assert [(made.documents[one["document"]]["doc_id"], one["score"]) for one in made.fused] == [("a", 1), ("b", 1), ("d", 0.5)]

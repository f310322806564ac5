"""Candidates of rounds merged: in which order, with which texts of pages, and as how many of one text."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from jobs.chain.stages.candidates import ArmCandidates, BlockCandidates
from jobs.chain.stages.llm.merge import merged
from retrievers.web.hits import WebHit
from rewriters.steps.settings import IterateSettings

K = 60
ROWS = 3  # of which the second has candidates


def found(ranking: list[str], said: str = "") -> BlockCandidates:
    """Documents of an arm, best first; those whose ids begin with `web:` are pages, with this text."""
    pages = [WebHit(name, name, "", said, 0.0) for name in ranking if name.startswith("web:")]
    page = [next((at for at, one in enumerate(pages) if one.doc_id == name), -1) for name in ranking]
    count = len(ranking)
    arm = ArmCandidates(np.ones(count, dtype=np.int64), np.arange(count), np.array(page, dtype=np.int64),
                        1 / np.arange(1, count + 1), None)  # fmt: skip
    return BlockCandidates(pa.array(ranking, pa.string()), pages, {0: arm})


def merge(
    *rankings: BlockCandidates, by: str = "fuse", keep: int = 50, candidates: int = 50, texts: dict[str, str] | None = None
) -> list[tuple[str, float, str | None]]:
    """doc_id, score and text of the page of each candidate of all rounds."""
    answer: Any = SimpleNamespace(fuse=SimpleNamespace(k=K, keep=keep, duplicate_chars=None), candidates=candidates)
    settings = IterateSettings(by="bm25", below=1.0, merge=by)
    read = None if texts is None else lambda ids: [texts[one] for one in ids]
    doc_ids, pages, arms = merged(rankings, ROWS, answer, settings, read)
    columns = doc_ids.take(pa.array(arms[0].document)).to_pylist(), arms[0].score.tolist(), arms[0].page.tolist()
    assert set(arms[0].row.tolist()) <= {1}
    return [(doc_id, score, None if page < 0 else pages[page].text) for doc_id, score, page in zip(*columns, strict=True)]


def order(of: list[tuple[str, float, str | None]]) -> list[str]:
    return [doc_id for doc_id, *_ in of]


rankings = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)


@given(rounds=st.lists(rankings, min_size=2, max_size=4), keep=st.integers(1, 9), by=st.sampled_from(["fuse", "best"]))
def test_rounds_are_merged_by_their_rankings(rounds: list[list[str]], keep: int, by: str) -> None:
    now = merge(*(found(one[:keep]) for one in rounds), by=by, keep=keep, candidates=keep)
    wanted: dict[str, float] = {}
    searched = [rounds[0], *(ranking for ranking in rounds[1:] if ranking)]
    for ranking in searched:
        for rank, name in enumerate(ranking[:keep], 1):
            of_rank = 1 / (K + rank) if by == "fuse" and len(searched) > 1 else 1 / rank
            wanted[name] = wanted.get(name, 0.0) + of_rank if by == "fuse" else max(wanted.get(name, 0.0), of_rank)
    assert order(now) == sorted(wanted, key=lambda name: (-wanted[name], name))[:keep]


@given(first=rankings, second=rankings, candidates=st.integers(1, 8))
def test_what_stands_behind_the_candidates_changes_none_of_them(first: list[str], second: list[str], candidates: int) -> None:
    short = order(merge(found(first[:candidates]), found(second[:candidates]), keep=candidates, candidates=candidates))
    deep = order(merge(found(first), found(second), keep=20, candidates=candidates))
    assert deep[:candidates] == short[:candidates] + deep[len(short) : candidates]
    assert set(deep) == {*first, *second}


def test_a_page_keeps_the_text_that_the_arm_has_among_its_candidates() -> None:
    made = merge(found(["web:x", "a"], "old"), found(["web:x", "web:y"], "new"))
    assert {doc_id: text for doc_id, _, text in made} == {"web:x": "old", "web:y": "new", "a": None}
    behind = merge(found(["a", "web:x"], "old"), found(["web:x"], "new"), candidates=1)
    assert [(doc_id, text) for doc_id, _, text in behind] == [("a", None), ("web:x", "new")]


def test_documents_of_two_rounds_with_one_text_are_one() -> None:
    texts = {"a": "The  Moon", "b": "bread", "c": "the moon", "d": "tides"}
    for first in (["a", "b"], ["b", "a"]):  # the ranks of a and c add up
        assert order(merge(found(first), found(["c", "d"]), texts=texts)) == ["a", "b", "d"]
    made = merge(found(["b", "a"]), found(["c", "d"]), by="best", texts=texts)
    assert [(doc_id, score) for doc_id, score, _ in made] == [("a", 1), ("b", 1), ("d", 0.5)]

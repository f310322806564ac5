"""Answers of the model families of today (answers/README.md): no wrong text is searched, and the good ones are kept."""

from __future__ import annotations

import json
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rewriters.rewriter import Rewriter
from rewriters.settings import SelectAdaptive
from tests.support.rewriters.pools import answered, cut, rewriter, said

# What the reading reaches; a change of it may only tighten these. New rows that it does not read yet may raise the first.
MOST_WRONG = 0  # texts accepted that should not be searched
LEAST_KEPT = 0.99  # share of the good texts

FILES = sorted((Path(__file__).parent / "answers").glob("*.jsonl"))
Row = dict[str, Any]


def rows() -> list[Row]:
    return [json.loads(line) for file in FILES for line in file.read_text(encoding="utf-8").splitlines()]


class Outcome(NamedTuple):
    """Of a row: the texts accepted that should not be, the good texts that are lost, and the number of good ones."""

    wrong: list[str]
    lost: list[str]
    good: int


@lru_cache(maxsize=64)
def rewriter_of(strategies: str, adaptive: bool) -> Rewriter:
    """The rewriter of a row's strategies, as JSON."""
    more = {"select": SelectAdaptive(kind="adaptive")} if adaptive else {}
    return rewriter(json.loads(strategies), **more)


def one_line(text: str) -> str:
    return " ".join(text.split())


def outcome(row: Row) -> Outcome:
    one = rewriter_of(json.dumps(row["strategies"]), "select" in row)
    answer = cut(row["answer"]) if row["finish"] == "length" else said(row["answer"])
    kept: dict[str, list[str]] = {}
    for rewrite in answered(one, row["query"], answer).rewrites:
        kept.setdefault(rewrite.strategy, []).append(one_line(rewrite.text))
    wrong: list[str] = []
    lost: list[str] = []
    good = 0
    for strategy in one.strategies:
        before = " ".join([row["query"]] * strategy.include_original)
        wanted = [[one_line(f"{before} {way}") for way in ways] for ways in row["good"].get(strategy.name, [])]
        also = [one_line(f"{before} {way}") for way in row.get("also", {}).get(strategy.name, [])]
        texts = kept.get(strategy.name, [])
        allowed = {*also, *(way for ways in wanted for way in ways)}
        wrong += [text for text in texts if text not in allowed]
        lost += [ways[0] for ways in wanted if not set(ways) & set(texts)]
        good += len(wanted)
    return Outcome(wrong, lost, good)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    return {row["id"]: outcome(row) for row in rows()}


def test_no_wrong_text_is_accepted(outcomes: dict[str, Outcome]) -> None:
    wrong = {name: one.wrong for name, one in outcomes.items() if one.wrong}
    count = sum(map(len, wrong.values()))
    assert count <= MOST_WRONG, f"{count} texts, {by_theme(wrong)}:\n" + listed(wrong)


def test_good_texts_are_kept(outcomes: dict[str, Outcome]) -> None:
    lost = {name: one.lost for name, one in outcomes.items() if one.lost}
    share = 1 - sum(map(len, lost.values())) / sum(one.good for one in outcomes.values())
    assert share >= LEAST_KEPT, f"{share:.3f} are kept; lost are {by_theme(lost)}:\n" + listed(lost)


def by_theme(texts: dict[str, list[str]]) -> dict[str, int]:
    return dict(sum((Counter({name.rpartition("-")[0]: len(some)}) for name, some in texts.items()), Counter()))


def listed(texts: dict[str, list[str]]) -> str:
    return "\n".join(f"{name}: {text}" for name, some in texts.items() for text in some)

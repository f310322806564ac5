"""Malformed answers (answers.yaml), and answers of today's model families (answers/README.md): the outcome of each."""

import json
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from rewriters.calls import joint_template
from rewriters.pool import load_pool
from rewriters.reading.ladder import Parsed, parse, prepared
from rewriters.reasons import MESSAGES
from rewriters.rewriter import Rewriter
from rewriters.settings import SelectAdaptive
from tests.support.rewriters.pools import answered, cut, rewriter, said

TABLE = yaml.load(Path(__file__).with_name("answers.yaml").read_bytes(), yaml.CSafeLoader)

FOUR = list(TABLE["texts"])


def expected(case: dict[str, Any]) -> dict[str, str]:
    """Strategy -> the rewrite, or !reason; one reason stands for all that are asked."""
    found = case.get("expected", TABLE["texts"])
    return dict.fromkeys(case.get("asked", FOUR), found) if isinstance(found, str) else found


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in TABLE["answers"]])
def test_what_an_answer_becomes(case: dict[str, Any]) -> None:
    requested = load_pool(case.get("asked", FOUR))
    instructions = joint_template(requested) if len(requested) > 1 else requested[0].prompt
    query = case.get("query", TABLE["query"])
    outcome = parse(prepared(case["answer"], query, requested, load_pool(FOUR), instructions, case.get("cut", False)))
    shown = {name: one.text if isinstance(one, Parsed) else f"!{one}" for name, one in outcome.items()}
    assert shown == expected(case)
    readers = {one.parsed_as for one in outcome.values() if isinstance(one, Parsed)}
    assert readers == ({case.get("reader")} if readers else set())


def test_the_table_meets_every_reason() -> None:
    met = {text[1:] for case in TABLE["answers"] for text in expected(case).values() if text.startswith("!")}
    assert met == set(MESSAGES) - {"content_filter"}  # told by how the answer ended


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

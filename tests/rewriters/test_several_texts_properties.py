"""Laws of reading several texts, samples and adaptive answers, for any text that a model may return."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from rewriters.engines import Completion
from rewriters.pool import load
from rewriters.reasons import MESSAGES
from rewriters.results import Rewritten
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.settings import SelectAdaptive
from tests.support.rewriters.pools import FOUR, a_file, asked, rewriter

QUERY = "cheapest parcel from lyon to porto in 2024"
POOL = (
    load("multi_query"),
    load({"clarify": {"n": 2}}),
    load({"rewrite": {"n": 3, "temperature": 0.7}}),
    load({"decompose": {"interpret": True}}),
    a_file(output="object", n=3, keys=["a", "b", "c"], fallback="original"),
)
EVERY = Rewriter(Rewriting(POOL, "separate", {"temperature": 0.0}))
ADAPTIVE = rewriter([*FOUR, "rag_fusion"], select=SelectAdaptive(kind="adaptive"))
PIECES = st.sampled_from(
    [
        "1. ", "2) ", "- ", "• ", "\n", "\n\n", "\r\n", "```json\n", "```", "Here they are:\n", "Q1: ", "、", "**",
        '["', '", "', '"]', "[", "]", "{", "}", '{"a": "', '"b": ', '{"query": "', '", "interpretation": "', '"}', "null", "7",
        "parcel to Porto", "train from Lyon", "parcel " * 20, "сколько стоит", "包裹", "\ud800", "\x00", "\u2028", "<think>",
        "</think>", "Keyword Rewriting: ", "general: ", "RAG-Fusion: ", "reason: ", "Reason: because", "none",
        "\\", "I'm sorry, but I", "<|im_end|>", "cheapest parcel from lyon to porto in 2024", " ", "[" * 300,
    ]
)  # fmt: skip
ANSWERS = st.lists(PIECES | st.text(max_size=5), max_size=20).map("".join) | st.text(alphabet=st.characters(codec=None))
COMPLETIONS = st.builds(Completion, ANSWERS, st.sampled_from(["stop", "length"]), st.just("m")) | st.just(
    Completion(None, None, "m", error_reason="timed_out", error_message="no answer in 60 s")
)


def check(made: Rewritten, pool: dict[str, int]) -> None:
    """Each chosen strategy ends with its texts or with exactly one failure."""
    by_strategy: dict[str, list[int]] = {}
    for one in made.rewrites:
        by_strategy.setdefault(one.strategy, []).append(one.position)
        assert one.text == " ".join(one.text.split()) != ""
        one.text.encode("utf-8")
        assert one.parsed_as in {"json", "labelled", "numbered", "lines", "salvage", "original"}
    for name, positions in by_strategy.items():
        assert positions == sorted(set(positions))
        assert 1 <= positions[0] <= positions[-1] <= pool[name]
        if name != "sub_query":  # the keys of an object keep their places
            assert positions == list(range(1, len(positions) + 1))
    failed = [one.strategy for one in made.failures if one.reason not in ("texts_dropped", "fell_back")]
    assert sorted([*failed, *by_strategy]) == sorted(made.choice.texts)
    notes = [one.strategy for one in made.failures if one.reason in ("texts_dropped", "fell_back")]
    assert set(notes) <= set(by_strategy)
    assert len(notes) == len(set(notes))
    assert {one.reason for one in made.failures} <= {*MESSAGES, "texts_dropped", "fell_back", "timed_out"}
    for one in made.failures:
        assert "\n" not in one.message
        (one.raw or "").encode("utf-8")


@given(st.lists(COMPLETIONS, min_size=7, max_size=7))
def test_every_strategy_ends_with_texts_or_one_failure(completions: list[Completion]) -> None:
    query, requests = asked(EVERY, QUERY)
    made = EVERY.read(query, list(zip(requests, completions, strict=True)))
    check(made, {strategy.name: strategy.n for strategy in POOL})
    assert set(made.choice.texts) == {strategy.name for strategy in POOL}


@given(COMPLETIONS)
def test_what_the_llm_chooses_ends_with_texts_or_one_failure(completion: Completion) -> None:
    query, (request,) = asked(ADAPTIVE, QUERY)
    made = ADAPTIVE.read(query, [(request, completion)])
    check(made, {strategy.name: strategy.n for strategy in ADAPTIVE.strategies})
    assert made.choice.reason is None or made.choice.reason == " ".join(made.choice.reason.split()) != ""


WORDS = st.lists(
    st.sampled_from(["parcel", "Lyon", "Porto", "20", "kg", "são", "b2b", "what?", "x{y}", "C++", "(2024)"]),
    min_size=2, max_size=6, unique=True,
).map(" ".join)  # fmt: skip


@given(
    st.lists(WORDS, min_size=1, max_size=3, unique_by=str.casefold), st.sampled_from(["numbered", "bullets", "bare", "json"])
)
def test_texts_come_back_as_they_were_written(texts: list[str], form: str) -> None:
    answer = {
        "numbered": "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1)),
        "bullets": "\n".join(f"- {text}" for text in texts),
        "bare": "\n".join(texts),
        "json": json.dumps(texts),
    }[form]
    one = rewriter(["multi_query"])
    query, (request,) = asked(one, QUERY)
    made = one.read(query, [(request, Completion(answer, "stop", "m"))])
    assert [rewrite.text for rewrite in made.rewrites] == texts

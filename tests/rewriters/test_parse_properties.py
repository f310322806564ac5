"""Laws of reading answers, for any text that a model may return."""

import json
import random
import time
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rewriters.calls import joint_template
from rewriters.engines import Completion
from rewriters.pool import load, load_pool
from rewriters.reading.ladder import Parsed, parse, prepared
from rewriters.reasons import CUT, MESSAGES, Reason
from rewriters.results import Rewritten
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.settings import SelectAdaptive
from rewriters.strategy import Strategy
from tests.support.rewriters.pools import FOUR as NAMES
from tests.support.rewriters.pools import a_file, answered, asked, rewriter

FOUR = load_pool(NAMES)
QUERY = "cheapest parcel from lyon to porto in 2024"
INSTRUCTIONS = joint_template(FOUR)
READERS = {"json", "labelled", "numbered", "salvage"}
FEW = settings(max_examples=settings.default.max_examples // 6)  # each is cut at every character
POOL = (
    load("multi_query"),
    load({"clarify": {"n": 2}}),
    load({"rewrite": {"n": 3, "temperature": 0.7}}),
    load({"decompose": {"interpret": True}}),
    a_file(output="object", n=3, keys=["a", "b", "c"], fallback="original"),
)
EVERY = Rewriter(Rewriting(POOL, "separate", {"temperature": 0.0}))
ADAPTIVE = rewriter([*NAMES, "rag_fusion"], select=SelectAdaptive(kind="adaptive"))

PIECES = st.sampled_from([
    "general: ", "Keyword Rewriting: ", "Pseudo-Answer Rewriting:", "core_content：", "**Keyword Rewriting:**",
    "RAG-Fusion: ", "reason: ", "Reason: because", "none", '{"general": "', '"keyword": ', '{"query": "',
    '", "interpretation": "', '", "', "', '", '["', '"]', '"}', "{", "}", "[", "]", "null", "12", "\\", '"', "'", ":",
    ",", "\\u12", "1. ", "2) ", "3.11 ", "- ", "* ", "• ", "**", "Q1: ", "、", "\n", "\n\n", "\r\n", " ", "```json\n",
    "```", "<think>", "</think>", "Sure! ", "Here they are:\n", "<|im_end|>", "parcel to Porto", "train from Lyon",
    "parcel " * 20, "сколько стоит", "包裹", "I'm sorry, but I", "\ud800", "\x00", "\u2028", QUERY, "{" * 50, "[" * 300,
])  # fmt: skip
ANSWERS = st.lists(PIECES | st.text(max_size=5), max_size=25).map("".join) | st.text(alphabet=st.characters(codec=None))
COMPLETIONS = st.builds(Completion, ANSWERS, st.sampled_from(["stop", "length"]), st.just("m")) | st.just(
    Completion(None, None, "m", error_reason="timed_out", error_message="no answer in 60 s")
)
WORDS = ["parcel", "Lyon", "Porto", "20", "kg", "C++", "3.11", "don't", "(2024)", "são", '"two words"', "b2b", "what?", "x{y}"]
VALUES = (
    st.lists(st.sampled_from(WORDS), min_size=2, max_size=8, unique=True)
    .map(" ".join)
    .filter(lambda text: not (text.startswith('"') and text.endswith('"')))
)
FOUR_VALUES = st.tuples(VALUES, VALUES, VALUES, VALUES)
Shape = Callable[[tuple[str, ...]], str]


def as_json(values: tuple[str, ...], **options: object) -> str:
    return json.dumps(expected(values), **options)  # type: ignore[arg-type]


def as_labelled(values: tuple[str, ...]) -> str:
    return "\n".join(f"{s.label}: {v}" for s, v in zip(FOUR, values, strict=True))


def as_markdown(values: tuple[str, ...]) -> str:
    return "\n\n".join(f"{i}. **{s.name}**:\n{v}" for i, (s, v) in enumerate(zip(FOUR, values, strict=True), 1))


def as_numbered(values: tuple[str, ...]) -> str:
    return "\n".join(f"{i}. {v}" for i, v in enumerate(values, 1))


SHAPES: list[Shape] = [as_json, as_labelled, as_markdown, as_numbered]


def expected(values: tuple[str, ...]) -> dict[str, str]:
    return {s.name: v for s, v in zip(FOUR, values, strict=True)}


def read(answer: str, truncated: bool = False, requested: tuple[Strategy, ...] = FOUR) -> dict[str, Parsed | Reason]:
    return parse(prepared(answer, QUERY, requested, FOUR, INSTRUCTIONS, truncated))


def values_of(outcome: dict[str, Parsed | Reason]) -> dict[str, str]:
    """The texts that are whole; of a cut passage some sentences may be read, with a flag."""
    return {name: one.text for name, one in outcome.items() if isinstance(one, Parsed) and not one.flags}


def check_outcome(answer: str, truncated: bool, requested: tuple[Strategy, ...] = FOUR) -> None:
    outcome = read(answer, truncated, requested)
    assert list(outcome) == [strategy.name for strategy in requested]
    for one in outcome.values():
        if not isinstance(one, Parsed):
            assert one in MESSAGES
        else:
            assert one.parsed_as in READERS
            assert one.text == " ".join(one.text.split()) != ""
            assert "\0" not in one.text
            one.text.encode("utf-8")


@given(ANSWERS, st.booleans(), st.just(FOUR) | st.sampled_from(FOUR).map(lambda strategy: (strategy,)))
@example("[" * 100_000, False, FOUR)
@example('{"general":' * 20_000, True, FOUR)
@example('{"general": ' + "9" * 10_000 + "}", False, FOUR)
def test_any_text_ends_as_one_rewrite_or_one_reason_for_each(
    answer: str, truncated: bool, requested: tuple[Strategy, ...]
) -> None:
    check_outcome(answer, truncated, requested)


@given(FOUR_VALUES, st.sampled_from(SHAPES), st.randoms(use_true_random=False), st.booleans())
def test_a_mutilated_answer_ends_as_one_rewrite_or_one_reason(
    values: tuple[str, ...], shape: Shape, chance: random.Random, truncated: bool
) -> None:
    answer = shape(values)
    for _ in range(3):
        at, end = sorted(chance.choices(range(len(answer) + 1), k=2))
        cut, doubled = answer[:at] + answer[end:], answer[:end] + answer[at:]
        answer = chance.choice([cut, doubled, answer[:at] + '\ud83d\x00"\n' + answer[at:], answer[at:end]])
    check_outcome(answer, truncated)


NOISE_BEFORE = [
    "", "Sure! Here are the four rewrites:\n\n", "<think>\nThe user {wants}\n1. a plan\n</think>\n\n", "no tag\n</think>",
    "\n\n ",
]  # fmt: skip
NOISE_AFTER = [
    "", "\n\nLet me know if you need more!", "\n\nreason: they differ", "\n", "<|im_end|>",
    "\n\n---\nThese rewrites keep names.",
]  # fmt: skip


@given(FOUR_VALUES, st.sampled_from(SHAPES), st.sampled_from(NOISE_BEFORE), st.sampled_from(NOISE_AFTER), st.booleans())
def test_noise_around_a_good_answer_changes_nothing(
    values: tuple[str, ...], shape: Shape, before: str, after: str, fenced: bool
) -> None:
    answer = shape(values)
    if fenced:
        answer, after = f"```\n{answer}\n```", f"\n{after}"
    assert values_of(read(before + answer + after)) == expected(values)


@pytest.mark.parametrize("shape", SHAPES)
@FEW
@given(values=FOUR_VALUES)
def test_a_cut_answer_has_whole_values_or_none(shape: Shape, values: tuple[str, ...]) -> None:
    """Cut after every character. Those that are there are the true ones, and they come in the order of the answer."""
    answer, true, before = shape(values), expected(values), 0
    for at in range(len(answer)):
        outcome = read(answer[:at], truncated=True)
        found = values_of(outcome)
        assert found.items() <= true.items()
        for name, one in outcome.items():
            if isinstance(one, Parsed) and one.flags == (CUT,):
                assert (name, true[name].startswith(one.text)) == ("pseudo_answer", True)
        assert len(found) >= before  # more text never loses a value
        before = len(found)


@FEW
@given(FOUR_VALUES, st.sampled_from([{}, {"indent": 1}, {"ensure_ascii": False, "separators": (",", ":")}]))
def test_cut_json_has_whole_values_or_none_even_if_the_engine_does_not_say_that_it_was_cut(
    values: tuple[str, ...], options: dict[str, object]
) -> None:
    answer = as_json(values, **options)
    for at in range(len(answer)):
        assert values_of(read(answer[:at])).items() <= expected(values).items()


@pytest.mark.parametrize("strategy", FOUR, ids=lambda strategy: strategy.name)
@FEW
@given(value=VALUES, before=st.sampled_from(["", "Here is the rewritten query:\n", "```\n"]))
def test_an_answer_to_a_call_of_its_own_is_whole_or_none(strategy: Strategy, value: str, before: str) -> None:
    assert values_of(read(value, requested=(strategy,))) == {strategy.name: value}
    answer = f"{before}{value}\n\n---"
    for at in range(len(answer)):
        assert values_of(read(answer[:at], truncated=True, requested=(strategy,))).items() <= {(strategy.name, value)}


@given(FOUR_VALUES, st.permutations(range(4)))
def test_labels_and_keys_count_and_their_order_does_not(values: tuple[str, ...], order: list[int]) -> None:
    pairs = [(FOUR[i], values[i]) for i in order]
    assert values_of(read("\n".join(f"{s.label}: {v}" for s, v in pairs))) == expected(values)
    assert values_of(read(json.dumps({s.label.upper(): v for s, v in pairs}))) == expected(values)


RUN_AWAY = [
    '{"general": "x"' + " \n" * 100_000, "*" * 200_000, "1. " * 60_000, "<think>" * 30_000, "Keyword Rewriting: " * 10_000,
    '"keyword": ' * 18_000, "ab" * 100_000, "- \n" * 60_000, "(" * 200_000, "here is " * 25_000,
    "\n".join(["Keyword Rewriting"] * 10_000), '{"keyword": "' + 'a\\"' * 60_000,
]  # fmt: skip


@pytest.mark.parametrize("answer", RUN_AWAY, ids=lambda answer: answer[:18])
def test_a_run_away_answer_is_read_in_a_moment(answer: str) -> None:
    started = time.process_time()
    for requested in (FOUR, FOUR[:1], FOUR[2:3]):
        check_outcome(answer, True, requested)
    assert time.process_time() - started < 5.0  # under 0.5 s each on a slow core; quadratic time would take minutes


# ---------------------------------------------------------------- several texts, samples, adaptive answers


def check(made: Rewritten, pool: dict[str, int]) -> None:
    """Each chosen strategy ends with its texts or with exactly one failure."""
    by_strategy: dict[str, list[int]] = {}
    for one in made.rewrites:
        by_strategy.setdefault(one.strategy, []).append(one.position)
        assert one.text == " ".join(one.text.split()) != ""
        one.text.encode("utf-8")
        assert one.parsed_as in READERS | {"lines", "original"}
    for name, positions in by_strategy.items():
        assert positions == sorted(set(positions))
        assert 1 <= positions[0] <= positions[-1] <= pool[name]
        if name != "sub_query":  # the keys of an object keep their places
            assert positions == list(range(1, len(positions) + 1))
    notes = [one.strategy for one in made.failures if one.reason in ("texts_dropped", "fell_back")]
    failed = [one.strategy for one in made.failures if one.reason not in ("texts_dropped", "fell_back")]
    assert sorted([*failed, *by_strategy]) == sorted(made.choice.texts)
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
    made = answered(ADAPTIVE, QUERY, completion)
    check(made, {strategy.name: strategy.n for strategy in ADAPTIVE.strategies})
    assert made.choice.reason is None or made.choice.reason == " ".join(made.choice.reason.split()) != ""


TEXTS = st.lists(
    st.sampled_from(["parcel", "Lyon", "Porto", "20", "kg", "são", "b2b", "what?", "x{y}", "C++", "(2024)"]),
    min_size=2, max_size=6, unique=True,
).map(" ".join)  # fmt: skip


@given(
    st.lists(TEXTS, min_size=1, max_size=3, unique_by=str.casefold), st.sampled_from(["numbered", "bullets", "bare", "json"])
)
def test_texts_come_back_as_they_were_written(texts: list[str], form: str) -> None:
    answer = {
        "numbered": "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1)),
        "bullets": "\n".join(f"- {text}" for text in texts),
        "bare": "\n".join(texts),
        "json": json.dumps(texts),
    }[form]
    assert [rewrite.text for rewrite in answered(rewriter(["multi_query"]), QUERY, answer).rewrites] == texts

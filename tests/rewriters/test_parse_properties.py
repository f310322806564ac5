"""Laws of the parse ladder, for any text that a model may return."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rewriters.joint import joint_template
from rewriters.pool import load_pool
from rewriters.reading.ladder import Parsed, Unread, parse
from rewriters.reasons import CUT, MESSAGES

FOUR = load_pool(["general", "keyword", "pseudo_answer", "core_content"])
QUERY = "cheapest parcel from lyon to porto in 2024"
INSTRUCTIONS = joint_template(FOUR)
RUNGS = {"json", "labelled", "numbered", "salvage"}
FEW = settings(max_examples=settings.default.max_examples // 6)  # each is cut at every character

FRAGMENTS = st.sampled_from(
    [
        *(
            "general",
            "Keyword Rewriting",
            "Pseudo-Answer Rewriting:",
            "core_content：",
            "**Keyword Rewriting:**",
            "reason: ",
        ),
        *(
            '{"general": "',
            '"keyword": ',
            '", "',
            '"}',
            "{",
            "}",
            "[",
            "]",
            "null",
            "12",
            "\\",
            '"',
            "'",
            ":",
            ",",
            "\\u12",
        ),
        *(
            "1. ",
            "2) ",
            "3.11 ",
            "\n",
            "\n\n",
            "- ",
            "* ",
            "**",
            "```json\n",
            "```",
            "<think>",
            "</think>",
            "Sure! ",
            "<|im_end|>",
        ),
        *(
            "parcel to Porto",
            "I'm sorry, but I",
            "包裹",
            "\ud800",
            "\x00",
            "\u2028",
            "\r\n",
            " ",
            "parcel " * 20,
            "{" * 50,
        ),
    ]
)
ANSWERS = st.one_of(
    st.text(alphabet=st.characters(codec=None)), st.lists(FRAGMENTS | st.text(max_size=5), max_size=25).map("".join)
)
WORDS = [
    "parcel",
    "Lyon",
    "Porto",
    "20",
    "kg",
    "C++",
    "3.11",
    "don't",
    "(2024)",
    "são",
    '"two words"',
    "b2b",
    "what?",
    "x{y}",
]
VALUES = (
    st.lists(st.sampled_from(WORDS), min_size=2, max_size=8, unique=True)
    .map(" ".join)
    .filter(lambda text: not (text.startswith('"') and text.endswith('"')))
)
FOUR_VALUES = st.tuples(VALUES, VALUES, VALUES, VALUES)


def as_json(values: tuple[str, ...], **options: object) -> str:
    return json.dumps({s.name: v for s, v in zip(FOUR, values, strict=True)}, **options)  # type: ignore[arg-type]


def as_labelled(values: tuple[str, ...]) -> str:
    return "\n".join(f"{s.label}: {v}" for s, v in zip(FOUR, values, strict=True))


def as_markdown(values: tuple[str, ...]) -> str:
    return "\n\n".join(f"{i}. **{s.name}**:\n{v}" for i, (s, v) in enumerate(zip(FOUR, values, strict=True), 1))


def as_numbered(values: tuple[str, ...]) -> str:
    return "\n".join(f"{i}. {v}" for i, v in enumerate(values, 1))


SHAPES = [as_json, as_labelled, as_markdown, as_numbered]


def read(answer: str, truncated: bool = False, requested: tuple = FOUR) -> dict[str, Parsed | Unread]:
    return parse(answer, QUERY, requested=requested, known=FOUR, instructions=INSTRUCTIONS, truncated=truncated)


def values_of(outcome: dict[str, Parsed | Unread]) -> dict[str, str]:
    """The texts that are whole; of a cut passage some sentences may be read, with a flag."""
    return {name: one.text for name, one in outcome.items() if isinstance(one, Parsed) and not one.flags}


def cut_passages(outcome: dict[str, Parsed | Unread]) -> dict[str, str]:
    return {name: one.text for name, one in outcome.items() if isinstance(one, Parsed) and one.flags == (CUT,)}


def check_outcome(answer: str, truncated: bool, requested: tuple) -> None:
    outcome = read(answer, truncated, requested)
    assert list(outcome) == [strategy.name for strategy in requested]
    for one in outcome.values():
        if isinstance(one, Unread):
            assert one.reason in MESSAGES
        else:
            assert one.parsed_as in RUNGS
            assert one.text == " ".join(one.text.split()) != ""
            assert "\0" not in one.text
            one.text.encode("utf-8")


@given(ANSWERS, st.booleans())
@example("[" * 100_000, False)
@example('{"general":' * 20_000, True)
@example('{"general": ' + "9" * 10_000 + "}", False)
def test_any_text_ends_as_one_rewrite_or_one_reason_for_each_of_four(answer: str, truncated: bool) -> None:
    check_outcome(answer, truncated, FOUR)


@given(ANSWERS, st.booleans(), st.sampled_from(FOUR))
def test_any_text_ends_as_one_rewrite_or_one_reason_for_one(answer: str, truncated: bool, strategy: object) -> None:
    check_outcome(answer, truncated, (strategy,))


@given(FOUR_VALUES, st.sampled_from(SHAPES), st.randoms(use_true_random=False), st.booleans())
def test_a_mutilated_answer_ends_as_one_rewrite_or_one_reason(
    values: tuple[str, ...], shape: object, chance: random.Random, truncated: bool
) -> None:
    answer = shape(values)  # type: ignore[operator]
    for _ in range(3):
        at, end = sorted(chance.choices(range(len(answer) + 1), k=2))
        answer = chance.choice(
            [
                answer[:at] + answer[end:],
                answer[:end] + answer[at:],
                answer[:at] + '\ud83d\x00"\n' + answer[at:],
                answer[at:end],
            ]
        )
    check_outcome(answer, truncated, FOUR)


NOISE_BEFORE = [
    "",
    "Sure! Here are the four rewrites:\n\n",
    "<think>\nThe user {wants}\n1. a plan\n</think>\n\n",
    "no tag\n</think>",
    "\n\n ",
]
NOISE_AFTER = [
    "",
    "\n\nLet me know if you need more!",
    "\n\nreason: they differ",
    "\n",
    "<|im_end|>",
    "\n\n---\nThese rewrites keep names.",
]


@given(FOUR_VALUES, st.sampled_from(SHAPES), st.sampled_from(NOISE_BEFORE), st.sampled_from(NOISE_AFTER), st.booleans())
def test_noise_around_a_good_answer_changes_nothing(
    values: tuple[str, ...], shape: object, before: str, after: str, fenced: bool
) -> None:
    answer = shape(values)  # type: ignore[operator]
    if fenced:
        answer, after = f"```\n{answer}\n```", f"\n{after}"
    expected = {s.name: v for s, v in zip(FOUR, values, strict=True)}
    assert values_of(read(before + answer + after)) == expected


@pytest.mark.parametrize("shape", SHAPES)
@FEW
@given(values=FOUR_VALUES)
def test_a_cut_answer_has_whole_values_or_none(shape: object, values: tuple[str, ...]) -> None:
    """Cut after every character. Those that are there are the true ones, and they come in the order of the answer."""
    answer = shape(values)  # type: ignore[operator]
    expected = {s.name: v for s, v in zip(FOUR, values, strict=True)}
    before = 0
    for at in range(len(answer)):
        outcome = read(answer[:at], truncated=True)
        found = values_of(outcome)
        assert found.items() <= expected.items()
        assert all(name == "pseudo_answer" and expected[name].startswith(text) for name, text in cut_passages(outcome).items())
        assert len(found) >= before  # more text never loses a value
        before = len(found)


@FEW
@given(FOUR_VALUES, st.sampled_from([{}, {"indent": 1}, {"ensure_ascii": False, "separators": (",", ":")}]))
def test_cut_json_has_whole_values_or_none_even_if_the_engine_does_not_say_that_it_was_cut(
    values: tuple[str, ...], options: dict[str, object]
) -> None:
    answer = as_json(values, **options)
    expected = {s.name: v for s, v in zip(FOUR, values, strict=True)}
    for at in range(len(answer)):
        assert values_of(read(answer[:at])).items() <= expected.items()


@pytest.mark.parametrize("strategy", FOUR, ids=lambda strategy: strategy.name)
@FEW
@given(value=VALUES, before=st.sampled_from(["", "Here is the rewritten query:\n", "```\n"]))
def test_a_cut_answer_to_a_call_of_its_own_is_whole_or_none(strategy: object, value: str, before: str) -> None:
    answer = f"{before}{value}\n\n---"
    for at in range(len(answer)):
        assert values_of(read(answer[:at], truncated=True, requested=(strategy,))).items() <= {(strategy.name, value)}  # type: ignore[attr-defined]


@given(VALUES, st.sampled_from(FOUR))
def test_a_plain_answer_to_a_call_of_its_own_is_the_rewrite(value: str, strategy: object) -> None:
    assert values_of(read(value, requested=(strategy,))) == {strategy.name: value}  # type: ignore[attr-defined]


@given(FOUR_VALUES, st.permutations(range(4)))
def test_labels_and_keys_count_and_their_order_does_not(values: tuple[str, ...], order: list[int]) -> None:
    pairs = [(FOUR[i], values[i]) for i in order]
    expected = {s.name: v for s, v in zip(FOUR, values, strict=True)}
    assert values_of(read("\n".join(f"{s.label}: {v}" for s, v in pairs))) == expected
    assert values_of(read(json.dumps({s.label.upper(): v for s, v in pairs}))) == expected


@pytest.mark.parametrize(
    "answer",
    [
        '{"general": "x"' + " \n" * 100_000,
        "*" * 200_000,
        "1. " * 60_000,
        "<think>" * 30_000,
        "Keyword Rewriting: " * 10_000,
        '"keyword": ' * 18_000,
        "ab" * 100_000,
        "- \n" * 60_000,
        "(" * 200_000,
        "here is " * 25_000,
        "\n".join(["Keyword Rewriting"] * 10_000),
        '{"keyword": "' + 'a\\"' * 60_000,
    ],
    ids=lambda answer: answer[:18],
)
def test_a_run_away_answer_is_read_in_a_moment(answer: str) -> None:
    import time

    started = time.process_time()
    for requested in (FOUR, FOUR[:1], FOUR[2:3]):
        check_outcome(answer, True, requested)
    assert time.process_time() - started < 5.0  # under 0.5 s each on a slow core; quadratic time would take minutes

"""Answers whose texts stand behind marks, or between separators."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewriters.engines import Completion
from rewriters.pool import load
from rewriters.reading.ladder import Parsed, parse_texts
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.strategy import Strategy
from tests.support.rewriters.pools import a_file, answered, asked, cut

QUERY = "caffeine in green tea and coffee"
TOKENS = {"texts": ["[S_Query]", "[S_Sub]"], "others": ["[A_Response]", "[EOS]"]}
LINES = {"texts": ["lex:", "vec:"], "others": ["hyde:"]}
TAGS = {"texts": ["<answer>"], "others": ["</answer>"]}
TEXT = {"prompt": "<|user|>{query}<|assistant|>", "prompt_as": "text"}


def texts(strategy: Strategy, answer: str | Completion, query: str = QUERY) -> list[tuple[int, str, str]] | str:
    """(position, text, parsed_as) of each; or the reason why there is none."""
    made = answered(Rewriter(Rewriting((strategy,))), query, answer)
    if made.rewrites:
        return [(one.position, one.text, one.parsed_as) for one in made.rewrites]
    (failure,) = made.failures
    return failure.reason


def of(*found: str, parsed_as: str = "marked") -> list[tuple[int, str, str]]:
    return [(position, text, parsed_as) for position, text in enumerate(found, 1)]


@pytest.mark.parametrize(
    ("fields", "answer", "read"),
    [
        ({"marks": TOKENS}, "[S_Query]caffeine of green tea[EOS]", of("caffeine of green tea")),
        ({"marks": TOKENS}, "[S_Query] caffeine of green tea", of("caffeine of green tea")),
        ({"marks": TOKENS}, "[S_Query]caffeine of green tea</s>", of("caffeine of green tea")),
        ({"marks": TOKENS}, "[S_Query]caffeine of tea[EOS][S_Sub]coffee and caffeine[EOS]", of("caffeine of tea")),
        ({"marks": TOKENS, "output": "lines", "n": 3},
         "[S_Query]caffeine of tea[EOS][S_Sub]coffee, caffeine[EOS][A_Response]30 mg",
         of("caffeine of tea", "coffee, caffeine")),
        ({"marks": TOKENS, "output": "lines", "n": 1}, "[S_Sub]caffeine of tea[EOS][S_Sub]coffee, caffeine[EOS]",
         of("caffeine of tea")),
        ({"marks": TOKENS}, "[A_Response]Tea has 30 mg.[EOS]", "unparsable"),
        ({"marks": TOKENS}, "Tea has 30 mg of caffeine, coffee 95.", "unparsable"),
        ({"marks": TOKENS}, "[S_Query][EOS]", "unparsable"),
        ({"marks": TOKENS}, "", "empty"),
        ({"marks": TOKENS} | TEXT | {"prompt": "{query}</s>[S_Query]"}, "caffeine of green tea[EOS]and[S_Sub]no",
         of("caffeine of green tea")),
        ({"marks": TOKENS} | TEXT | {"prompt": "{query}</s>[EOS]"}, "caffeine of green tea", "unparsable"),
        ({"marks": LINES, "output": "lines", "n": 4},
         "hyde: Green tea has about 30 mg.\nlex: green tea caffeine\nlex: coffee caffeine\nvec: how much caffeine has tea",
         of("green tea caffeine", "coffee caffeine", "how much caffeine has tea")),
        ({"marks": LINES, "output": "lines", "n": 4}, "lex: flex: and vec: in coffee\n\n  vec: tea or coffee",
         of("flex: and vec: in coffee", "tea or coffee")),
        ({"marks": {"texts": ["hyde:"], "others": ["lex:"]}, "search_as": "passage"},
         "hyde: Green tea has 30 mg.\nCoffee has more of it.\nlex: tea", of("Green tea has 30 mg. Coffee has more of it.")),
        ({"marks": TAGS, "output": "object", "keys": ["query"]},
         '<think>Use <answer> tags?</think>\n<answer>\n{"query": "(caffeine AND tea) OR coffee"}\n</answer>',
         of("(caffeine AND tea) OR coffee", parsed_as="json")),
        ({"marks": TAGS, "output": "array", "n": 2}, 'I list two.\n<answer>["tea caffeine", "coffee caffeine"]</answer> Done.',
         of("tea caffeine", "coffee caffeine", parsed_as="json")),
        ({"marks": TAGS, "output": "object", "keys": ["query"]}, '{"query": "caffeine of tea"}', "unparsable"),
        ({"separator": ";", "output": "lines", "n": 4}, "green tea caffeine; coffee caffeine ;; tea",
         of("green tea caffeine", "coffee caffeine", "tea", parsed_as="lines")),
        ({"separator": ";", "output": "lines", "n": 4}, "green tea caffeine", of("green tea caffeine", parsed_as="lines")),
        ({"separator": "**", "output": "lines", "n": 2}, "green tea caffeine** coffee caffeine** tea",
         of("green tea caffeine", "coffee caffeine", parsed_as="lines")),
    ],
)  # fmt: skip
def test_only_parts_that_are_texts_are_read(
    fields: dict[str, Any], answer: str, read: list[tuple[int, str, str]] | str
) -> None:
    assert texts(a_file(**fields), answer) == read


def test_a_part_that_the_token_limit_cut_is_no_text_and_whole_ones_before_it_are() -> None:
    strategy = a_file(marks=TOKENS, output="lines", n=3)
    assert texts(strategy, cut("[S_Query]caffeine of tea[EOS][S_Sub]coffee and caf")) == of("caffeine of tea")
    assert texts(strategy, cut("[S_Query]caffeine of gre")) == "truncated"
    assert texts(strategy, cut("[S_Query]caffeine of tea[EOS][A_Response]30 m")) == of("caffeine of tea")
    separated = a_file(separator=";", output="lines", n=3)
    assert texts(separated, cut("caffeine of tea; coffee and caf")) == of("caffeine of tea", parsed_as="lines")


def test_samples_have_a_text_each() -> None:
    strategy = a_file(marks=TOKENS, n=3, decoding={"temperature": 0.7})
    answers = ["[S_Query]caffeine of tea[EOS]", "[A_Response]30 mg", "[S_Sub]coffee caffeine[EOS][S_Sub]tea[EOS]"]
    made = answered(Rewriter(Rewriting((strategy,))), QUERY, *answers)
    assert [(one.position, one.text) for one in made.rewrites] == [(1, "caffeine of tea"), (2, "coffee caffeine")]


def test_texts_behind_marks_pass_the_same_checks_as_others() -> None:
    strategy = a_file(marks=TOKENS, output="lines", n=4, max_chars=40, banned=["mug"])
    answer = (
        "[S_Query]a mug of caffeine[EOS][S_Sub]Koffein in grünem Tee und in Kaffee aus der ganzen Welt zusammen[EOS]"
        "[S_Sub]I'm sorry, but I can't help with that.[EOS][S_Sub]tea caffeine[EOS]"
    )
    assert texts(strategy, answer) == of("tea caffeine")


def test_a_request_says_its_form_and_keeps_what_ends_an_answer() -> None:
    strategy = a_file(marks=TOKENS, decoding={"stop": ["###"]}, **TEXT)
    _, (request,) = asked(Rewriter(Rewriting((strategy,))), QUERY)
    assert (request.prompt, request.as_text) == (f"<|user|>{QUERY}<|assistant|>", True)
    assert request.marks == ("[S_Query]", "[S_Sub]", "[A_Response]", "[EOS]", "###")
    _, (usual,) = asked(Rewriter(Rewriting((load("hyde"),))), QUERY)
    assert (usual.as_text, usual.marks, usual.form) == (False, (), {})


def test_earlier_turns_stand_only_where_a_text_has_their_place() -> None:
    good = "label: Of One\nprompt_as: text\nprompt: '{query} =>'"
    blind = load("./one.yaml", context=True, read=lambda _: good)
    seeing = load("./one.yaml", context=True, read=lambda _: good.replace("{query}", "{context} {query}"))
    assert (blind.prompt, seeing.prompt) == ("{query} =>", "{context} {query} =>")


def test_the_form_counts_for_the_identity_and_the_usual_one_for_nothing() -> None:
    usual = a_file()
    assert {"prompt_as", "marks", "separator"}.isdisjoint(usual.identity())
    forms = [usual, a_file(marks=TOKENS), a_file(separator=";", output="lines"), a_file(prompt_as="text")]
    assert len({str(one.identity()) for one in forms}) == len(forms)


PARTS = st.lists(st.tuples(st.sampled_from(["[S_Query]", "[S_Sub]", "[A_Response]", "[EOS]"]), st.sampled_from(
    ["", "tea", " tea with milk ", "coffee\n", "the caffeine of coffee", "a cup", "30 mg"])), max_size=8)  # fmt: skip


@given(parts=PARTS, before=st.sampled_from(["", "words ", "\n"]), truncated=st.booleans())
def test_the_texts_are_those_behind_marks_of_texts_whatever_stands_around(
    parts: list[tuple[str, str]], before: str, truncated: bool
) -> None:
    strategy = a_file(marks=TOKENS, output="lines", n=20)
    answer = before + "".join(mark + text for mark, text in parts)
    read = parse_texts(answer, QUERY, strategy, strategy.prompt, truncated)
    wanted = [text.strip() for mark, text in parts if mark in TOKENS["texts"] and text.strip()]
    if truncated and wanted and parts[-1][0] in TOKENS["texts"] and parts[-1][1].strip():
        wanted.pop()
    assert [one.text for one in read if isinstance(one, Parsed)] == wanted

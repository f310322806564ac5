"""Answers whose texts stand behind marks, or between separators."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import RewriterError
from rewriters.pool import load
from rewriters.reading.ladder import Parsed, parse_texts
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.settings import SelectAdaptive
from tests.support.rewriters.pools import PRESETS, TRAINED, a_file, answered, asked, rewriter

QUERY = "caffeine in green tea and coffee"
TOKENS = {"texts": ["[S_Query]", "[S_Sub]"], "others": ["[A_Response]", "[EOS]"]}
TEXT = {"prompt": "<|user|>{query}<|assistant|>", "prompt_as": "text"}


def test_samples_have_a_text_each() -> None:
    strategy = a_file(marks=TOKENS, n=3, decoding={"temperature": 0.7})
    answers = ["[S_Query]caffeine of tea[EOS]", "[A_Response]30 mg", "[S_Sub]coffee caffeine[EOS][S_Sub]tea[EOS]"]
    made = answered(Rewriter(Rewriting((strategy,))), QUERY, *answers)
    assert [(one.position, one.text) for one in made.rewrites] == [(1, "caffeine of tea"), (2, "coffee caffeine")]


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


# ---------------------------------------------------------------- files of trained rewriters


def test_every_file_with_an_engine_is_here() -> None:
    with_engine = {one.stem for one in PRESETS.glob("*.yaml") if load(str(one)).engine is not None}
    assert with_engine == {load(entry).base for entry in TRAINED.values()}


@pytest.mark.parametrize("name", TRAINED)
def test_its_own_engine_is_asked_once_for_it_alone_and_no_refusal_is_a_text(name: str) -> None:
    strategy = load(TRAINED[name])
    _, requests = asked(rewriter(["general", TRAINED[name]]), QUERY)
    (request,) = [request for request in requests if request.engine == strategy.name]
    assert len(requests) == 2
    assert request.prompt.count(QUERY) == 1
    assert "{" not in request.prompt.replace('{"query": "..."}', "")
    assert (request.as_text, request.name) == (strategy.prompt_as == "text", strategy.name)
    assert {*(strategy.marks.all if strategy.marks else ()), *request.decoding.get("stop", ())} <= set(request.marks)
    for answer in ("", "   ", "I'm sorry, but I can't help with that.", "</s>"):
        found = answered(rewriter([TRAINED[name]]), QUERY, answer)
        assert (found.rewrites, len(found.failures)) == ([], 1)
    with pytest.raises(RewriterError, match="has an engine or a form of its own"):
        rewriter(["general", TRAINED[name]], select=SelectAdaptive(kind="adaptive"))

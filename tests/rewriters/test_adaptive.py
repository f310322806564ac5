"""Adaptive selection: one request shows the pool, and the LLM writes the rewrites of the strategies that it chooses."""

from __future__ import annotations

import json
import re

import pytest

from rewriters.adaptive import Demonstration, load_demonstrations
from rewriters.engines import Completion
from rewriters.pool import Entry, load_pool
from rewriters.results import Rewritten
from rewriters.rewriter import Rewriter
from rewriters.settings import SelectAdaptive
from rewriters.strategy import EXAMPLE_QUERY
from tests.support.rewriters.pools import FOUR, answered, asked, cut, rewriter

QUERY = "hello how much caffeine has green tea please"
ADAPTIVE = SelectAdaptive(kind="adaptive")
POOL: list[Entry] = [*FOUR, "rag_fusion"]


def adaptive(pool: list[Entry] = POOL, demonstrations: tuple[Demonstration, ...] = ()) -> Rewriter:
    return rewriter(pool, select=ADAPTIVE, demonstrations=demonstrations)


def read(answer: str | Completion) -> Rewritten:
    return answered(adaptive(), QUERY, answer)


def texts(made: Rewritten) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in made.rewrites:
        found.setdefault(one.strategy, []).append(one.text)
    return found


# ---------------------------------------------------------------- the request


def test_the_prompt_has_names_definitions_and_guidelines_and_ends_with_the_query() -> None:
    _, (request,) = asked(adaptive(), QUERY)
    assert (request.name, request.recorded_as, request.schema) == ("dmqr_adaptive", "dmqr_adaptive", None)
    for strategy in load_pool(POOL):
        more = " (up to 4 lines)" if strategy.name == "rag_fusion" else ""
        assert f"- {strategy.label}: {strategy.definition}{more}. For {strategy.usage}." in request.prompt
    assert request.prompt.endswith(f"Query: {QUERY}")


def test_demonstrations_stand_before_the_query_with_the_strategies_of_the_pool() -> None:
    ours = load_demonstrations(None)
    assert any(not one.rewrites for one in ours)  # a query that needs none
    _, (request,) = asked(adaptive(["keyword", "core_content"], ours), QUERY)
    shown = request.prompt.partition("nothing else.")[2]
    for one in ours:
        assert (f"Query: {one.query}\n" in shown) == (one.rewrites.keys() <= {"keyword", "core_content"})
    assert "Pseudo-Answer Rewriting" not in shown
    assert shown.count("reason: ") == shown.count("Query: ") - 1


@pytest.mark.parametrize(
    ("pool", "methods"),
    [
        (["general", "hyde"], ["General Search Rewriting"]),
        (["rag_fusion", "decompose"], ["Query Variants"]),
        (["hyde", "multi_query", "step_back"], ["Hypothetical Passage", "Perspectives"]),
        (["step_back"], ["Step-Back Question"]),
    ],
)
def test_a_pool_that_no_demonstration_fits_has_one_of_its_own_examples(pool: list[Entry], methods: list[str]) -> None:
    _, (request,) = asked(adaptive(pool, load_demonstrations(None)), QUERY)
    shown = request.prompt.partition("nothing else.")[2]
    lines = re.findall(r"(?m)^([A-Z][^:\n]+): ", shown.partition(EXAMPLE_QUERY)[2].partition("reason: ")[0])
    assert list(dict.fromkeys(lines)) == methods
    for strategy in load_pool(pool):
        texts = strategy.example.splitlines() if strategy.label in methods else []
        assert [f"{strategy.label}: {text}" in shown for text in texts] == [True] * len(texts)
        assert (strategy.usage in shown) == (strategy.label in methods)
    for word in ("repair guide", "essay"):  # reasons for methods that are not shown
        assert word not in shown


def test_one_at_least_is_another_prompt() -> None:
    """DMQR-RAG chooses one to four strategies; a gate that may choose none is another arm."""
    ours = load_demonstrations(None)
    gate = rewriter(list(FOUR), select=ADAPTIVE, demonstrations=ours)
    paper = rewriter(list(FOUR), select=SelectAdaptive(kind="adaptive", least=1), demonstrations=ours)
    (may_choose_none,), (at_least_one,) = asked(gate, QUERY)[1], asked(paper, QUERY)[1]
    assert "may need none or one" in may_choose_none.prompt
    assert "population of tartu" in may_choose_none.prompt
    assert "Choose one\n  at least;" in at_least_one.prompt
    assert "none" not in at_least_one.prompt.partition("Query:")[0].replace("nothing", "")
    assert "population of tartu" not in at_least_one.prompt
    assert gate.identity() != paper.identity()


# ---------------------------------------------------------------- its answer


def test_labelled_lines_are_the_choice_and_the_last_line_the_reason() -> None:
    made = read("General Query Rewriting: tea\nPseudo-Answer Rewriting: It has 30 mg.\nreason: names and a number.")
    assert texts(made) == {"general": ["tea"], "pseudo_answer": ["It has 30 mg."]}
    assert made.failures == []
    assert (list(made.choice.texts), made.choice.reason) == (["general", "pseudo_answer"], "names and a number.")
    assert {one.selected_reason for one in made.rewrites} == {"names and a number."}


def test_a_label_on_several_lines_gives_several_texts_up_to_n() -> None:
    lines = [f"Query Variants: green tea {word}" for word in ("caffeine", "milligrams", "cup", "leaves", "kinds")]
    made = read("\n".join([*lines, "Reason: several sides"]))
    assert [(one.position, one.text) for one in made.rewrites] == [
        (1, "green tea caffeine"), (2, "green tea milligrams"), (3, "green tea cup"), (4, "green tea leaves"),
    ]  # fmt: skip
    assert made.failures == []


def test_json_is_read_too() -> None:
    answer = {"keyword": "green tea, caffeine", "core_content": "caffeine green tea", "reason": "short and clear"}
    for indent in (None, 1):
        made = read(json.dumps(answer, indent=indent))
        assert texts(made) == {"keyword": ["green tea, caffeine"], "core_content": ["caffeine green tea"]}
        assert made.choice.reason == "short and clear"
        assert {one.parsed_as for one in made.rewrites} == {"json"}


@pytest.mark.parametrize("answer", ["reason: It is short and clear.", "None.\n\n**Reason:** It is short and clear."])
def test_none_may_be_chosen(answer: str) -> None:
    made = read(answer)
    assert (made.rewrites, made.failures) == ([], [])
    assert (dict(made.choice.texts), made.choice.reason) == ({}, "It is short and clear.")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("Let me think about that.", "unparsable"),
        ("", "empty"),
        (cut("Let me thi"), "truncated"),
        (Completion(None, None, "m", error_reason="timed_out", error_message="no answer in 60 s"), "timed_out"),
    ],
)
def test_where_nothing_can_be_read_every_strategy_fails_once(answer: str | Completion, reason: str) -> None:
    made = read(answer)
    assert made.rewrites == []
    assert [(one.strategy, one.reason) for one in made.failures] == [(name, reason) for name in POOL]
    assert list(made.choice.texts) == POOL


def test_a_cut_answer_keeps_its_whole_lines() -> None:
    made = read(cut("Keyword Rewriting: green tea, caffeine\nCore Content Extraction: caffeine gre"))
    assert texts(made) == {"keyword": ["green tea, caffeine"]}
    assert [(one.strategy, one.reason) for one in made.failures] == [("core_content", "truncated")]
    assert list(made.choice.texts) == ["keyword", "core_content"]


# ---------------------------------------------------------------- files of demonstrations

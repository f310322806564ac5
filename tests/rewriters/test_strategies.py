"""The contract of every file in rewriters/strategies/, and the worked example of the four."""

import json
import re
from pathlib import Path

import pytest

from rewriters.adaptive import adaptive_template
from rewriters.calls import joint_schema, joint_template
from rewriters.pool import OF_THE_QUERY, load, load_pool, shipped
from rewriters.query import Query
from rewriters.reading.ladder import Parsed, parse, prepared
from rewriters.strategy import EXAMPLE_QUERY, one_line, variables
from tests.support.rewriters.pools import FOUR, rewriter

JOINT = [name for name in shipped() if load(name).joint]
WITH_EXAMPLE = [name for name in shipped() if load(name).example]
POOL = load_pool(FOUR)
ROOT = Path(__file__).parents[2]


def test_every_strategy_can_be_planned_beside_all_others() -> None:
    assert {strategy.name for strategy in rewriter(list(shipped())).strategies} == set(shipped())


@pytest.mark.parametrize("name", shipped())
class TestEveryStrategy:
    def test_its_prompt_has_instructions_then_the_query_and_no_other_variable(self, name: str) -> None:
        (request,) = rewriter([name], "separate").requests(Query("id1", "{query} in {braces}?"))
        assert (request.name, request.recorded_as) == (name, name)
        assert request.prompt.endswith("Query: {query} in {braces}?")
        assert len(request.prompt) > 200
        assert variables(load(name).prompt) == {"query"}
        assert variables(load(name, context=True).prompt) == {"query", "context"}

    def test_its_prompt_tells_the_language_how_many_texts_and_that_the_query_is_no_order(self, name: str) -> None:
        strategy, german = load(name), load(name, language="German")
        assert OF_THE_QUERY in strategy.prompt
        assert "do not follow it" in strategy.prompt
        assert OF_THE_QUERY not in german.prompt
        assert "in German" in " ".join(german.prompt.split())
        assert (strategy.any_language, german.any_language) == (False, True)
        if strategy.n > 1:
            assert re.search(rf"\b{strategy.n}\b", strategy.prompt)
            assert re.search(r"\b17\b", load({name: {"n": 17, "temperature": 0.7}}).prompt)

    def test_it_can_be_offered_for_adaptive_selection(self, name: str) -> None:
        strategy = load(name)
        assert one_line(strategy.definition)
        assert one_line(strategy.usage)
        assert f"- {strategy.label}: {strategy.definition}" in adaptive_template([strategy], [], None, False, 0)


@pytest.mark.parametrize("name", WITH_EXAMPLE)
def test_its_own_example_passes_its_own_checks_but_not_for_another_query(name: str) -> None:
    strategy = load(name)
    joint = joint_template([strategy])
    for query, instructions, passes in ((EXAMPLE_QUERY, strategy.prompt, True), ("tallest volcano of iceland", joint, False)):
        answer = f"{strategy.label}: {strategy.example}"
        outcome = parse(prepared(answer, query, [strategy], [strategy], instructions, truncated=False))[name]
        assert isinstance(outcome, Parsed) == passes


def test_the_papers_four_share_the_joint_request_with_their_labels_and_how_they_are_searched() -> None:
    assert sorted(FOUR) == JOINT
    assert [(s.label, s.search_as) for s in POOL] == [
        ("General Search Rewriting", "query"),
        ("Keyword Rewriting", "query"),
        ("Pseudo-Answer Rewriting", "passage"),
        ("Core Content Extraction", "query"),
    ]
    assert {name for name in shipped() if load(name).search_as == "passage"} == {"pseudo_answer", "hyde"}
    assert {name for name in shipped() if load(name).include_original} == {"expand", "query2doc"}


def test_query2doc_is_a_passage_in_an_answer_and_a_query_for_an_encoder() -> None:
    """The paper encodes the query and the passage behind it as a query."""
    strategy = load("query2doc")
    assert (strategy.search_as, strategy.is_passage) == ("query", True)
    answer = "Yeast makes gas in the dough.\nThat lifts the bread."
    read = parse(prepared(answer, "why does bread rise", [strategy], [], strategy.prompt, truncated=False))["query2doc"]
    assert isinstance(read, Parsed)
    assert read.text == "Yeast makes gas in the dough. That lifts the bread."


# ---------------------------------------------------------------- the joint request


def test_the_joint_prompt_names_every_strategy_once_in_the_order_given_and_then_the_query() -> None:
    template = joint_template(POOL[::-1])
    places = [template.index(f"- {s.name} ({s.label}): {s.definition}.") for s in POOL]
    assert places == sorted(places, reverse=True)
    assert template.endswith("Query: {query}")
    assert POOL[1].definition not in joint_template(POOL[:1])


def test_the_worked_example_is_an_answer_by_the_schema() -> None:
    (line,) = [line for line in joint_template(POOL).split("\n") if line.startswith("{")]
    lengths = {strategy.name: {"type": "string", "maxLength": strategy.max_chars + 1} for strategy in POOL}
    schema = {"type": "object", "properties": lengths, "required": FOUR, "additionalProperties": False}
    assert joint_schema(POOL) == schema
    assert list(json.loads(line)) == FOUR
    assert all(0 < len(text) < POOL[place].max_chars for place, text in enumerate(json.loads(line).values()))
    assert EXAMPLE_QUERY in joint_template(POOL)
    page = (ROOT / "docs" / "strategies.md").read_text(encoding="utf-8")
    assert " ".join(EXAMPLE_QUERY.split()) in " ".join(page.replace(">", " ").split())


def test_a_prompt_of_one_s_own_is_filled_with_the_strategies() -> None:
    template = joint_template(
        POOL[:2], 'Do:\n{methods}\nA {"json": {}} with {}.\n{example_query}\n{example}\n{methods}\n{query}'
    )
    methods = "\n".join(f"- {s.name} ({s.label}): {s.definition}." for s in POOL[:2])
    example = json.dumps({s.name: s.example for s in POOL[:2]})
    assert template == f'Do:\n{methods}\nA {{"json": {{}}}} with {{}}.\n{EXAMPLE_QUERY}\n{example}\n{methods}\n{{query}}'

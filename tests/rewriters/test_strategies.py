"""The contract of every file in rewriters/strategies/, and the worked example of the four."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rewriters.adaptive import adaptive_template
from rewriters.joint import joint_template
from rewriters.lengths import length
from rewriters.normalise import normalise
from rewriters.pool import OF_THE_QUERY, load, load_pool, shipped
from rewriters.query import Query
from rewriters.reading.ladder import Parsed, parse
from rewriters.strategy import EXAMPLE_QUERY, one_line, render, template_hash, variables
from tests.support.rewriters.pools import FOUR, rewriter

JOINT = [name for name in shipped() if load(name).joint]
WITH_EXAMPLE = [name for name in shipped() if load(name).example]


def test_every_strategy_can_be_planned_beside_all_others() -> None:
    assert {strategy.name for strategy in rewriter(list(shipped())).strategies} == set(shipped())


@pytest.mark.parametrize("name", shipped())
class TestEveryStrategy:
    def test_it_has_the_name_of_its_file_and_is_ours(self, name: str) -> None:
        strategy = load(name)
        assert (strategy.name, strategy.base, strategy.recorded_as, strategy.own_file) == (name, name, name, False)

    def test_its_prompt_has_the_instructions_first_and_the_query_last(self, name: str) -> None:
        prompt = render(load(name).prompt, {"query": "{query} in {braces}?"})
        assert prompt.endswith("Query: {query} in {braces}?")
        assert len(prompt) > 200

    def test_its_prompt_has_no_variable_left_but_the_query(self, name: str) -> None:
        assert variables(load(name).prompt) == {"query"}
        assert variables(load(name, context=True).prompt) == {"query", "context"}

    def test_its_prompt_tells_the_language_and_that_the_query_is_no_order(self, name: str) -> None:
        strategy, german = load(name), load(name, language="German")
        assert OF_THE_QUERY in strategy.prompt
        assert "do not follow it" in strategy.prompt
        assert OF_THE_QUERY not in german.prompt
        assert "in German" in " ".join(german.prompt.split())
        assert (strategy.any_language, german.any_language) == (False, True)

    def test_its_prompt_tells_how_many_texts_it_wants(self, name: str) -> None:
        strategy = load(name)
        if strategy.n > 1:
            assert re.search(rf"\b{strategy.n}\b", strategy.prompt)
            assert re.search(r"\b17\b", load({name: {"n": 17, "temperature": 0.7}}).prompt)

    def test_it_can_be_offered_for_adaptive_selection(self, name: str) -> None:
        strategy = load(name)
        assert one_line(strategy.definition)
        assert one_line(strategy.usage)
        assert f"- {strategy.label}: {strategy.definition}" in adaptive_template([strategy], [])

    def test_its_template_has_a_hash_of_16_hex_digits(self, name: str) -> None:
        digits = template_hash(load(name).prompt)
        assert len(digits) == 16
        assert int(digits, 16) >= 0

    def test_its_weight_and_length_are_usable(self, name: str) -> None:
        strategy = load(name)
        assert strategy.weight >= 0
        assert len(strategy.example) <= strategy.max_chars

    def test_one_request_asks_for_it(self, name: str) -> None:
        (request,) = rewriter([name], "separate").requests(Query("id1", "tea"))
        assert (request.name, request.recorded_as) == (name, name)
        assert request.prompt.endswith("Query: tea")


@pytest.mark.parametrize("name", WITH_EXAMPLE)
def test_its_own_example_passes_its_own_checks_but_not_for_another_query(name: str) -> None:
    strategy = load(name)
    joint = joint_template([strategy])
    for query, instructions, passes in ((EXAMPLE_QUERY, strategy.prompt, True), ("tallest volcano of iceland", joint, False)):
        answer = f"{strategy.label}: {strategy.example}"
        outcome = parse(answer, query, requested=[strategy], known=[strategy], instructions=instructions, truncated=False)[name]
        assert isinstance(outcome, Parsed) == passes


@pytest.mark.parametrize("name", JOINT)
def test_it_takes_part_in_the_joint_prompt_by_its_definition(name: str) -> None:
    strategy = load(name)
    assert strategy.is_joint
    assert f"- {name} ({strategy.label}): {strategy.definition}" in joint_template([strategy])


def test_the_papers_four_share_the_joint_request_with_their_labels_and_how_they_are_searched() -> None:
    assert sorted(FOUR) == JOINT
    assert [(s.label, s.search_as) for s in load_pool(FOUR)] == [
        ("General Search Rewriting", "query"),
        ("Keyword Rewriting", "query"),
        ("Pseudo-Answer Rewriting", "passage"),
        ("Core Content Extraction", "query"),
    ]


def test_passages_are_searched_as_passages_and_everything_else_as_a_query() -> None:
    assert {name for name in shipped() if load(name).search_as == "passage"} == {"pseudo_answer", "hyde"}


def test_query2doc_is_a_passage_in_an_answer_and_a_query_for_an_encoder() -> None:
    """The paper encodes the query and the passage behind it as a query."""
    strategy = load("query2doc")
    assert (strategy.search_as, strategy.is_passage) == ("query", True)
    query = "why does bread rise"
    answer = "Yeast makes gas in the dough.\nThat lifts the bread."
    read = parse(answer, query, requested=[strategy], known=[], instructions=strategy.prompt, truncated=False)["query2doc"]
    assert isinstance(read, Parsed)
    assert read.text == "Yeast makes gas in the dough. That lifts the bread."


def test_texts_beside_the_original_have_it_before_them() -> None:
    assert {name for name in shipped() if load(name).include_original} == {"expand", "query2doc"}


# The example query without its noise. Keywords are nouns: "car rental" for "rent a car", "age 67" for "67-year-old".
INFORMATION = ["documents", "german", "67", "rent", "car", "iceland", "march", "2025", "driving", "licence", "1978"]
FUNCTION_WORDS = {"a", "age", "car", "does", "old", "rental", "to", "which", "with", "year"}  # rewording adds these alone


def words(text: str) -> list[str]:
    return re.findall(r"\w+", normalise(text))


def has(text: str, word: str) -> bool:
    return any(one.startswith(word) for one in words(text))


class TestTheWorkedExampleByThePapersDefinitions:
    general, keyword, pseudo_answer, core_content = (load(name).example for name in FOUR)

    def test_general_keeps_all_information_and_drops_the_noise_alone(self) -> None:
        assert [word for word in INFORMATION if not has(self.general, word)] == []
        assert not {"hi", "sorry", "asked", "before", "wich", "thanks", "lot"} & set(words(self.general))
        assert {word for word in words(self.general) if not has(EXAMPLE_QUERY, word[:4])} <= FUNCTION_WORDS

    def test_keyword_has_the_same_information_between_commas(self) -> None:
        assert [word for word in INFORMATION if not has(self.keyword, word)] == []
        assert {word for word in words(self.keyword) if not has(EXAMPLE_QUERY, word[:4])} <= FUNCTION_WORDS
        assert len(self.keyword.split(", ")) > 4
        assert not {"which", "does", "a", "to", "if", "the", "was"} & set(words(self.keyword))

    def test_pseudo_answer_is_more_and_at_most_three_sentences(self) -> None:
        assert len(words(self.pseudo_answer)) > len(words(self.general))
        assert 1 <= len(re.findall(r"[.!?](?: |$)", self.pseudo_answer)) <= 3
        assert "?" not in self.pseudo_answer

    def test_core_content_is_less_than_the_keywords_and_adds_nothing(self) -> None:
        assert length(self.core_content) < length(self.keyword)
        assert {word for word in words(self.core_content) if not has(EXAMPLE_QUERY, word[:4])} <= FUNCTION_WORDS
        assert all(has(self.core_content, word) for word in ("documents", "rent", "car"))  # what is asked


def test_the_example_s_query_stands_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "strategies.md").read_text(encoding="utf-8")
    assert " ".join(EXAMPLE_QUERY.split()) in " ".join(page.replace(">", " ").split())

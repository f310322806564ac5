"""The contract of every file in rewriters/strategies/, and what a wrong one says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from rewriters import strategies
from rewriters.joint import joint_template
from rewriters.lengths import length
from rewriters.normalise import normalise
from rewriters.reading.ladder import Parsed, parse
from rewriters.rewriter import Rewriter
from rewriters.strategy import (
    EXAMPLE_QUERY,
    SHIPPED_PROMPTS,
    RewriterError,
    Strategy,
    load_strategy,
    render,
    strategy_names,
    template_hash,
)

GOOD = {
    "name": "sub_query",
    "label": "Sub-Query Rewriting",
    "definition": "the first question to answer",
    "example": "which licence is accepted in Iceland",
    "prompt": "Ask the first question to answer.\n\nQuery: {query}",
}


@pytest.mark.parametrize("name", strategy_names())
class TestEveryStrategy:
    def test_it_has_the_name_of_its_file(self, name: str) -> None:
        assert load_strategy(name).name == name

    def test_its_prompt_has_the_instructions_first_and_the_query_last(self, name: str) -> None:
        prompt = render(load_strategy(name).prompt, "{query} in {braces}?")
        assert prompt.endswith("{query} in {braces}?")
        assert len(prompt) > 200

    def test_its_prompt_tells_the_language_and_that_the_query_is_no_order(self, name: str) -> None:
        prompt = load_strategy(name).prompt
        assert "language of the query" in prompt
        assert "do not follow it" in prompt

    def test_its_own_example_passes_its_own_checks_but_not_for_another_query(self, name: str) -> None:
        strategy = load_strategy(name)
        for query, whole in ((EXAMPLE_QUERY, True), ("tallest volcano of iceland", False)):
            outcome = parse(
                f"{strategy.label}: {strategy.example}",
                query,
                requested=[strategy],
                known=[strategy],
                instructions=strategy.prompt if whole else joint_template([strategy]),
                truncated=False,
            )[name]
            assert isinstance(outcome, Parsed) == whole

    def test_it_takes_part_in_the_joint_prompt_by_its_definition(self, name: str) -> None:
        strategy = load_strategy(name)
        template = joint_template([strategy])
        assert f"- {name} ({strategy.label}): {strategy.definition}" in template

    def test_its_template_has_a_hash_of_16_hex_digits(self, name: str) -> None:
        digits = template_hash(load_strategy(name).prompt)
        assert len(digits) == 16
        assert int(digits, 16) >= 0

    def test_its_weight_and_length_are_usable(self, name: str) -> None:
        strategy = load_strategy(name)
        assert strategy.weight >= 0
        assert len(strategy.example) <= strategy.max_chars


def test_the_papers_four_are_there_with_their_labels_and_how_they_are_searched() -> None:
    four = [load_strategy(name) for name in ("general", "keyword", "pseudo_answer", "core_content")]
    assert [(s.label, s.search_as) for s in four] == [
        ("General Search Rewriting", "query"),
        ("Keyword Rewriting", "query"),
        ("Pseudo-Answer Rewriting", "passage"),
        ("Core Content Extraction", "query"),
    ]


# The example query without its noise. Keywords are nouns: "car rental" for "rent a car", "age 67" for "67-year-old".
INFORMATION = ["documents", "german", "67", "rent", "car", "iceland", "march", "2025", "driving", "licence", "1978"]
FUNCTION_WORDS = {"a", "age", "car", "does", "old", "rental", "to", "which", "with", "year"}  # rewording adds these alone


def words(text: str) -> list[str]:
    return re.findall(r"\w+", normalise(text))


def has(text: str, word: str) -> bool:
    return any(one.startswith(word) for one in words(text))


class TestTheWorkedExampleByThePapersDefinitions:
    general, keyword, pseudo_answer, core_content = (
        load_strategy(name).example for name in ("general", "keyword", "pseudo_answer", "core_content")
    )

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


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"prompt": "Rewrite {question}"}, "placeholder {query} once and no other, found: {question}"),
        ({"prompt": "Rewrite {query} in {language}: {query}"}, "found: {query}, {language}, {query}"),
        ({"prompt": "Rewrite the query."}, "found: none"),
        ({"prompt": "Rewrite {query} briefly."}, "must end with {query}"),
        ({"prompt": "Rewrite { query }"}, "found: { query }"),
        ({"name": "Sub-Query"}, "lower-case letters"),
        ({"name": "original"}, "name is taken"),
        ({"label": "Sub: Query"}, "no colon"),
        ({"search_as": "document"}, "query or passage, found: 'document'"),
        ({"max_chars": 0}, "found: 0"),
        ({"weight": -1.0}, "found: -1.0"),
        ({"weight": float("nan")}, "found: nan"),
        ({"definition": ""}, "its definition must be one line"),
        ({"definition": "what {query} is after"}, "its definition must be one line"),
        ({"example": "a\nb"}, "its example must be one line"),
        (
            {"example": "why is the sky blue at noon"},
            "its example must rewrite the one query that the joint prompt shows, and so share a number or a word of five "
            f"letters or more with it: {EXAMPLE_QUERY!r}; found: 'why is the sky blue at noon'; correct its file",
        ),
        ({"aliases": ("SQ:",)}, "no colon"),
    ],
)
def test_a_wrong_strategy_is_refused_when_it_is_made(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(RewriterError) as refused:
        Strategy(**(GOOD | wrong))  # type: ignore[arg-type]
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_hashes_of_the_shipped_prompts_are_those_of_the_files() -> None:
    assert {name: template_hash(load_strategy(name).prompt) for name in SHIPPED_PROMPTS} == SHIPPED_PROMPTS


def test_the_example_s_query_stands_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "strategies.md").read_text(encoding="utf-8")
    assert " ".join(EXAMPLE_QUERY.split()) in " ".join(page.replace(">", " ").split())


def test_a_strategy_outside_the_joint_call_needs_no_definition() -> None:
    assert Strategy(**(GOOD | {"definition": "", "example": "", "joint": False})).joint is False  # type: ignore[arg-type]


def test_an_unknown_name_answers_with_the_nearest_and_the_list() -> None:
    with pytest.raises(RewriterError) as unknown:
        load_strategy("pseudo-answer")
    message = str(unknown.value)
    assert "'pseudo-answer'; did you mean 'pseudo_answer'?" in message
    assert ", ".join(strategy_names()) in message


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A second folder of strategies, as if its files lay in rewriters/strategies/."""
    monkeypatch.setattr(strategies, "__path__", [*strategies.__path__, str(tmp_path)])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith(f"{strategies.__name__}."):
            del sys.modules[name]
            delattr(strategies, name.rpartition(".")[2])


def _write(folder: Path, file: str, **changes: object) -> None:
    fields = ", ".join(f"{key}={value!r}" for key, value in (GOOD | changes).items())
    (folder / f"{file}.py").write_text(f"from rewriters.strategy import Strategy\n\nSTRATEGY = Strategy({fields})\n")


def test_adding_a_strategy_is_one_file(folder: Path) -> None:
    _write(folder, "sub_query")
    assert "sub_query" in strategy_names()
    rewriter = Rewriter(["general", "sub_query"], "joint", {})
    (request,) = rewriter.requests("q", "who wrote it")
    assert "- sub_query (Sub-Query Rewriting): the first question to answer." in request.prompt
    assert request.schema is not None
    assert list(request.schema["properties"]) == ["general", "sub_query"]
    for answer in ('{"general": "a b", "sub_query": "c d"}', "General Search Rewriting: a b\nSub Query Rewriting: c d"):
        outcome = parse(answer, "x", requested=rewriter.strategies, known=rewriter.strategies, instructions="", truncated=False)
        assert {name: one.text for name, one in outcome.items() if isinstance(one, Parsed)} == {
            "general": "a b",
            "sub_query": "c d",
        }


def test_prompts_that_nobody_wrote_for_it_or_that_are_sent_are_not_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(folder, "sub_query")
    assert Rewriter(["general", "keyword"], "joint", {}).unsent_prompts() == []
    assert Rewriter(["general", "sub_query"], "joint", {}).unsent_prompts() == ["sub_query"]
    assert Rewriter(["general", "sub_query"], "separate", {}).unsent_prompts() == []
    monkeypatch.setitem(SHIPPED_PROMPTS, "general", "0" * 16)
    assert Rewriter(["general", "keyword"], "joint", {}).unsent_prompts() == ["general"]


def test_a_prompt_of_a_strategy_with_requests_of_its_own_is_sent(folder: Path) -> None:
    _write(folder, "sub_query", joint=False)
    assert Rewriter(["general", "sub_query"], "joint", {}).unsent_prompts() == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("STRATEGY = 3", "must export STRATEGY = Strategy(...), found: int"),
        ("", "must export STRATEGY = Strategy(...), found: NoneType"),
        ("import a_package_that_is_not_there", "cannot be loaded: ModuleNotFoundError"),
        ("def (", "cannot be loaded: SyntaxError"),
    ],
)
def test_a_file_that_is_no_strategy_says_so(folder: Path, text: str, said: str) -> None:
    (folder / "broken.py").write_text(text)
    with pytest.raises(RewriterError, match=r"strategies/broken.py") as refused:
        load_strategy("broken")
    assert said in str(refused.value)


def test_a_file_whose_strategy_has_another_name_is_refused(folder: Path) -> None:
    _write(folder, "renamed")
    with pytest.raises(RewriterError, match=r"named 'sub_query'; name it as its file, 'renamed'"):
        load_strategy("renamed")


def test_a_file_with_a_wrong_placeholder_is_refused_at_load(folder: Path) -> None:
    _write(folder, "sub_query", prompt="Rewrite {text}")
    with pytest.raises(RewriterError, match=r"strategies/sub_query.py: strategy 'sub_query': .* found: \{text\}"):
        load_strategy("sub_query")


def test_two_strategies_with_one_label_are_refused_together(folder: Path) -> None:
    _write(folder, "sub_query", label="keyword rewriting")
    with pytest.raises(RewriterError, match="'keyword' and 'sub_query' both answer to 'keyword rewriting'"):
        Rewriter(["keyword", "sub_query"], "joint", {})

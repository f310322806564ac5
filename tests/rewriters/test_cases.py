"""Functions of one text or two, each with a table of arguments and results: cases.yaml."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rewriters.adaptive import reason_in
from rewriters.classifier import Rules, load_rules
from rewriters.engines import Completion
from rewriters.engines.anthropic import MessagesProtocol
from rewriters.gate import decide
from rewriters.guards.guards import compared, near_duplicates
from rewriters.guards.mask import Mask, has_check_digit, unmasked
from rewriters.guards.preserve import lost, parts
from rewriters.guards.words import has_answer
from rewriters.lengths import length
from rewriters.normalise import normalise
from rewriters.pool import Entry, load, load_pool, named
from rewriters.query import Query
from rewriters.reading.checks import is_in_wrong_language
from rewriters.reading.thinking import strip_thinking
from rewriters.reading.words.languages import is_foreign, language_of, scripts
from rewriters.reading.words.romanised import is_romanised
from rewriters.reading.words.sentences import whole_sentences
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.selection import chosen
from rewriters.settings import SelectClassified, SelectColumn
from rewriters.steps.reading import StepResult, read_step
from rewriters.steps.step import LlmStep
from tests.support.rewriters.messages_server import message
from tests.support.rewriters.pools import FOUR, TRAINED, a_file, answered, cut, rewriter, said, texts_of

GRADED = LlmStep(name="grade", prompt="{query}", output="grade", grades={"relevant": 2, "ambiguous": 1, "irrelevant": 0})
GRADES = LlmStep(name="rate", prompt="{query}", output="grades", keys=("a", "b"), grades={str(n): n for n in range(4)})
OBJECT = LlmStep(name="parts", prompt="{query}", output="object", keys=("question", "why"))


def masked(text: str) -> str:
    mask = Mask(("mail", "phone", "card"))
    assert unmasked(mask(text), mask.values) == text
    return mask(text)


def near(one: str, other: str) -> bool:
    found = near_duplicates(compared(one, "query"), compared(other, "query"))
    assert found == near_duplicates(compared(other, "query"), compared(one, "query"))
    return found


def by_own_rule(condition: dict[str, Any], query: str) -> bool:
    types = {"comparison": "weighs", "question": "asks"}
    rules = {"rules": [{"type": "comparison", **condition}], "otherwise": "question", "descriptions": types}
    return Rules.model_validate(rules | {"strategies": dict.fromkeys(types, 1)}).type_of(query) == "comparison"


def step_result(step: LlmStep, text: str) -> StepResult:
    result = read_step(step, Completion(text, "stop", "tiny"), "q")
    assert (result.reason is None) == (result.text is not None)
    return result


def marked(fields: dict[str, Any], answer: str, is_cut: bool = False) -> list[list[object]] | str:
    found = texts_of(a_file(**fields), cut(answer) if is_cut else answer, "caffeine in green tea and coffee")
    return found if isinstance(found, str) else [list(text) for text in found]


def reader_of_three(answer: str) -> str:
    found = texts_of(load("multi_query"), answer, "caffeine in green tea and coffee")
    wanted = ["caffeine content of green tea", "how much caffeine has coffee", "tea or coffee for the morning"]
    assert [text for _, text, _ in found] == wanted
    return found[0][2]


def trained(name: str, answer: str, is_cut: bool) -> list[str]:
    one = Rewriter(Rewriting(load_pool([TRAINED[name]]), decoding={"temperature": 0.0, "max_tokens": 512}))
    query = "is the keeper of the old lighthouse older than its lamp?"
    made = answered(one, query, cut(answer) if is_cut else said(answer))
    assert bool(made.failures) == (not made.rewrites or (is_cut and name != "qmd_passage"))
    return [one.text for one in made.rewrites]


POOL: list[Entry] = [*FOUR, {"rag_fusion": {"n": 2}}, {"rag_fusion": {"n": 3, "temperature": 0.5}}]


def by_cell(cell: str | None) -> list[str]:
    one = rewriter(POOL, select=SelectColumn(kind="column", column="methods"))
    choice = one.choose(Query("id1", "tea", None, {} if cell is None else {"methods": cell}))
    assert choice.note is None
    return list(choice.texts)


def typed_by_llm(answer: str | None) -> str | None:
    select = SelectClassified(kind="classified", by="llm")
    one = rewriter(["hyde", "multi_query", "step_back", "decompose"], select=select, rules=load_rules("english"))
    choice = one.choose(Query("id1", "printer not working"), said(answer))
    assert choice.answered == (choice.query_type != "debugging")
    return choice.query_type


def ended_at_anthropic(words: str) -> str:
    found = MessagesProtocol().completion(message("so", stop_reason=words, thought="hm"))
    assert found.text == "so"
    return found.finish_reason


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "is_foreign": is_foreign,
    "is_romanised": lambda latin, native: (
        is_romanised(latin, native, scripts(native)) and not is_in_wrong_language(native, latin)
    ),
    "is_in_wrong_language": is_in_wrong_language,
    "language_of": language_of,
    "whole_sentences": whole_sentences,
    "strip_thinking": lambda text, query: " ".join(strip_thinking(text, query).split()),
    "length": length,
    "normalise": normalise,
    "lost": lambda query, text: sorted(f"{part.flag[5:]} {part.value}" for part in lost(text, parts(query))),
    "masked": masked,
    "unmasked": lambda text: unmasked(text, {"MAIL_1": "a@b.io"}),
    "has_check_digit": has_check_digit,
    "near_duplicates": near,
    "has_answer": has_answer,
    "gate": lambda scores, below: list(decide("bm25", scores, below)),
    "type_of": load_rules("english").type_of,
    "reason_in": reason_in,
    "name_of": lambda entry: named(entry).name,
    "grade": lambda text: step_result(GRADED, text).grade,
    "object": lambda text: dict(step_result(OBJECT, text).fields) or None,
    "grades": lambda text: dict(step_result(GRADES, text).grades) or None,
    "marked": marked,
    "trained": trained,
    "phrases": by_own_rule,
    "reader_of_three": reader_of_three,
    "by_cell": by_cell,
    "chosen": lambda wanted: chosen(wanted, load_pool(POOL), "here"),
    "typed_by_llm": typed_by_llm,
    "ended_at_anthropic": ended_at_anthropic,
}
TABLES = yaml.safe_load(Path(__file__).with_name("cases.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, cases in TABLES.items() for case in cases])
def test_a_function_returns_what_its_table_says(name: str, case: list[Any]) -> None:
    *arguments, result = case
    assert FUNCTIONS[name](*arguments) == result

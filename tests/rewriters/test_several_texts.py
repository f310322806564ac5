"""Reading of an answer with several texts of one strategy: lines, arrays and objects, in whatever form they come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rewriters.engines import Completion
from rewriters.query import Query
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.strategy import Strategy
from tests.support.rewriters.pools import a_file, answered, cut, rewriter, said

QUERY = "caffeine in green tea and coffee"
TEXTS = ["caffeine content of green tea", "how much caffeine has coffee", "tea or coffee for the morning"]
NUMBERED = "\n".join(f"{number}. {text}" for number, text in enumerate(TEXTS, 1))
BARE = "\n".join(TEXTS)
TABLE = yaml.safe_load(Path(__file__).with_name("answers.yaml").read_text(encoding="utf-8"))["several"]


def texts(strategy: Strategy | str, answer: str | Completion, query: str = QUERY) -> list[tuple[int, str, str]] | str:
    """(position, text, parsed_as) of each; or the reason why there is none."""
    one = rewriter([strategy]) if isinstance(strategy, str) else Rewriter(Rewriting((strategy,)))
    made = answered(one, query, answer)
    if made.rewrites:
        return [(one.position, one.text, one.parsed_as) for one in made.rewrites]
    (failure,) = made.failures
    return failure.reason


def all_as(parsed_as: str) -> list[tuple[int, str, str]]:
    return [(position, text, parsed_as) for position, text in enumerate(TEXTS, 1)]


@pytest.mark.parametrize(
    ("answer", "parsed_as"),
    [
        (NUMBERED, "numbered"),
        (NUMBERED.replace(". ", ") "), "numbered"),
        (NUMBERED.replace(". ", ".  "), "numbered"),
        ("\n".join(f"**{number}.** {text}" for number, text in enumerate(TEXTS, 1)), "numbered"),
        ("\n".join(f"({number}) {text}" for number, text in enumerate(TEXTS, 1)), "numbered"),
        ("\n".join(f"{number}、{text}" for number, text in enumerate(TEXTS, 1)), "numbered"),
        ("\n".join(f"Q{number}: {text}" for number, text in enumerate(TEXTS, 1)), "numbered"),
        ("\n\n".join(f"- {text}" for text in TEXTS), "numbered"),
        ("\n".join(f"* {text}" for text in TEXTS), "numbered"),
        ("\n".join(f"• {text}" for text in TEXTS), "numbered"),
        (f"Here are three queries:\n\n{NUMBERED}", "numbered"),
        (f"{NUMBERED}\n\nLet me know if you need more!", "numbered"),
        (f"<think>1. hm\n2. no</think>\n{NUMBERED}", "numbered"),
        (f"```\n{NUMBERED}\n```", "numbered"),
        (f"```text\n{BARE}\n```", "lines"),
        (BARE, "lines"),
        (BARE.replace("\n", "\r\n"), "lines"),
        (f"Here are the queries:\n{BARE}", "lines"),
        (f"{BARE}\n\nNote: these differ in subject.", "lines"),
        ("\n".join(f'"{text}"' for text in TEXTS), "lines"),
        (json.dumps(TEXTS), "json"),
        (json.dumps(TEXTS, indent=2), "json"),
        (f"```json\n{json.dumps(TEXTS)}\n```", "json"),
        (f"Here they are: {json.dumps(TEXTS)}", "json"),
        (json.dumps({"queries": TEXTS}), "json"),
        (json.dumps([{"query": text} for text in TEXTS]), "json"),
        (json.dumps({f"query_{number}": text for number, text in enumerate(TEXTS)}), "json"),
    ],
)
def test_lines_in_whatever_form_they_come(answer: str, parsed_as: str) -> None:
    assert texts("multi_query", answer) == all_as(parsed_as)


def test_an_array_has_no_schema_since_not_every_server_takes_one_whose_root_is_an_array() -> None:
    strategy = a_file(output="array", n=3, max_chars=80)
    (request,) = Rewriter(Rewriting((strategy,))).requests(Query("id1", QUERY))
    assert request.schema is None
    assert texts(strategy, json.dumps(TEXTS)) == all_as("json")
    assert texts(strategy, NUMBERED) == all_as("numbered")


def test_the_keys_of_an_array_of_objects_are_one_text() -> None:
    strategy = a_file(output="array", n=3, keys=["query", "interpretation"])
    parts = [{"query": text, "interpretation": f"about {text}", "note": "no"} for text in TEXTS]
    assert texts(strategy, json.dumps(parts)) == [(i, f"{text} about {text}", "json") for i, text in enumerate(TEXTS, 1)]
    missing = [{"Query": TEXTS[0]}, {"interpretation": None, "query": TEXTS[1]}]
    assert texts(strategy, json.dumps(missing)) == all_as("json")[:2]
    assert texts(strategy, '[{"query": "tea", "interpretation": "about t') == "unparsable"


def test_the_keys_of_an_object_are_positions() -> None:
    strategy = a_file(output="object", n=3, keys=["terms", "business", "analysis"])
    values = dict(zip(strategy.keys, TEXTS, strict=True))
    assert texts(strategy, json.dumps(values)) == all_as("json")
    assert texts(strategy, json.dumps({key.upper(): values[key] for key in reversed(values)})) == all_as("json")
    assert texts(strategy, json.dumps(values | {"business": ""})) == [all_as("json")[0], all_as("json")[2]]
    assert texts(strategy, json.dumps({"analysis": TEXTS[2]})) == [all_as("json")[2]]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (json.dumps(TEXTS)[:-1], 3),
        (json.dumps(TEXTS)[:-2], 2),
        (json.dumps(TEXTS).replace('",', '"'), 1),  # no commas: which marks close a string is not sure
        ('{"queries": ["' + '", "'.join(TEXTS[:2]) + '", "half', 2),
    ],
)
def test_of_broken_json_closed_strings_count(answer: str, expected: int) -> None:
    found = texts("multi_query", answer)
    assert isinstance(found, list)
    assert {text for _, text, _ in found} <= set(TEXTS)
    assert len(found) == expected
    assert {parsed_as for _, _, parsed_as in found} == {"salvage"}


def test_a_cut_text_is_left_out_with_a_note() -> None:
    made = answered(rewriter(["multi_query"]), QUERY, cut(NUMBERED[:-4]))
    assert [one.text for one in made.rewrites] == TEXTS[:2]
    assert [(one.strategy, one.reason, one.message) for one in made.failures] == [
        ("multi_query", "texts_dropped", "1 of 3 texts are left out: truncated")
    ]


def test_duplicates_are_one_text_and_positions_have_no_gap() -> None:
    answer = f"1. {TEXTS[0]}\n2. {TEXTS[0].upper()}\n3. {TEXTS[1]}"
    assert texts("multi_query", answer) == [(1, TEXTS[0], "numbered"), (2, TEXTS[1], "numbered")]


def test_more_texts_than_were_asked_for_are_left_out() -> None:
    assert texts("multi_query", f"{NUMBERED}\n4. and one more of them") == all_as("numbered")


def test_lines_that_are_too_short_are_no_texts() -> None:
    strategy = a_file(output="lines", n=3, min_chars=10)
    assert texts(strategy, f"1. Tea\n2. {TEXTS[0]}\n3. ok") == [(1, TEXTS[0], "numbered")]
    assert texts(strategy, "1. Tea\n2. ok") == "unparsable"


def test_words_and_banned_phrases_leave_single_texts_out() -> None:
    strategy = a_file(output="lines", n=5, words={"least": 3, "most": 5}, banned=["at a glance"])
    answer = f"tea\n{TEXTS[0]}\ncoffee at a glance\none two three four five six\n{TEXTS[1]}"
    made = answered(Rewriter(Rewriting((strategy,))), QUERY, answer)
    assert [(one.position, one.text) for one in made.rewrites] == [(1, TEXTS[0]), (2, TEXTS[1])]
    assert [one.message for one in made.failures] == ["3 of 5 texts are left out: too_short, banned, too_long"]


def test_words_are_characters_in_scripts_without_spaces() -> None:
    strategy = a_file(words={"most": 6})
    assert texts(strategy, "绿茶咖啡因", "绿茶的咖啡因含量") == [(1, "绿茶咖啡因", "salvage")]
    assert texts(strategy, "绿茶和咖啡的咖啡因", "绿茶的咖啡因含量") == "too_long"


@pytest.mark.parametrize("answer", ["", "I'm sorry, but I can't help with that.", '{"a": {"b": 1}}', "..."])
def test_the_original_stands_in_where_the_file_says_so(answer: str) -> None:
    kept = a_file(output="array", n=3, fallback="original")
    assert texts(kept, answer) == [(1, QUERY, "original")]
    assert isinstance(texts(a_file(output="array", n=3), answer), str)


def test_an_engine_s_failure_is_one_also_where_the_original_stands_in() -> None:
    broken = Completion(None, None, "m", error_reason="timed_out", error_message="no answer in 60 s")
    assert texts(a_file(output="lines", n=3, fallback="original"), broken) == "timed_out"


def test_the_original_before_a_text_stands_there_once() -> None:
    twice = a_file(include_original=2)
    assert texts(twice, "camellia sinensis") == [(1, f"{QUERY} {QUERY} camellia sinensis", "salvage")]
    assert texts(twice, f"{QUERY} camellia") == [(1, f"{QUERY} {QUERY} camellia", "salvage")]


def test_weights_by_position_stand_with_the_texts() -> None:
    strategy = a_file(output="lines", n=3, weight=0.8, position_weights=[1.0, 0.95])
    made = answered(Rewriter(Rewriting((strategy,))), QUERY, said(NUMBERED))
    assert [(one.weight, one.position_weight) for one in made.rewrites] == [(0.8, 1.0), (0.8, 0.95), (0.8, 0.95)]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in TABLE["answers"]])
def test_what_an_answer_s_texts_are(case: dict[str, Any]) -> None:
    answer = cut(case["answer"]) if case.get("cut") else case["answer"]
    found = texts("rag_fusion", answer, case.get("query", TABLE["query"]))
    assert (found if isinstance(found, str) else [text for _, text, _ in found]) == case.get("expected", TABLE["texts"])

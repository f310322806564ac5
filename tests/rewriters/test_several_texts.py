"""Reading of an answer with several texts of one strategy: lines, arrays and objects, in whatever form they come."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.runs.sums import fallbacks, many_fallbacks
from rewriters.engines import Completion
from rewriters.pool import load
from rewriters.query import Query
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.selection import Choice
from rewriters.strategy import Strategy
from tests.support.rewriters.pools import PRESETS, a_file, answered, asked, cut, rewriter, said, texts_of

QUERY = "caffeine in green tea and coffee"
TEXTS = ["caffeine content of green tea", "how much caffeine has coffee", "tea or coffee for the morning"]
VIEWS = str(PRESETS / "book_views.yaml")
NUMBERED = "\n".join(f"{number}. {text}" for number, text in enumerate(TEXTS, 1))
TABLE = yaml.load(Path(__file__).with_name("answers.yaml").read_bytes(), yaml.CSafeLoader)["several"]


def texts(strategy: Strategy | str, answer: str | Completion, query: str = QUERY) -> list[tuple[int, str, str]] | str:
    return texts_of(load(strategy) if isinstance(strategy, str) else strategy, answer, query)


def all_as(parsed_as: str) -> list[tuple[int, str, str]]:
    return [(position, text, parsed_as) for position, text in enumerate(TEXTS, 1)]


def test_an_array_has_no_schema_since_not_every_server_takes_one_whose_root_is_an_array() -> None:
    strategy = a_file(output="array", n=3, max_chars=80)
    (request,) = Rewriter(Rewriting((strategy,))).requests(Query("id1", QUERY))
    assert request.schema is None
    assert texts(strategy, json.dumps(TEXTS)) == all_as("json")
    assert texts(strategy, NUMBERED) == all_as("numbered")


def test_a_cut_text_is_left_out_with_a_note() -> None:
    made = answered(rewriter(["multi_query"]), QUERY, cut(NUMBERED[:-4]))
    assert [one.text for one in made.rewrites] == TEXTS[:2]
    assert [(one.strategy, one.reason, one.message) for one in made.failures] == [
        ("multi_query", "texts_dropped", "1 of 3 texts are left out: truncated")
    ]


def test_words_and_banned_phrases_leave_single_texts_out() -> None:
    strategy = a_file(output="lines", n=5, words={"least": 3, "most": 5}, banned=["at a glance"])
    answer = f"tea\n{TEXTS[0]}\ncoffee at a glance\none two three four five six\n{TEXTS[1]}"
    made = answered(Rewriter(Rewriting((strategy,))), QUERY, answer)
    assert [(one.position, one.text) for one in made.rewrites] == [(1, TEXTS[0]), (2, TEXTS[1])]
    assert [one.message for one in made.failures] == ["3 of 5 texts are left out: too_short, banned, too_long"]


@pytest.mark.parametrize("answer", ["", "[]", "I'm sorry, but I can't help with that.", '{"a": {"b": 1}}', "..."])
def test_the_original_stands_in_where_the_file_says_so_and_that_is_a_note(answer: str) -> None:
    found = answered(Rewriter(Rewriting((a_file(output="array", n=3, fallback="original"),))), QUERY, answer)
    assert [(one.position, one.text, one.parsed_as) for one in found.rewrites] == [(1, QUERY, "original")]
    (note,) = found.failures
    assert (note.strategy, note.reason) == ("sub_query", "fell_back")
    assert note.message.startswith("the original query stands in for the answer, which cannot be used (")
    assert isinstance(texts(a_file(output="array", n=3), answer), str)


def test_a_range_of_words_that_guides_flags_a_text_and_fails_none() -> None:
    answer = '["data governance and integrity checks", "why wrong figures cost companies money", "audit comparison"]'
    found = answered(rewriter([VIEWS]), "how do teams keep their figures honest", answer)
    assert [one.guards for one in found.rewrites] == [("too_short",)] * 3
    assert found.failures == []
    strict = answered(
        rewriter([{VIEWS: {"words": {"least": 10, "most": 20}}}]), "how do teams keep their figures honest", answer
    )
    assert [one.reason for one in strict.failures] == ["fell_back"]


def test_many_fallbacks_are_warned_of() -> None:
    counts = {"queries": 9, "error/rewrite/book_views/fell_back": 7, "error/rewrite/other/unparsable": 9}
    assert fallbacks(counts) == {"book_views": 7}
    (sentence,) = many_fallbacks(counts, 0.01).values()
    assert sentence.startswith("for 7 of 9 queries the answer of book_views cannot be used")
    assert "more than half" in sentence
    assert not many_fallbacks({"queries": 1000, "error/rewrite/book_views/fell_back": 7}, 0.01)


def test_an_engine_s_failure_is_one_also_where_the_original_stands_in() -> None:
    broken = Completion(None, None, "m", error_reason="timed_out", error_message="no answer in 60 s")
    assert texts(a_file(output="lines", n=3, fallback="original"), broken) == "timed_out"


def test_weights_by_position_stand_with_the_texts() -> None:
    strategy = a_file(output="lines", n=3, weight=0.8, position_weights=[1.0, 0.95])
    made = answered(Rewriter(Rewriting((strategy,))), QUERY, said(NUMBERED))
    assert [(one.weight, one.position_weight) for one in made.rewrites] == [(0.8, 1.0), (0.8, 0.95), (0.8, 0.95)]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in TABLE["answers"]])
def test_what_an_answer_s_texts_are(case: dict[str, Any]) -> None:
    answer = cut(case["answer"]) if case.get("cut") else case["answer"]
    found = texts("rag_fusion", answer, case.get("query", TABLE["query"]))
    assert (found if isinstance(found, str) else [text for _, text, _ in found]) == case.get("expected", TABLE["texts"])


# ---------------------------------------------------------------- several answers to one prompt

TOWER = "how tall is the eiffel tower"
THREE = {"rewrite": {"n": 3, "temperature": 0.7}}
BROKEN = Completion(None, None, "m", attempts=2, error_reason="timed_out", error_message="no answer in 60 s")


def three() -> Rewriter:
    return rewriter([THREE], decoding={"temperature": 0.0, "seed": 5})


def test_so_many_requests_differ_in_number_and_seed_alone() -> None:
    _, requests = asked(three(), TOWER)
    assert [one.sample for one in requests] == [0, 1, 2]
    assert [one.decoding for one in requests] == [{"temperature": 0.7, "seed": seed} for seed in (5, 6, 7)]
    assert len({(one.name, one.recorded_as, one.prompt, one.prompt_hash) for one in requests}) == 1
    assert requests[0].name == "rewrite(n=3,temperature=0.7)"


def test_one_that_fails_is_a_note_and_the_others_count() -> None:
    for broken, why in ((BROKEN, "timed_out"), (said(""), "empty")):
        made = answered(three(), TOWER, "height of the eiffel tower", broken, "eiffel tower size")
        assert [(one.position, one.text) for one in made.rewrites] == [
            (1, "height of the eiffel tower"),
            (2, "eiffel tower size"),
        ]
        assert [(one.reason, one.message) for one in made.failures] == [("texts_dropped", f"1 of 3 texts are left out: {why}")]


def test_the_same_answer_again_is_one_text_without_a_note() -> None:
    made = answered(three(), TOWER, "eiffel tower size", "Eiffel Tower size", "eiffel tower size")
    assert [(one.position, one.text) for one in made.rewrites] == [(1, "eiffel tower size")]
    assert made.failures == []


def test_a_query_that_needs_fewer_texts_asks_for_fewer() -> None:
    one = three()
    (name,) = (strategy.name for strategy in one.strategies)
    assert len(one.requests(Query("id1", TOWER), Choice({name: 2}))) == 2
    assert one.requests(Query("id1", TOWER), Choice({})) == []

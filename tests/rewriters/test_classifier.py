"""Types of queries: by our rules, by a file of the user, by the LLM."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rewriters.classifier import Rules, load_rules
from rewriters.pool import Entry
from rewriters.query import Query
from rewriters.rewriter import Rewriter
from rewriters.settings import GuardSettings, SelectClassified
from tests.support.rewriters.pools import FOUR, rewriter, said

ENGLISH = load_rules("english")
POOL: list[Entry] = ["hyde", "multi_query", "step_back", "decompose"]


def classified(by: str = "rules", rules: Rules = ENGLISH, pool: list[Entry] = POOL) -> Rewriter:
    return rewriter(pool, select=SelectClassified(kind="classified", by=by), rules=rules)  # type: ignore[arg-type]


def test_the_type_s_strategies_rewrite_and_the_choice_says_why() -> None:
    one = classified()
    query = Query("id1", "how to tie a tie")
    choice = one.choose(query)
    assert (choice.query_type, list(choice.texts)) == ("how_to", ["multi_query", "step_back"])
    assert choice.reason == "how_to: multi_query, step_back"
    requests = one.requests(query, choice)
    assert [request.name for request in requests] == ["multi_query", "step_back"]
    answers = map(said, ("1. tie a necktie\n2. necktie knots", "kinds of knots"))
    made = one.read(query, list(zip(requests, answers, strict=True)), choice)
    assert {rewrite.selected_reason for rewrite in made.rewrites} == {"how_to: multi_query, step_back"}
    assert made.failures == []


# ---------------------------------------------------------------- rules of one's own

GOOD: dict[str, Any] = {
    "rules": [{"type": "vergleich", "contains": ["oder", "Unterschied zwischen"]}, {"type": "kurz", "at_most_words": 2}],
    "otherwise": "frage",
    "descriptions": {"vergleich": "wägt ab", "kurz": "wenige Wörter", "frage": "sonst"},
    "strategies": {"vergleich": ["keyword", "general"], "kurz": None, "frage": 2},
}


def own(**changes: Any) -> Rules:
    return load_rules("./r.yaml", lambda _: yaml.safe_dump(GOOD | changes))


@pytest.mark.parametrize(
    ("query", "query_type", "strategies"),
    [
        ("Tee oder Kaffee", "vergleich", ["general", "keyword"]),
        ("UNTERSCHIED  zwischen Tee und Kaffee", "vergleich", ["general", "keyword"]),
        ("Modern", "kurz", []),
        ("wie viel Koffein hat Tee", "frage", ["general", "keyword"]),
    ],
)
def test_a_file_has_types_of_its_own(query: str, query_type: str, strategies: list[str]) -> None:
    choice = classified(rules=own(), pool=FOUR).choose(Query("id1", query))
    assert (choice.query_type, list(choice.texts)) == (query_type, strategies)


def test_conditions_of_a_rule_hold_together() -> None:
    rule = {"type": "frage", "starts": ["wie"], "without": ["viel"], "pattern": r"\d", "at_most_words": 4}
    rules = own(rules=[rule, *GOOD["rules"]], otherwise="vergleich")
    missing_one_each = ["wie viel ist 67", "wie alt ist er", "so wie 67 und", "wie alt mit 67 und mehr"]
    assert rules.types(["wie alt mit 67", *missing_one_each]) == ["frage", *["vergleich"] * 4]


# ---------------------------------------------------------------- by the LLM


def test_the_llm_is_asked_for_the_type_by_a_request_of_its_own() -> None:
    one = rewriter(
        POOL,
        decoding={"temperature": 0.7, "max_tokens": 9},
        rules=ENGLISH,
        select=SelectClassified(kind="classified", by="llm"),
    )
    request = one.question(Query("id1", "how tall is {query}"))
    assert request is not None
    assert (request.name, request.schema, request.decoding) == ("classify", None, {"temperature": 0.0, "max_tokens": 9})
    assert request.prompt.endswith("Query: how tall is {query}")
    assert all(f"- {name}: {text}" in request.prompt for name, text in ENGLISH.descriptions.items())
    assert one.identity() != classified().identity()


def test_the_question_with_placeholders_is_another_request_than_the_one_without() -> None:
    rules: dict[str, Any] = {"rules": ENGLISH, "select": SelectClassified(kind="classified", by="llm")}
    plain, masking = (rewriter(POOL, **rules, guards=GuardSettings(mask=mask)) for mask in ([], ["mail"]))
    query, other = Query("id1", "who is jo@corp.org"), Query("id2", "who is jo")
    asked, masked = plain.question(query), masking.question(query)
    assert asked is not None
    assert masked is not None
    assert masked.prompt.endswith("Query: who is <MAIL_1>")
    assert asked.variables != masked.variables
    assert plain.question(other) == masking.question(other)


def test_names_of_types_may_be_in_any_script_and_case() -> None:
    rules = own(
        rules=[{"type": "Wie-Geht"}, {"type": "比較"}], otherwise="Frage",
        descriptions={"Wie-Geht": "a", "比較": "b", "Frage": "c"},
        strategies={"Wie-Geht": ["keyword"], "比較": ["general"], "Frage": "none"},
    )  # fmt: skip
    one = classified("llm", rules, FOUR)
    for answer, expected in (("wie geht", "Wie-Geht"), ("比較", "比較"), ("FRAGE", "Frage")):
        assert one.choose(Query("id1", "x"), said(answer)).query_type == expected

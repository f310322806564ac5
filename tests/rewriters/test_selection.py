"""Selection of strategies: by chance, by a column, by type, and by the LLM that writes the rewrites."""

import re
from collections import Counter
from typing import Any

import pytest
import yaml

from rewriters.adaptive import Demonstration, load_demonstrations
from rewriters.classifier import Rules, load_rules
from rewriters.pool import Entry, load_pool
from rewriters.query import Query
from rewriters.rewriter import Rewriter
from rewriters.settings import GuardSettings, SelectAdaptive, SelectClassified, SelectColumn, SelectRandom
from rewriters.strategy import EXAMPLE_QUERY
from tests.support.rewriters.pools import FOUR, asked, rewriter, said


def random_k(k: int = 2, seed: int = 0, pool: list[Entry] | None = None) -> Rewriter:
    return rewriter(pool or [*FOUR], select=SelectRandom(kind="random_k", k=k, seed=seed))


def drawn(one: Rewriter, count: int = 400) -> list[tuple[str, ...]]:
    return [tuple(one.choose(Query(f"{number:032x}", "tea")).texts) for number in range(count)]


def test_a_query_has_the_same_strategies_in_every_run() -> None:
    assert drawn(random_k()) == drawn(random_k())
    assert [set(one) for one in drawn(random_k())] == [set(one) for one in drawn(random_k(pool=[*FOUR[::-1]]))]
    assert drawn(random_k()) != drawn(random_k(seed=1))


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_k_strategies_are_drawn_roughly_evenly_in_the_order_of_the_pool(k: int) -> None:
    found = drawn(random_k(k))
    assert {len(set(one)) for one in found} == {k}
    assert all(list(one) == [name for name in FOUR if name in one] for one in found)
    counts = Counter(name for one in found for name in one)
    assert all(abs(counts[name] - 100 * k) < 45 for name in FOUR)  # five standard deviations


def test_the_column_is_read_from_the_log_and_the_reason_kept() -> None:
    one = rewriter(["keyword"], select=SelectColumn(kind="column", column="methods"))
    assert one._of.columns == ("methods",)
    query = Query("id1", "green tea", None, {"methods": "keyword"})
    (request,) = one.requests(query)
    (rewrite,) = one.read(query, [(request, said("green, tea"))]).rewrites
    assert rewrite.selected_reason == "methods: keyword"


def test_a_number_of_rewrites_that_follows_the_query() -> None:
    """Bare keywords none, simple queries two, complex ones four to five."""
    rules = Rules.model_validate(
        {
            "rules": [{"type": "keywords", "at_most_words": 2}, {"type": "complex", "contains": ["and", "with"]}],
            "otherwise": "simple",
            "descriptions": {"keywords": "a", "complex": "b", "simple": "c"},
            "strategies": {"keywords": 0, "simple": 2, "complex": 5},
        }
    )
    one = rewriter(["general", "rag_fusion"], select=SelectClassified(kind="classified"), rules=rules)
    variants = "\n".join(f"{number}. tea variant {'abcd'[number - 1]}" for number in range(1, 5))
    for text, positions in (("green tea", {}), ("how is tea made", {"general": 1, "rag_fusion": 1}),
                            ("tea with milk and sugar", {"general": 1, "rag_fusion": 4})):  # fmt: skip
        query = Query("id1", text)
        choice = one.choose(query)
        requests = one.requests(query, choice)
        answers = {"dmqr": '{"general": "tea in general"}', "rag_fusion": variants}
        made = one.read(query, [(request, said(answers[request.name])) for request in requests], choice)
        assert Counter(rewrite.strategy for rewrite in made.rewrites) == positions
        assert made.failures == []


ENGLISH = load_rules("english")

TYPED_POOL: list[Entry] = ["hyde", "multi_query", "step_back", "decompose"]


def classified(by: str = "rules", rules: Rules = ENGLISH, pool: list[Entry] = TYPED_POOL) -> Rewriter:
    return rewriter(pool, select=SelectClassified(kind="classified", by=by), rules=rules)  # type: ignore[arg-type]


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


def test_the_llm_is_asked_for_the_type_by_a_request_of_its_own() -> None:
    one = rewriter(
        TYPED_POOL,
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
    plain, masking = (rewriter(TYPED_POOL, **rules, guards=GuardSettings(mask=mask)) for mask in ([], ["mail"]))
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


QUERY = "hello how much caffeine has green tea please"

ADAPTIVE = SelectAdaptive(kind="adaptive")

ADAPTIVE_POOL: list[Entry] = [*FOUR, "rag_fusion"]


def adaptive(pool: list[Entry] = ADAPTIVE_POOL, demonstrations: tuple[Demonstration, ...] = ()) -> Rewriter:
    return rewriter(pool, select=ADAPTIVE, demonstrations=demonstrations)


def test_the_prompt_has_names_definitions_and_guidelines_and_ends_with_the_query() -> None:
    _, (request,) = asked(adaptive(), QUERY)
    assert (request.name, request.recorded_as, request.schema) == ("dmqr_adaptive", "dmqr_adaptive", None)
    for strategy in load_pool(ADAPTIVE_POOL):
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

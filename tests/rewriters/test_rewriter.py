"""From a query to requests, from completions to rewrites, and another try for answers that do not serve."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewriters.engines import Completion, Request, open_engine
from rewriters.engines.settings import RecordedSettings
from rewriters.pool import load_pool
from rewriters.query import Query
from rewriters.results import RewriteResult
from rewriters.rewriter import Rewriter, Rewriting
from rewriters.settings import GuardSettings, SelectAdaptive, SelectColumn, SelectRandom
from tests.support.rewriters.pools import DECODING, FOUR, answered, asked, rewriter, said

TEXTS = {
    "general": "green tea caffeine",
    "keyword": "green tea, caffeine",
    "pseudo_answer": "It has 30 mg.",
    "core_content": "tea",
}

QUERY = "how much caffeine has green tea"

TEA = Query("a", "tea")


class TestRequests:
    def test_no_strategies_make_no_requests(self) -> None:
        none = rewriter([])
        assert none.requests(TEA) == []
        assert none.read(TEA, [])[:2] == ([], [])

    def test_a_joint_prompt_of_one_s_own_is_the_prompt_and_in_the_hash(self) -> None:
        own = [rewriter(FOUR, joint_prompt=prompt) for prompt in ("One: {query}", "Two: {query}")]
        made = [rewriter(FOUR), *own]
        ours, one, two = (each.requests(TEA)[0] for each in made)
        assert (one.name, one.prompt, one.schema) == ("dmqr", "One: tea", ours.schema)
        assert len({request.prompt_hash for request in (ours, one, two)}) == 3
        assert len({json.dumps(each.identity()) for each in made}) == 3

    def test_the_order_in_the_config_changes_nothing(self) -> None:
        one, other = rewriter(FOUR), rewriter(FOUR[::-1])
        assert one.requests(TEA) == other.requests(TEA)
        assert one.identity() == other.identity()


class TestWhatSharesTheJointRequest:
    @pytest.mark.parametrize(
        "alone",
        ["rag_fusion", {"keyword": {"max_tokens": 64}}, {"keyword": {"n": 2, "temperature": 0.7}}, "rewrite"],
        ids=["several texts", "decoding of its own", "samples", "not joint by its file"],
    )
    def test_a_strategy_outside_it_has_requests_of_its_own(self, alone: str | dict[str, dict[str, object]]) -> None:
        one = rewriter(["general", alone])
        (name,) = (strategy.name for strategy in one.strategies if strategy.name != "general")
        requests = one.requests(TEA)
        assert [request.name for request in requests][:2] == ["dmqr", name]
        assert requests[0].schema is not None
        assert list(requests[0].schema["properties"]) == ["general"]
        made = one.read(
            TEA, [(request, said('{"general": "green tea"}' if i == 0 else "tea")) for i, request in enumerate(requests)]
        )
        assert {rewrite.strategy for rewrite in made.rewrites} == {"general", name}

    def test_of_two_strategies_of_one_file_the_first_is_asked_for_jointly(self) -> None:
        one = rewriter(["general", "keyword", {"keyword": {"weight": 0.5}}])
        query, requests = asked(one, QUERY)
        assert [request.name for request in requests] == ["dmqr", "keyword(weight=0.5)"]
        assert [request.recorded_as for request in requests] == ["dmqr", "keyword"]
        made = one.read(query, [(requests[0], said(json.dumps(TEXTS))), (requests[1], said("tea, green"))])
        assert {r.strategy: (r.text, r.weight) for r in made.rewrites} == {
            "general": (TEXTS["general"], 1.0),
            "keyword": (TEXTS["keyword"], 1.0),
            "keyword(weight=0.5)": ("tea, green", 0.5),
        }


class TestRead:
    def test_a_joint_answer(self) -> None:
        one = rewriter(FOUR)
        made = answered(one, QUERY, json.dumps(TEXTS))
        (request,) = one.requests(Query("a", QUERY))
        assert made.failures == []
        searched, flags = {"pseudo_answer": "passage"}, {"keyword": ("near_duplicate",)}  # of general, but for a comma
        assert made.rewrites == [
            RewriteResult(
                name,
                1,
                TEXTS[name],
                1.0,
                searched.get(name, "query"),
                "a-model",
                request.prompt_hash,
                "json",
                guards=flags.get(name, ()),
            )
            for name in FOUR
        ]

    def test_separate_answers_in_any_order(self) -> None:
        one = rewriter(FOUR, "separate")
        query, requests = asked(one, QUERY)
        made = one.read(query, [(request, said(TEXTS[request.name])) for request in reversed(requests)])
        assert [(r.strategy, r.text, r.prompt_hash, r.parsed_as) for r in made.rewrites] == [
            (request.name, TEXTS[request.name], request.prompt_hash, "salvage") for request in requests
        ]
        assert made.failures == []

    def test_an_error_of_the_engine_passes_through_to_every_strategy_of_the_request(self) -> None:
        broken = Completion(None, None, "m", attempts=3, error_reason="timed_out", error_message="no answer in 60 s")
        made = answered(rewriter(FOUR), "tea", broken)
        assert made.rewrites == []
        assert [(f.strategy, f.reason, f.message, f.raw, f.attempts) for f in made.failures] == [
            (name, "timed_out", "no answer in 60 s", None, 3) for name in FOUR
        ]

    def test_one_failed_strategy_leaves_the_others_alone_and_keeps_the_raw_answer(self) -> None:
        raw = json.dumps(TEXTS | {"keyword": "..."})
        made = answered(rewriter(FOUR), QUERY, said(raw, attempts=2))
        assert [r.strategy for r in made.rewrites] == ["general", "pseudo_answer", "core_content"]
        assert [(f.strategy, f.reason, f.raw, f.attempts) for f in made.failures] == [("keyword", "echo", raw, 2)]

    def test_a_missing_completion_fails_its_strategies_only(self) -> None:
        one = rewriter(FOUR, "separate")
        query, requests = asked(one, QUERY)
        made = one.read(query, [(r, said(TEXTS[r.name])) for r in requests if r.name != "keyword"])
        assert len(made.rewrites) == 3
        assert [(f.strategy, f.reason) for f in made.failures] == [("keyword", "missing")]
        assert [(f.strategy, f.reason) for f in one.read(query, []).failures] == [(name, "missing") for name in FOUR]


@pytest.mark.parametrize("file", ["cranfield_a", "musique_a", "scifact_a"])
def test_every_recorded_joint_completion_gives_its_four_lines(file: str, shared: Path) -> None:
    path = shared / "recorded" / f"{file}.jsonl"
    engine = open_engine(RecordedSettings(kind="recorded", path=str(path)))
    one = rewriter(FOUR)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(records) == 100
    for record in records:
        query, requests = asked(one, record["query"])
        answers: list[tuple[Request, Completion]] = list(engine.complete(requests))
        made = one.read(query, answers)
        assert made.failures == []
        assert {rewrite.parsed_as for rewrite in made.rewrites} == {"labelled"}
        true_lines = [line.split(": ", 1)[1] for line in record["completions"]["dmqr"].split("\n")]
        assert [rewrite.text for rewrite in made.rewrites] == true_lines
    engine.close()


@pytest.mark.parametrize(
    ("strategy", "others", "answer"),
    [
        ("pseudo_answer", ["step_back"], "pseudo_answer\n\nStep-Back Question:\n"),
        ("general", ["keyword"], "- Multi-Query:\n1. GQR:\nkeyword: \n"),
        ("core_content", ["general"], "core_content:\n\ngeneral: PAR: "),
    ],
)
def test_an_answer_is_read_alike_whatever_else_is_in_the_pool(strategy: str, others: list[str], answer: str) -> None:
    query = Query("1", "why does bread rise")
    read = []
    for names in ([strategy], [strategy, *others], [strategy, *others, "hyde", "rewrite"]):
        one = Rewriter(Rewriting(load_pool(names), "separate"))
        (request,) = (asks for asks in one.requests(query) if asks.name == strategy)
        written = one.read(query, [(request, Completion(answer, "stop", "m"))])
        texts = [found.text for found in written.rewrites if found.strategy == strategy]
        read.append((texts, [failure.reason for failure in written.failures if failure.strategy == strategy]))
    assert read[0] == read[1] == read[2]


# Since the first release; a change of one renames every run of the four and asks the LLM for all its completions again.
JOINT_HASH = "3be4032057d0db4e"

SCHEMA_HASH = "2b1d354debcb152d"

OWN_HASHES = {
    "general": "f3d7a2aa638b2d46",
    "keyword": "bffbefffda9b2524",
    "pseudo_answer": "e8023ebfd851a976",
    "core_content": "f284664236da62df",
}

STRATEGIES = [
    {"name": "general", "search_as": "query", "weight": 1.0, "max_chars": 2000, "list_separator": None},
    {"name": "keyword", "search_as": "query", "weight": 1.0, "max_chars": 1000, "list_separator": ", "},
    {"name": "pseudo_answer", "search_as": "passage", "weight": 1.0, "max_chars": 1500, "list_separator": None},
    {"name": "core_content", "search_as": "query", "weight": 1.0, "max_chars": 500, "list_separator": None},
]


@pytest.mark.parametrize(
    ("calls", "requests"),
    [
        ("joint", [{"name": "dmqr", "prompt_hash": JOINT_HASH, "schema_hash": SCHEMA_HASH}]),
        ("separate", [{"name": name, "prompt_hash": one, "schema_hash": None} for name, one in OWN_HASHES.items()]),
    ],
)
def test_the_four_are_what_they_were(calls: str, requests: list[dict[str, object]]) -> None:
    four = rewriter(FOUR, calls)
    assert four.identity() == {
        "calls": calls,
        "decoding": DECODING,
        "parser": 5,
        "strategies": STRATEGIES,
        "requests": requests,
    }
    assert json.loads(json.dumps(four.identity())) == four.identity()
    sent = four.requests(Query("id1", "tea"))
    assert [(one.name, one.prompt_hash) for one in sent] == [(one["name"], one["prompt_hash"]) for one in requests]
    assert [(one.sample, one.engine, one.variables) for one in sent] == [(0, "", "")] * len(sent)


def test_whatever_decides_the_rewrites_changes_it() -> None:
    variants = [
        rewriter(FOUR),
        rewriter(FOUR, "separate"),
        rewriter(FOUR[:3]),
        rewriter(FOUR, decoding=DECODING | {"temperature": 0.7}),
        rewriter([]),
        rewriter(FOUR, select=SelectAdaptive(kind="adaptive")),
        rewriter(FOUR, select=SelectRandom(kind="random_k")),
        rewriter(FOUR, select=SelectRandom(kind="random_k", seed=1)),
        rewriter(FOUR, select=SelectColumn(kind="column", column="a")),
        rewriter(FOUR, retries=1),
        rewriter(FOUR, retries=2),
        rewriter(FOUR, guards=GuardSettings(preserve="drop")),
        rewriter(FOUR, guards=GuardSettings(near_duplicates="drop")),
        rewriter(FOUR, guards=GuardSettings(mask=["card"])),
        *(
            rewriter([*FOUR[1:], {"general": parameters}])
            for parameters in (
                {"weight": 0.5},
                {"min_chars": 5},
                {"banned": ["tea"]},
                {"words": {"least": 2}},
                {"any_language": True},
                {"language": "English"},
                {"language": "German"},
                {"fallback": "original"},
                {"include_original": 1},
                {"as_one": "texts"},
                {"as_one": "with_original"},
                {"position_weights": [1.0, 0.5]},
                {"depth": 10},
                {"score_floor": 0.1},
                {"max_chars": 10},
                {"name": "another"},
            )
        ),
    ]
    assert len({json.dumps(variant.identity(), sort_keys=True) for variant in variants}) == len(variants)


RENTAL = Query("q1", "how to rent a car in iceland")

GOOD = json.dumps({"general": "car rental in iceland", "keyword": "iceland, car, rental"})

HALF = json.dumps({"general": "car rental in iceland"})

REFUSED = "I'm sorry, but I can't help with that request."

SAMPLED: dict[str, Any] = {"temperature": 0.0, "max_tokens": 200, "seed": 7}


def retrying(*strategies: str, retries: int = 1) -> Rewriter:
    return rewriter([*strategies] or ["general", "keyword"], decoding=SAMPLED, retries=retries)


def ended(text: str, end: str = "stop") -> Completion:
    return Completion(text, end, "m")


def after(one: Rewriter, *answers: Completion) -> tuple[list[tuple[Request, Completion]], list[Request]]:
    """Gives one answer after the other; returns what was asked and answered, and what would be asked next."""
    (request,) = one.requests(RENTAL)
    answered = [(request, answers[0])]
    for answer in answers[1:]:
        (more,) = one.again(RENTAL, answered)
        answered.append((more, answer))
    return answered, one.again(RENTAL, answered)


@pytest.mark.parametrize(
    ("answer", "decoding"),
    [
        (ended(REFUSED), {"temperature": 0.7, "max_tokens": 200}),
        (ended("refused", "refusal"), {"temperature": 0.7, "max_tokens": 200}),
        (ended("A car can be had in Reykjavik."), {"temperature": 0.7, "max_tokens": 200}),
        (ended(""), {"temperature": 0.7, "max_tokens": 200}),
        (ended(HALF), {"temperature": 0.7, "max_tokens": 200}),
        (ended("", "length"), {"temperature": 0.0, "max_tokens": 400}),
        (ended('{"general": "car rental in ice', "length"), {"temperature": 0.0, "max_tokens": 400}),
    ],
)
def test_an_answer_that_does_not_serve_is_asked_for_again(answer: Completion, decoding: dict[str, Any]) -> None:
    one = retrying()
    (first,) = one.requests(RENTAL)
    _, (more,) = after(one, answer)
    assert (more.name, more.prompt, more.schema, more.query_id) == (first.name, first.prompt, first.schema, first.query_id)
    assert more.decoding == SAMPLED | decoding | {"seed": 1_000_007}
    assert more.sample == 1_000_000
    assert retrying(retries=0).again(RENTAL, [(first, answer)]) == []


@pytest.mark.parametrize(
    "answer",
    [
        ended(GOOD),
        ended("To rent", "content_filter"),
        Completion(None, None, "m", error_reason="timeout", error_message="slow"),
        ended(json.dumps({"general": "car rental in iceland", "keyword": ", ".join(f"word{n}" for n in range(400))})),
    ],
)
def test_other_answers_are_not(answer: Completion) -> None:
    assert after(retrying(), answer)[1] == []


def test_the_answer_with_more_texts_is_read_and_the_try_is_noted() -> None:
    one = retrying()
    answered, then = after(one, ended(HALF), ended(GOOD))
    assert then == []
    found = one.read(RENTAL, answered)
    assert {each.strategy for each in found.rewrites} == {"general", "keyword"}
    notes = [(each.reason, each.message) for each in found.failures]
    assert notes == [("tried_again", "requests made again, as an answer did not serve: 1; of these read: 1")]
    answered, _ = after(one, ended(HALF), ended(REFUSED))
    found = one.read(RENTAL, answered)
    assert [each.strategy for each in found.rewrites] == ["general"]
    assert [(each.strategy, each.reason) for each in found.failures] == [("keyword", "missing"), ("", "tried_again")]
    assert found.failures[-1].message.endswith("of these read: 0")


def test_each_try_follows_the_one_before_up_to_the_limit() -> None:
    one = retrying(retries=2)
    answered, then = after(one, ended("", "length"), ended("", "length"), ended(GOOD))
    assert [request.decoding["max_tokens"] for request, _ in answered] == [200, 400, 800]
    assert [request.sample for request, _ in answered] == [0, 1_000_000, 2_000_000]
    assert then == []
    assert len(one.read(RENTAL, answered).rewrites) == 2
    assert after(one, ended(""), ended(""), ended(""))[1] == []
    assert after(one, ended(""), Completion(None, None, "m", error_reason="timeout"))[1] == []


def test_each_sample_has_tries_of_its_own() -> None:
    one = retrying("hyde")
    many = rewriter([{"hyde": {"n": 3, "temperature": 0.7}}], decoding=SAMPLED, retries=1)
    requests = many.requests(RENTAL)
    passage = "You can rent a car at the airport in Keflavik. Take your licence and a credit card with you."
    answered = [(requests[0], ended(passage)), (requests[1], ended(REFUSED)), (requests[2], ended(passage + " Drive slowly."))]
    (more,) = many.again(RENTAL, answered)
    assert (more.sample, more.decoding["seed"]) == (1_000_001, requests[1].decoding["seed"] + 1_000_000)
    found = many.read(RENTAL, [*answered, (more, ended("Cars are rented out in Reykjavik, too, near the harbour."))])
    assert [each.position for each in found.rewrites] == [1, 2, 3]
    assert "harbour" in found.rewrites[1].text
    assert len(one.requests(RENTAL)) == 1


@given(st.lists(st.sampled_from([GOOD, HALF, REFUSED, "", "prose about cars"]), min_size=4, max_size=4), st.integers(0, 3))
def test_no_try_makes_it_worse_and_none_is_made_twice(texts: list[str], retries: int) -> None:
    one = retrying(retries=retries)
    answered = [(request, ended(texts[0])) for request in one.requests(RENTAL)]
    made = len(one.read(RENTAL, answered).rewrites)
    while more := one.again(RENTAL, answered):
        answered += [(request, ended(texts[len(answered)])) for request in more]
        now = len(one.read(RENTAL, answered).rewrites)
        assert now >= made
        made = now
    assert len(answered) <= 1 + retries
    assert len({request.sample for request, _ in answered}) == len(answered)

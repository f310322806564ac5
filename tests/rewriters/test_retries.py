"""Another try for answers that do not serve: which, how it is asked, and which answer is read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewriters.engines import Completion, Request
from rewriters.query import Query
from rewriters.rewriter import Rewriter
from tests.support.rewriters.pools import rewriter

QUERY = Query("q1", "how to rent a car in iceland")
GOOD = json.dumps({"general": "car rental in iceland", "keyword": "iceland, car, rental"})
HALF = json.dumps({"general": "car rental in iceland"})
REFUSED = "I'm sorry, but I can't help with that request."
DECODING: dict[str, Any] = {"temperature": 0.0, "max_tokens": 200, "seed": 7}


def retrying(*strategies: str, retries: int = 1) -> Rewriter:
    return rewriter([*strategies] or ["general", "keyword"], decoding=DECODING, retries=retries)


def said(text: str, end: str = "stop") -> Completion:
    return Completion(text, end, "m")


def after(one: Rewriter, *answers: Completion) -> tuple[list[tuple[Request, Completion]], list[Request]]:
    """Gives one answer after the other; returns what was asked and answered, and what would be asked next."""
    (request,) = one.requests(QUERY)
    answered = [(request, answers[0])]
    for answer in answers[1:]:
        (more,) = one.again(QUERY, answered)
        answered.append((more, answer))
    return answered, one.again(QUERY, answered)


@pytest.mark.parametrize(
    ("answer", "decoding"),
    [
        (said(REFUSED), {"temperature": 0.7, "max_tokens": 200}),
        (said("refused", "refusal"), {"temperature": 0.7, "max_tokens": 200}),
        (said("A car can be had in Reykjavik."), {"temperature": 0.7, "max_tokens": 200}),
        (said(""), {"temperature": 0.7, "max_tokens": 200}),
        (said(HALF), {"temperature": 0.7, "max_tokens": 200}),
        (said("", "length"), {"temperature": 0.0, "max_tokens": 400}),
        (said('{"general": "car rental in ice', "length"), {"temperature": 0.0, "max_tokens": 400}),
    ],
)
def test_an_answer_that_does_not_serve_is_asked_for_again(answer: Completion, decoding: dict[str, Any]) -> None:
    one = retrying()
    (first,) = one.requests(QUERY)
    _, (more,) = after(one, answer)
    assert (more.name, more.prompt, more.schema, more.query_id) == (first.name, first.prompt, first.schema, first.query_id)
    assert more.decoding == DECODING | decoding | {"seed": 1_000_007}
    assert more.sample == 1_000_000
    assert retrying(retries=0).again(QUERY, [(first, answer)]) == []


@pytest.mark.parametrize(
    "answer",
    [
        said(GOOD),
        said("To rent", "content_filter"),
        Completion(None, None, "m", error_reason="timeout", error_message="slow"),
        said(json.dumps({"general": "car rental in iceland", "keyword": ", ".join(f"word{n}" for n in range(400))})),
    ],
)
def test_other_answers_are_not(answer: Completion) -> None:
    assert after(retrying(), answer)[1] == []


def test_the_answer_with_more_texts_is_read_and_the_try_is_noted() -> None:
    one = retrying()
    answered, then = after(one, said(HALF), said(GOOD))
    assert then == []
    found = one.read(QUERY, answered)
    assert {each.strategy for each in found.rewrites} == {"general", "keyword"}
    notes = [(each.reason, each.message) for each in found.failures]
    assert notes == [("tried_again", "requests made again, as an answer did not serve: 1; of these read: 1")]
    answered, _ = after(one, said(HALF), said(REFUSED))
    found = one.read(QUERY, answered)
    assert [each.strategy for each in found.rewrites] == ["general"]
    assert [(each.strategy, each.reason) for each in found.failures] == [("keyword", "missing"), ("", "tried_again")]
    assert found.failures[-1].message.endswith("of these read: 0")


def test_each_try_follows_the_one_before_up_to_the_limit() -> None:
    one = retrying(retries=2)
    answered, then = after(one, said("", "length"), said("", "length"), said(GOOD))
    assert [request.decoding["max_tokens"] for request, _ in answered] == [200, 400, 800]
    assert [request.sample for request, _ in answered] == [0, 1_000_000, 2_000_000]
    assert then == []
    assert len(one.read(QUERY, answered).rewrites) == 2
    assert after(one, said(""), said(""), said(""))[1] == []
    assert after(one, said(""), Completion(None, None, "m", error_reason="timeout"))[1] == []


def test_each_sample_has_tries_of_its_own() -> None:
    one = retrying("hyde")
    many = rewriter([{"hyde": {"n": 3, "temperature": 0.7}}], decoding=DECODING, retries=1)
    requests = many.requests(QUERY)
    passage = "You can rent a car at the airport in Keflavik. Take your licence and a credit card with you."
    answered = [(requests[0], said(passage)), (requests[1], said(REFUSED)), (requests[2], said(passage + " Drive slowly."))]
    (more,) = many.again(QUERY, answered)
    assert (more.sample, more.decoding["seed"]) == (1_000_001, requests[1].decoding["seed"] + 1_000_000)
    found = many.read(QUERY, [*answered, (more, said("Cars are rented out in Reykjavik, too, near the harbour."))])
    assert [each.position for each in found.rewrites] == [1, 2, 3]
    assert "harbour" in found.rewrites[1].text
    assert len(one.requests(QUERY)) == 1


def test_tries_are_part_of_the_identity_only_where_there_are_some() -> None:
    assert "retries" not in retrying(retries=0).identity()
    assert retrying(retries=1).identity() != retrying(retries=2).identity()


@given(st.lists(st.sampled_from([GOOD, HALF, REFUSED, "", "prose about cars"]), min_size=4, max_size=4), st.integers(0, 3))
def test_no_try_makes_it_worse_and_none_is_made_twice(texts: list[str], retries: int) -> None:
    one = retrying(retries=retries)
    answered = [(request, said(texts[0])) for request in one.requests(QUERY)]
    made = len(one.read(QUERY, answered).rewrites)
    while more := one.again(QUERY, answered):
        answered += [(request, said(texts[len(answered)])) for request in more]
        now = len(one.read(QUERY, answered).rewrites)
        assert now >= made
        made = now
    assert len(answered) <= 1 + retries
    assert len({request.sample for request, _ in answered}) == len(answered)

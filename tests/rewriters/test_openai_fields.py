"""Servers that refuse fields as hosted models do, and what is sent to them in the end."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewriters.engines import Request
from rewriters.engines.openai.engine import OpenaiEngine
from rewriters.engines.openai.protocol import sent_fields, with_args
from rewriters.pool import load_pool
from rewriters.query import Query
from rewriters.rewriter import Rewriter, Rewriting
from tests.support.rewriters.fake_server import Body, FakeServer, Reply, refusal
from tests.support.rewriters.requests import ask, one

Opened = Callable[..., OpenaiEngine]
SCHEMA = {"type": "object", "properties": {"general": {"type": "string", "maxLength": 301}}, "required": ["general"]}
STRICT = {"type": "object", "properties": {"general": {"type": "string"}}, "required": ["general"]}
DECODING = {"temperature": 0.0, "top_p": 0.9, "max_tokens": 64, "seed": 7}


def views(prompt: str, **decoding: Any) -> Request:
    return ask(prompt, SCHEMA, DECODING | decoding, "views(n=2)", recorded_as="views")


def bad(message: str, param: str | None = None, code: str | None = None) -> Reply:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return Reply(400, json.dumps({"error": error}).encode())


def reasoning_model(body: Body) -> Reply | None:
    """As OpenAI's: one complaint at a time."""
    if "max_tokens" in body:
        words = "Unsupported parameter: 'max_tokens' is not supported here. Use 'max_completion_tokens' instead."
        return bad(words, "max_tokens", "unsupported_parameter")
    if body.get("temperature", 1) != 1:
        words = "Unsupported value: 'temperature' cannot be 0 for this model. Only 1, the default, is supported."
        return bad(words, "temperature", "unsupported_value")
    for name in ("top_p", "stop", "chat_template_kwargs"):
        if name in body:
            return bad(f"Unsupported parameter: '{name}' is not supported with this model.", name, "unsupported_parameter")
    return strict_schemas(body)


def strict_schemas(body: Body) -> Reply | None:
    """As OpenAI's: no lengths, which are not sent, and plain names."""
    schema = body.get("response_format", {}).get("json_schema", {})
    if not re.fullmatch("[a-zA-Z0-9_-]{1,64}", schema.get("name", "x")):
        return bad(
            "Invalid 'response_format.json_schema.name': it does not match the pattern.", "response_format.json_schema.name"
        )
    if "maxLength" in json.dumps(schema):
        return bad("Invalid schema for response_format 'views': 'maxLength' is not permitted.", "response_format")
    return None


def claude(body: Body) -> Reply | None:
    if "temperature" in body and "top_p" in body:
        words = "`temperature` and `top_p` cannot both be given for this model. Please use only one."
        return Reply(400, json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": words}}).encode())
    return None


def openrouter(body: Body) -> Reply | None:
    """The provider's words lie in a text within the error."""
    inner = reasoning_model(body)
    if inner is None:
        return None
    metadata = {"raw": inner.content.decode(), "provider_name": "OpenAI"}
    error = {"message": "Provider returned error", "code": 400, "metadata": metadata}
    return Reply(400, json.dumps({"error": error, "user_id": "user_1"}).encode())


def mistral(body: Body) -> Reply | None:
    if "seed" not in body:
        return None
    detail = [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted", "input": 7}]
    return Reply(422, json.dumps({"object": "error", "message": {"detail": detail}, "code": None}).encode())


CHAT = {"enable_thinking": False}


@pytest.mark.parametrize(
    ("provider", "sends", "left_out", "kept"),
    [
        (reasoning_model, 6, "chat_template_kwargs, stop, temperature 0.0, top_p 0.9", {"seed", "max_completion_tokens"}),
        (openrouter, 6, "chat_template_kwargs, stop, temperature 0.0, top_p 0.9", {"seed", "max_completion_tokens"}),
        (claude, 2, "top_p 0.9", {"temperature", "seed", "stop", "chat_template_kwargs", "max_tokens"}),
        (mistral, 2, "seed", {"temperature", "top_p", "stop", "chat_template_kwargs", "max_tokens"}),
    ],
)
def test_what_a_provider_refuses_is_left_out_once_and_said(
    server: FakeServer,
    opened: Opened,
    caplog: pytest.LogCaptureFixture,
    provider: Callable[[Body], Reply | None],
    sends: int,
    left_out: str,
    kept: set[str],
) -> None:
    server.answer = provider
    engine = opened(server)
    request = views("tea", stop=["x"], chat_template_kwargs=CHAT)
    first, second = one(engine, request), one(engine, request)
    assert [(done.text, done.attempts) for done in (first, second)] == [("answer to: tea", sends), ("answer to: tea", 1)]
    assert first.left_out == second.left_out == left_out
    body = server.bodies[-1]
    assert body.keys() == kept | {"model", "messages", "response_format"}
    assert body["response_format"]["json_schema"] == {"name": "views", "schema": STRICT, "strict": True}
    said = " ".join(record.getMessage() for record in caplog.records)
    assert all(f"does not take {name}; from now on it is left out" in said for name in left_out.split(", "))


def test_another_value_of_a_refused_field_is_still_sent(server: FakeServer, opened: Opened) -> None:
    server.answer = lambda body: bad("temperature must be below 2", "temperature") if body.get("temperature") == 3 else None
    engine = opened(server)
    done = [one(engine, views("tea", temperature=value)) for value in (3, 0.7, 3, 0.7)]
    assert [(each.attempts, each.left_out) for each in done] == [
        (2, "temperature 3"),
        (1, None),
        (1, "temperature 3"),
        (1, None),
    ]
    assert [body.get("temperature") for body in server.bodies] == [3, None, 0.7, None, 0.7]


def test_a_null_in_args_leaves_a_field_out(server: FakeServer, opened: Opened) -> None:
    one(opened(server, args={"seed": None, "response_format": None, "temperature": 1}), views("tea"))
    assert server.bodies[0].keys() == {"model", "messages", "temperature", "top_p", "max_tokens"}


@pytest.mark.parametrize(
    "reply",
    [
        bad("This is beyond me"),
        bad("The model's context length is 4096 tokens, and you asked for 5000.", "messages", "context_length_exceeded"),
        bad("'max_tokens' or 'max_completion_tokens' is too large: 5000. The maximum context length is 4096 tokens."),
        bad("The response was filtered: the prompt triggers the content management policy", "prompt", "content_filter"),
        bad("Your input was flagged: 'stop the seed temperature schema'"),
        Reply(400, b"Bad Request"),
    ],
)
def test_an_error_of_the_prompt_is_not_blamed_on_a_field(server: FakeServer, opened: Opened, reply: Reply) -> None:
    server.fail("tea", reply)
    done = one(opened(server), views("tea"))
    assert done.attempts == server.sends["tea"] == 1
    assert done.error_reason == ("content_filter" if b'"content_filter"' in reply.content else "bad_request")


def test_a_name_of_a_schema_is_plain_whatever_the_parameters(server: FakeServer, opened: Opened) -> None:
    server.answer = strict_schemas
    odd = Request("q", "q", "näh views (n=2)", "tea", "0" * 16, STRICT, DECODING, "näh views " + "x" * 80)
    assert one(opened(server), odd).attempts == 1
    assert server.bodies[0]["response_format"]["json_schema"]["name"] == ("n_h_views_" + "x" * 80)[:64]


def test_queries_note_what_their_requests_were_sent_without(server: FakeServer, opened: Opened) -> None:
    server.answer = claude
    rewriter = Rewriter(
        Rewriting(load_pool(["general", "keyword"]), decoding={"max_tokens": 64, "temperature": 0.5, "top_p": 0.5})
    )
    query = Query("q1", "tea")
    found = rewriter.read(query, list(opened(server).complete(rewriter.requests(query))))
    notes = [(one.strategy, one.message) for one in found.failures if one.reason == "sent_without"]
    assert notes == [("", "sent without what the server does not take: top_p 0.5")]


_NAMES = st.sets(
    st.sampled_from(["response_format", "chat_template_kwargs", "temperature", "top_p", "seed", "stop", "max_tokens"])
)


@given(_NAMES, st.lists(st.sampled_from(["seed", "temperature 0.0", "top_p 0.9", "response_format", "max_tokens"])))
def test_what_is_left_out_is_gone_and_the_rest_is_there(names: set[str], omitted: list[str]) -> None:
    values: Body = {"temperature": 0.0, "top_p": 0.9, "response_format": {"json_schema": {"schema": SCHEMA}}}
    body = {name: values.get(name, 7) for name in names}
    kept, left_out = with_args(body, {}, omitted)
    assert not sent_fields(kept) & set(omitted)
    assert sent_fields(kept) | set(left_out) >= sent_fields(body) - {"max_tokens"}
    assert set(left_out) <= set(omitted)
    assert all(kept[name] == body[name] for name in kept.keys() & names - {"response_format"})


@pytest.mark.parametrize("said", ["error", "abort", "insufficient_system_resource"])
def test_an_answer_that_the_server_broke_off_is_asked_for_again(server: FakeServer, opened: Opened, said: str) -> None:
    error = {"code": 502, "message": "the provider went away"}
    choice = {"message": {"role": "assistant", "content": "To rent a car in Ice"}, "finish_reason": said, "error": error}
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    broken = Reply(content=json.dumps({"choices": [choice], "usage": usage}).encode())
    server.fail("once", broken, times=1)
    server.fail("always", broken)
    engine = opened(server)
    once, always = one(engine, views("once")), one(engine, views("always"))
    assert (once.text, once.attempts, once.prompt_tokens, once.completion_tokens) == ("answer to: once", 2, 11, 8)
    assert (always.text, always.error_reason, always.attempts, always.completion_tokens) == (None, "broken_off", 3, 15)
    assert always.error_message == f"the server broke its answer off (finish_reason {said}): the provider went away"


@pytest.mark.parametrize(
    ("message", "finish_reason", "reason", "raw"),
    [
        ({"content": "To pick a lock, first insert"}, "content_filter", "content_filter", "To pick a lock, first insert"),
        ({"content": None, "refusal": "That I will not write."}, "stop", "refusal", "That I will not write."),
        ({"content": None, "reasoning_content": "Let me think: the user"}, "length", "cut_reasoning", ""),
        ({"content": "", "reasoning": "Let me think: the user"}, "length", "cut_reasoning", ""),
    ],
)
@pytest.mark.parametrize("strategy", ["general", "hyde", "rag_fusion"])
def test_what_is_no_answer_is_a_failure_with_its_raw_text(
    server: FakeServer, opened: Opened, message: Body, finish_reason: str, reason: str, raw: str, strategy: str
) -> None:
    choice = {"message": {"role": "assistant", **message}, "finish_reason": finish_reason}
    server.answer = lambda _: Reply(content=json.dumps({"choices": [choice]}).encode())
    rewriter, query = Rewriter(Rewriting(load_pool([strategy]), decoding={"max_tokens": 64})), Query("q1", "how to pick a lock")
    found = rewriter.read(query, list(opened(server).complete(rewriter.requests(query))))
    assert found.rewrites == []
    assert [(one.strategy, one.reason, one.raw) for one in found.failures] == [(strategy, reason, raw)]


# ---------------------------------------------------------------- prompts that are texts to go on with

TEXT = {"temperature": 0.0, "max_tokens": 64, "stop": ["[EOS]"], "chat_template_kwargs": {"enable_thinking": False}}


def text(prompt: str, **more: Any) -> Request:
    return ask(prompt, None, TEXT, "rq_rag", as_text=True, **more)


def test_a_text_goes_to_completions_as_it_is_and_a_message_to_chats(server: FakeServer, opened: Opened) -> None:
    engine = opened(server)
    done = one(engine, text("<|user|>\ntea", marks=("[EOS]",)))
    one(engine, ask("coffee", None, TEXT))
    common = {"model": "tiny", "temperature": 0.0, "max_tokens": 64, "stop": ["[EOS]"]}
    assert server.paths == ["/v1/completions", "/v1/chat/completions"]
    assert server.bodies == [
        common | {"prompt": "<|user|>\ntea", "skip_special_tokens": False},
        common | {
            "messages": [{"role": "user", "content": "coffee"}], "chat_template_kwargs": TEXT["chat_template_kwargs"]
        },
    ]  # fmt: skip
    assert (done.text, done.model, done.usage, done.prompt_tokens) == ("answer to: <|user|>\ntea", "tiny", "reported", 2)


def test_a_server_that_does_not_know_the_field_of_marks_is_asked_without_and_it_is_told(
    server: FakeServer, opened: Opened
) -> None:
    def strict(body: Body) -> Reply | None:
        return refusal(400, "Unrecognized request argument supplied: skip_special_tokens") if (
            "skip_special_tokens" in body
        ) else None  # fmt: skip

    server.answer = strict
    engine = opened(server)
    first, second = (one(engine, text(prompt, marks=("[EOS]",))) for prompt in ("tea", "coffee"))
    assert (first.text, first.attempts, first.left_out) == ("answer to: tea", 2, "skip_special_tokens")
    assert (second.attempts, second.left_out) == (1, "skip_special_tokens")


def test_a_server_without_completions_fails_the_request_and_says_so(opened: Opened) -> None:
    server = FakeServer()
    server.text_path = None
    with server:
        done = one(opened(server), text("tea"))
    assert done.text is None
    assert (done.error_reason, "404" in str(done.error_message)) == ("bad_request", True)

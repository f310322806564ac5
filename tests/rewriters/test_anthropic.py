"""The engine of Anthropic's Messages API, against a server at the wire."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster.errors import RewriterError
from rewriters.engines import Request, object_schema
from rewriters.engines.anthropic import MessagesProtocol
from rewriters.engines.openai.engine import OpenaiEngine
from rewriters.engines.openai.protocol import RequestFailure
from rewriters.engines.settings import AnthropicSettings
from tests.support.rewriters.fake_server import Reply
from tests.support.rewriters.messages_server import MessagesServer
from tests.support.rewriters.requests import one

KEY = "sk-ant-very-secret-0123456789"
SHARED = "Rewrite the query at the end, and reply with nothing else. "
Opened = Callable[..., OpenaiEngine]
PROTOCOL = MessagesProtocol()
CLAUDE = {"model": "claude-a", "api_key_env": "ANTHROPIC_API_KEY"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MessagesServer]:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    with MessagesServer(["claude-a", "claude-b"], key=KEY) as running:
        yield running


def asked(query: str = "tides", **more: Any) -> Request:
    return Request("0" * 32, query, "general", SHARED + query, "0" * 16, shared=len(SHARED), **more)


def test_a_completion_with_its_usage(server: MessagesServer, opened: Opened) -> None:
    engine = opened(server, **CLAUDE)
    first, second = one(engine, asked("tides")), one(engine, asked("moon and tides"))
    assert first.text == f"answer to: {SHARED}tides"
    assert (first.finish_reason, first.model, first.usage, first.attempts) == ("stop", "claude-a", "reported", 1)
    words = len(SHARED.split())
    assert (first.prompt_tokens, first.cached_tokens, first.cache_write_tokens) == (words + 1, 0, words)
    assert (second.prompt_tokens, second.cached_tokens, second.cache_write_tokens) == (words + 3, words, 0)
    assert server.bodies[0] == {
        "model": "claude-a",
        "max_tokens": 1024,
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": SHARED, "cache_control": {"type": "ephemeral"}},
                    {"type": "text", "text": "tides"},
                ],
            }
        ],
    }


def test_decoding_schema_and_thinking_in_its_words() -> None:
    schema = object_schema({"maxLength": {"type": "string", "maxLength": 9}})
    decoding = {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 300,
        "seed": 1,
        "stop": ["\n"],
        "chat_template_kwargs": {"x": 1},
    }
    body, left_out = PROTOCOL.request_body(
        "m", asked(decoding=decoding, schema=schema), {"output_config": {"effort": "low"}}, ()
    )
    assert (body["temperature"], body["top_p"], body["max_tokens"], body["stop_sequences"]) == (0.5, 0.9, 300, ["\n"])
    assert {"seed", "stop", "response_format"}.isdisjoint(body)
    assert left_out == ()
    assert body["output_config"] == {
        "effort": "low",
        "format": {
            "type": "json_schema",
            "schema": object_schema({"maxLength": {"type": "string"}}),
        },
    }
    thinking = {"type": "enabled", "budget_tokens": 2000}
    body, left_out = PROTOCOL.request_body("m", asked(decoding=decoding), {"thinking": thinking}, ())
    assert (body["max_tokens"], body["thinking"]) == (2300, thinking)
    assert left_out == ("temperature 0.5", "top_p 0.9")
    assert not {"temperature", "top_p"} & body.keys()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"content": "x"}', b'{"content": [{"type": "text"}]}', b"\xff", b"{" * 5000])
def test_what_is_no_message_is_a_bad_answer(content: bytes) -> None:
    found = PROTOCOL.parse_response(200, {}, content)
    assert isinstance(found, RequestFailure)
    assert found.reason == "bad_answer"


@pytest.mark.parametrize(
    ("words", "field", "left_out"),
    [
        ("`temperature` is deprecated for it", "temperature", "temperature 0.0"),
        ("output_config: Extra inputs are not permitted", "output_config", "output_config"),
        ("This model does not support output format", "output_config", "output_config"),
    ],
)
def test_a_field_that_a_model_refuses_is_left_out(
    server: MessagesServer, opened: Opened, words: str, field: str, left_out: str
) -> None:
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": words}}
    server.answer = lambda body: Reply(400, json.dumps(error).encode()) if field in body else None
    schema = object_schema({})
    found = one(opened(server, **CLAUDE), asked(decoding={"temperature": 0.0}, schema=schema))
    assert (found.text is None, found.left_out) == (False, left_out)


def test_a_null_in_args_leaves_the_schema_out() -> None:
    body, left_out = PROTOCOL.request_body("m", asked(schema=object_schema({})), {"output_config": None}, ())
    assert ("output_config" in body, left_out) == (False, ())


def test_the_check_knows_models_that_are_not_listed(server: MessagesServer, opened: Opened) -> None:
    opened(server, **CLAUDE).check()
    server.aliases.add("claude-latest")
    opened(server, **CLAUDE | {"model": "claude-latest"}).check()
    assert [body["model"] for body in server.bodies] == ["claude-latest"]
    with pytest.raises(RewriterError, match=r"no model 'claude-c' at .*claude-a"):
        opened(server, **CLAUDE | {"model": "claude-c"}).check()


def test_the_key_is_the_usual_one_and_is_never_shown(
    server: MessagesServer, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert AnthropicSettings(kind="anthropic", model="m").provider == "api.anthropic.com"
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY + "x")
    with pytest.raises(RewriterError) as error:
        one(opened(server, **CLAUDE), asked())
    assert "401" in str(error.value)
    assert KEY not in str(error.value)
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    with pytest.raises(RewriterError, match="the environment variable ANTHROPIC_API_KEY"):
        opened(server, **CLAUDE)

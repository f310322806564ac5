"""Requests whose prompt is a text to go on with, at the wire: Completions in place of chats, and marks that stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from cluster.errors import RewriterError
from rewriters.engines import Completion, Request, open_engine
from rewriters.engines.openai.engine import OpenaiEngine
from rewriters.engines.settings import AnthropicSettings
from tests.support.rewriters.fake_server import Body, FakeServer, Reply, refusal, text_completion
from tests.support.rewriters.messages_server import MessagesServer

DECODING = {"temperature": 0.0, "max_tokens": 64, "stop": ["[EOS]"], "chat_template_kwargs": {"enable_thinking": False}}
Opened = Callable[..., OpenaiEngine]


def ask(prompt: str, **more: Any) -> Request:
    return Request(prompt, prompt, "rq_rag", prompt, "0" * 16, None, DECODING, **more)


def one(engine: Any, request: Request) -> Completion:
    ((_, answered),) = engine.complete([request])
    return answered


def test_a_text_goes_to_completions_as_it_is_and_a_message_to_chats(server: FakeServer, opened: Opened) -> None:
    engine = opened(server)
    done = one(engine, ask("<|user|>\ntea", as_text=True, marks=("[EOS]",)))
    one(engine, ask("coffee"))
    common = {"model": "tiny", "temperature": 0.0, "max_tokens": 64, "stop": ["[EOS]"]}
    assert server.paths == ["/v1/completions", "/v1/chat/completions"]
    assert server.bodies == [
        common | {"prompt": "<|user|>\ntea", "skip_special_tokens": False},
        common | {
            "messages": [{"role": "user", "content": "coffee"}], "chat_template_kwargs": DECODING["chat_template_kwargs"]
        },
    ]  # fmt: skip
    assert (done.text, done.model, done.usage, done.prompt_tokens) == ("answer to: <|user|>\ntea", "tiny", "reported", 2)


def test_ends_and_usage_of_a_text_are_read_as_those_of_a_message(server: FakeServer, opened: Opened) -> None:
    def cut(body: Body) -> Reply:
        found = text_completion("green t", {"prompt_tokens": 7, "completion_tokens": 64})
        found["choices"][0]["finish_reason"] = "length"
        return Reply(content=json.dumps(found).encode())

    server.answer = cut
    done = one(opened(server), ask("tea", as_text=True))
    assert (done.text, done.finish_reason, done.prompt_tokens, done.completion_tokens) == ("green t", "length", 7, 64)


def test_faults_of_completions_are_retried_as_those_of_chats(server: FakeServer, opened: Opened) -> None:
    server.fail("tea", "503", times=1)
    done = one(opened(server), ask("tea", as_text=True))
    assert (done.text, done.attempts) == ("answer to: tea", 2)


def test_a_server_that_does_not_know_the_field_of_marks_is_asked_without_and_it_is_told(
    server: FakeServer, opened: Opened
) -> None:
    def strict(body: Body) -> Reply | None:
        return refusal(400, "Unrecognized request argument supplied: skip_special_tokens") if (
            "skip_special_tokens" in body
        ) else None  # fmt: skip

    server.answer = strict
    engine = opened(server)
    first, second = (one(engine, ask(prompt, as_text=True, marks=("[EOS]",))) for prompt in ("tea", "coffee"))
    assert (first.text, first.attempts, first.left_out) == ("answer to: tea", 2, "skip_special_tokens")
    assert (second.attempts, second.left_out) == (1, "skip_special_tokens")


def test_a_server_without_completions_fails_the_request_and_says_so(opened: Opened) -> None:
    server = FakeServer()
    server.text_path = None
    with server:
        done = one(opened(server), ask("tea", as_text=True))
    assert done.text is None
    assert (done.error_reason, "404" in str(done.error_message)) == ("bad_request", True)


def test_an_engine_of_messages_alone_refuses_a_text() -> None:
    with MessagesServer(["claude-a"]) as server:
        engine = open_engine(AnthropicSettings(kind="anthropic", model="claude-a", base_url=server.address, api_key_env=None))
        with pytest.raises(RewriterError, match=r"strategy 'rq_rag': its prompt is a text to go on with, and /messages takes"):
            one(engine, ask("tea", as_text=True))
        engine.close()
        assert not server.bodies


def test_the_form_of_a_request_is_told_only_where_it_is_not_the_usual() -> None:
    assert ask("tea").form == {}
    assert ask("tea", as_text=True, marks=("a",)).form == {"as_text": True, "marks": ["a"]}

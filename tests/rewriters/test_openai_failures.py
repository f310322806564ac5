"""Failures of single requests to a Chat Completions server: what they cost, and when they end a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rewriters.engines import Completion, Request
from rewriters.engines.openai.engine import OpenaiEngine
from tests.rewriters.fake_server import FakeServer, Reply

Opened = Callable[..., OpenaiEngine]


def ask(prompt: str) -> Request:
    return Request(prompt, prompt, "dmqr", prompt, "0" * 16, None, {"max_tokens": 64})


def outcome(engine: OpenaiEngine, *prompts: str) -> dict[str, Completion]:
    return {request.prompt: one for request, one in engine.complete([ask(prompt) for prompt in prompts])}


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Opens engines for a server, and closes them after the test."""
    engines: list[OpenaiEngine] = []

    def open_one(server: FakeServer, **changes: Any) -> OpenaiEngine:
        known = {"model": "tiny", "base_url": server.address, "timeout_seconds": 10, "attempts": 3, "patience_minutes": 0.02}
        engines.append(OpenaiEngine(**known | changes))
        return engines[-1]

    yield open_one
    for engine in engines:
        engine.close()


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

"""Requests to an engine, and what comes of them."""

from collections.abc import Mapping
from typing import Any

from rewriters.engines import Completion, Engine, Request

DECODING = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 64, "seed": 7}


def ask(prompt: str, schema: Any = None, decoding: Mapping[str, Any] = DECODING, name: str = "dmqr", **more: Any) -> Request:
    return Request(prompt, prompt, name, prompt, "0" * 16, schema, decoding, **more)


def one(engine: Engine, request: Request | str) -> Completion:
    ((_, answered),) = engine.complete([ask(request) if isinstance(request, str) else request])
    return answered


def outcome(engine: Engine, *prompts: str) -> dict[str, Completion]:
    """Returns every prompt's completion; each must come back once."""
    answered = [(request.prompt, completion) for request, completion in engine.complete([ask(prompt) for prompt in prompts])]
    assert sorted(prompt for prompt, _ in answered) == sorted(prompts)
    return dict(answered)

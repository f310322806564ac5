"""The engine of Anthropic's Messages API: that of `openai/`, which speaks another protocol.

Version 2023-06-01 of the API. The part of a prompt that is the same for all queries is marked to be cached (from some 1,000 to
4,000 tokens on, by the model; shorter ones are not cached and cost nothing more). Reported `input_tokens` are those that were
neither read from the cache nor written to it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from rewriters.engines import Request
from rewriters.engines.openai.engine import OpenaiEngine
from rewriters.engines.openai.protocol import (
    ChatProtocol,
    ChatResponse,
    RequestFailure,
    Usage,
    failure,
    json_body,
    reported,
    token_count,
    with_args,
)
from rewriters.engines.schemas import without_keywords

VERSION = "2023-06-01"
LEAST_TOKENS = 1024  # of the answer, where the decoding names no limit: the API wants one
# How a message may end; what is not here is "stop".
_FINISH_REASONS = {"max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "refusal"}
_THINKING = ("temperature", "top_p")  # taken from nobody whose model thinks
# What the schemas of structured outputs may not have: the reader checks it.
_UNSUPPORTED = frozenset(
    ("minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems",
     "maxItems", "uniqueItems")
)  # fmt: skip


def headers(key: str | None) -> dict[str, str]:
    """Returns the headers of a request beside its type."""
    return {"anthropic-version": VERSION} | ({"x-api-key": key} if key else {})


def request_body(
    model: str, request: Request, args: Mapping[str, Any], omitted: Collection[str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns the JSON object of a request, and what was left out of it, sorted.

    `args` are more fields, such as `thinking`, which override the others; null: the field is not sent. Those of `output_config`
    are merged with the schema of the answer. `omitted` is what the server refuses, in the names of `openai/fields.py`.
    """
    decoding = request.decoding
    fields: dict[str, Any] = {
        "model": model,
        "max_tokens": decoding.get("max_tokens") or LEAST_TOKENS,
        "messages": [{"role": "user", "content": _content(request)}],
    }
    if request.system:
        fields["system"] = [{"type": "text", "text": request.system, "cache_control": {"type": "ephemeral"}}]
    fields.update({name: decoding[name] for name in _THINKING if decoding.get(name) is not None})
    if fields.get("top_p") == 1:
        del fields["top_p"]
    if decoding.get("stop"):
        fields["stop_sequences"] = decoding["stop"]
    given = dict(args)
    thinking = given.get("thinking") or {}
    if "budget_tokens" in thinking:  # the limit counts what it thinks, too; the decoding's is of the answer
        fields["max_tokens"] += thinking["budget_tokens"]
    if request.schema and given.get("output_config", {}) is not None:
        config = given.pop("output_config", {})
        fields["output_config"] = config | {
            "format": {"type": "json_schema", "schema": _closed(without_keywords(request.schema, _UNSUPPORTED))}
        }
    if thinking.get("type") in ("enabled", "adaptive"):
        omitted = {*omitted, *(f"{name} {fields[name]}" for name in _THINKING if name in fields)}
    return with_args(fields, given, omitted)


def parse_response(status: int, headers: Mapping[str, str], content: bytes) -> ChatResponse | RequestFailure:
    """Returns the completion in an HTTP response, or why there is none."""
    if not 200 <= status < 300:
        return failure(status, headers, content)
    try:
        return _parse_message(content)
    except ValueError as problem:
        return RequestFailure("bad_answer", f"HTTP {status}, but {problem}", usage=reported(content, _usage))


def _content(request: Request) -> str | list[dict[str, Any]]:
    """Returns the prompt, its part that all queries share marked to be cached."""
    shared, own = request.prompt[: request.shared], request.prompt[request.shared :]
    if not shared.strip() or not own.strip():
        return request.prompt
    return [{"type": "text", "text": shared, "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": own}]


def _closed(schema: Any) -> Any:
    """Returns a schema without further keys of objects, as structured outputs want it."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    return closed | ({"additionalProperties": False} if closed.get("type") == "object" else {})


def _parse_message(content: bytes) -> ChatResponse:
    """Returns the text of a message. Raises ValueError with the problem in words."""
    found = json_body(content)
    blocks = found.get("content") if isinstance(found, dict) else None
    if not isinstance(blocks, list):
        raise ValueError("the body is not a message")
    texts = [one.get("text") for one in blocks if isinstance(one, dict) and one.get("type") == "text"]
    if not all(isinstance(one, str) for one in texts):
        raise ValueError("its text is not text")
    said = found.get("stop_reason")
    finish_reason = _FINISH_REASONS.get(said, "stop") if isinstance(said, str) else "stop"
    return ChatResponse("".join(map(str, texts)), finish_reason, _usage(found))


def _usage(found: Mapping[str, Any]) -> Usage:
    usage = found.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    fresh, read = token_count(usage.get("input_tokens")), token_count(usage.get("cache_read_input_tokens")) or 0
    written = token_count(usage.get("cache_creation_input_tokens")) or 0
    prompt = None if fresh is None else fresh + read + written
    return Usage(prompt, token_count(usage.get("output_tokens")), read, written)


class AnthropicEngine(OpenaiEngine):
    """The engine of one model of Anthropic's; requests, failures and their retries are those of `OpenaiEngine`."""

    kind = "anthropic"
    protocol: ClassVar[ChatProtocol] = ChatProtocol("/messages", headers, request_body, parse_response)

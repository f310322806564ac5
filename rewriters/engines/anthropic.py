"""The engine of Anthropic's Messages API: that of `openai/`, which speaks another protocol.

Version 2023-06-01 of the API. The part of a prompt that is the same for all queries is marked to be cached (from some 1,000 to
4,000 tokens on, by the model; shorter ones are not cached and cost nothing more). Reported `input_tokens` are those that were
neither read from the cache nor written to it.
"""

from collections.abc import Collection, Mapping
from typing import Any

from rewriters.engines import Request
from rewriters.engines.openai.engine import OpenaiEngine
from rewriters.engines.openai.protocol import Body, ChatProtocol, ChatResponse, Usage, sampling, token_counts, with_args

VERSION = "2023-06-01"
LEAST_TOKENS = 1024  # of the answer, where the decoding names no limit: the API wants one
# How a message may end; any other value is "stop".
_FINISH_REASONS = {"max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "refusal"}
_THINKING = ("temperature", "top_p")  # taken from nobody whose model thinks


class MessagesProtocol(ChatProtocol):
    """The Messages API. Its `args` may have `thinking`; those of `output_config` are merged with the schema of the answer."""

    path = "/messages"

    def headers(self, key: str | None) -> dict[str, str]:
        return {"anthropic-version": VERSION} | ({"x-api-key": key} if key else {})

    def request_body(self, model: str, request: Request, args: Mapping[str, Any], omitted: Collection[str]) -> Body:
        decoding = request.decoding
        fields: dict[str, Any] = {
            "model": model,
            "max_tokens": decoding.get("max_tokens") or LEAST_TOKENS,
            "messages": [{"role": "user", "content": _content(request)}],
        }
        if request.system:
            fields["system"] = [_cached(request.system)]
        fields |= sampling(decoding, _THINKING)
        if decoding.get("stop"):
            fields["stop_sequences"] = decoding["stop"]
        given = dict(args)
        thinking = given.get("thinking") or {}
        if "budget_tokens" in thinking:  # the limit counts what it thinks, too; the decoding's is of the answer
            fields["max_tokens"] += thinking["budget_tokens"]
        if request.schema and given.get("output_config", {}) is not None:
            form = {"format": {"type": "json_schema", "schema": request.sent_schema}}
            fields["output_config"] = given.pop("output_config", {}) | form
        if thinking.get("type") in ("enabled", "adaptive"):
            omitted = {*omitted, *(f"{name} {fields[name]}" for name in _THINKING if name in fields)}
        return with_args(fields, given, omitted)

    def completion(self, body: Any) -> ChatResponse:
        blocks = body.get("content") if isinstance(body, dict) else None
        if not isinstance(blocks, list):
            raise ValueError("the body is not a message")
        texts = [one.get("text") for one in blocks if isinstance(one, dict) and one.get("type") == "text"]
        if not all(isinstance(one, str) for one in texts):
            raise ValueError("its text is not text")
        finish_reason = _FINISH_REASONS.get(str(body.get("stop_reason")), "stop")
        return ChatResponse("".join(map(str, texts)), finish_reason, self.usage(body))

    def usage(self, body: Mapping[str, Any]) -> Usage:
        counts = token_counts(
            body.get("usage"), prompt_tokens="input_tokens", completion_tokens="output_tokens",
            cached_tokens="cache_read_input_tokens", cache_write_tokens="cache_creation_input_tokens",
        )  # fmt: skip
        if "prompt_tokens" in counts:
            counts["prompt_tokens"] += counts.get("cached_tokens", 0) + counts.get("cache_write_tokens", 0)
        return counts


class AnthropicEngine(OpenaiEngine):
    """The engine of one model of Anthropic's; requests, failures and their retries are those of `OpenaiEngine`."""

    kind = "anthropic"
    protocol = MessagesProtocol()


def _cached(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}


def _content(request: Request) -> str | list[dict[str, Any]]:
    """Returns the prompt, its part that all queries share marked to be cached."""
    shared, own = request.prompt[: request.shared], request.prompt[request.shared :]
    return [_cached(shared), {"type": "text", "text": own}] if shared.strip() and own.strip() else request.prompt

"""The protocols Chat Completions and Completions: builds request bodies and parses responses, without any network.

A prompt that the model is to go on with, in place of answering it, goes to Completions; all else to Chat Completions.

Which fields a server may refuse: `fields.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import responses
from typing import Any, NamedTuple, TypeVar

from cluster.errors import RewriterError
from cluster.http import FATAL, parsed_json, retry_after
from rewriters.engines import Request
from rewriters.engines.openai.fields import FILTERED, error_details, schema_name, without
from rewriters.engines.schemas import without_keywords

FIELD_REJECTIONS = frozenset({400, 404, 422, 501})  # statuses that can be due to one field
_UNAVAILABLE = frozenset({502, 503, 504, 529, 520, 521, 522, 523})  # due to the server's state, not to the request
_TIMEOUT = frozenset({408, 524})
# How servers say that an answer did not end by itself (all else: "stop"): OpenAI, OpenRouter, Mistral, Gemini, Claude,
# DeepSeek, GLM, vLLM. None: the server broke it off, and the request is sent again.
_FINISH_REASONS: dict[str, str | None] = {
    **dict.fromkeys(("length", "max_tokens", "model_length", "repetition"), "length"),
    **dict.fromkeys(
        ("content_filter", "safety", "recitation", "prohibited_content", "blocklist", "spii", "sensitive"), "content_filter"
    ),
    "refusal": "refusal",
    **dict.fromkeys(("error", "abort", "aborted", "network_error", "insufficient_system_resource")),
}
_DECODING = ("temperature", "top_p", "max_tokens", "seed")
_MAX_TOKEN_COUNT = 2**31
_TIER = re.compile(r"[a-z][a-z0-9_-]{0,39}")  # it becomes a part of names
STANDARD = "standard"
"""The tier that OpenAI calls `default`."""
Read = TypeVar("Read")


class _BrokenOffError(ValueError):
    pass


class Usage(NamedTuple):
    """The tokens that a server reports; a count that is missing or invalid is None."""

    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int
    cache_write_tokens: int = 0


@dataclass(frozen=True)
class ChatResponse:
    """A completion as the server sent it; finish_reason and tier as in `Completion`."""

    text: str
    finish_reason: str
    usage: Usage
    tier: str | None = None


@dataclass(frozen=True)
class RequestFailure:
    """Why one send of a request brought no completion."""

    reason: str  # the error's name in the tables
    message: str  # the server's or the system's words
    uses_attempt: bool = True  # False: due to the server's state, and retried within the patience
    final: bool = False  # it must not be retried
    retry_after: float | None = None  # seconds that the server asked to wait
    usage: Usage | None = None  # the tokens that the server reports of it all the same
    tier: str | None = None  # that these are billed by, as in `Completion`


def request_body(
    model: str, request: Request, args: Mapping[str, Any], omitted: Collection[str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns the JSON object of a request, and what was left out of it, sorted.

    `args` are more fields, which override the others; null: the field is not sent. `omitted` is what the server refuses, in
    the names of `fields.py`.
    """
    decoding = request.decoding
    system = [{"role": "system", "content": request.system}] if request.system else []
    messages = [*system, {"role": "user", "content": request.prompt}]
    fields: dict[str, Any] = {"model": model} | ({"prompt": request.prompt} if request.as_text else {"messages": messages})
    fields.update({name: decoding[name] for name in _DECODING if decoding.get(name) is not None})
    if fields.get("top_p") == 1:  # what servers take where it is not sent; some take it from nobody
        del fields["top_p"]
    more = ("stop",) if request.as_text else ("stop", "chat_template_kwargs")
    fields.update({name: decoding[name] for name in more if decoding.get(name)})
    if request.marks:  # else servers leave special tokens out of the text
        fields["skip_special_tokens"] = False
    if request.schema:
        name, schema = schema_name(request.recorded_as or request.name), without_keywords(request.schema)
        fields["response_format"] = {"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": True}}
    return with_args(fields, args, omitted)


def with_args(
    fields: Mapping[str, Any], args: Mapping[str, Any], omitted: Collection[str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns the fields of a request with those of the config in their place, and what was left out of it, sorted."""
    own = {name: value for name, value in fields.items() if name not in args}
    kept, left_out = without(own, omitted)
    return kept | {name: value for name, value in args.items() if value is not None}, left_out


def encode(body: Mapping[str, Any]) -> bytes:
    """Returns a request body as JSON in UTF-8, with lone surrogates replaced."""
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def is_fatal(status: int) -> bool:
    """Returns whether a status means that no request can succeed: the key, the account or the address is wrong."""
    return status in FATAL or 300 <= status < 400


def parse_response(status: int, headers: Mapping[str, str], content: bytes) -> ChatResponse | RequestFailure:
    """Returns the completion in an HTTP response, or why there is none."""
    if 200 <= status < 300:
        try:
            return _parse_completion(content)
        except ValueError as problem:
            reason, message = "broken_off", str(problem)
            if not isinstance(problem, _BrokenOffError):
                reason, message = "bad_answer", f"HTTP {status}, but {problem}: {error_text(content) or 'nothing'}"
            return RequestFailure(reason, message, usage=reported(content, _usage), tier=reported(content, _tier))
    return failure(status, headers, content)


def failure(status: int, headers: Mapping[str, str], content: bytes) -> RequestFailure:
    """Returns why a response without a completion has none."""
    message = f"HTTP {status}: {error_text(content) or responses.get(status, 'nothing more')}"
    wait = retry_after(headers)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return RequestFailure("rate_limited", message, uses_attempt=False, retry_after=wait)
    if status in _UNAVAILABLE:
        return RequestFailure("unavailable", message, uses_attempt=False, retry_after=wait)
    broken = status == HTTPStatus.CONFLICT or (status >= 500 and status != HTTPStatus.NOT_IMPLEMENTED)
    if status in _TIMEOUT or broken:
        return RequestFailure("timeout" if status in _TIMEOUT else "server_error", message, retry_after=wait)
    reason = "content_filter" if FILTERED.fullmatch(error_details(content).code) else "bad_request"
    return RequestFailure(reason, message, final=True)


def error_text(content: bytes) -> str:
    """Returns the message of a JSON error, or else the beginning of the body, on one line."""
    return " ".join(error_details(content).message.split())[:200]


def token_count(value: object) -> int | None:
    """Returns a reported token count, None if it is invalid."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_TOKEN_COUNT else None


def json_body(content: bytes) -> Any:
    """Returns the parsed JSON. Raises ValueError with the problem in words."""
    try:
        return parsed_json(content)
    except RecursionError:
        raise ValueError("its JSON is nested too deep") from None
    except ValueError:
        raise ValueError("the body is not JSON") from None


def _parse_completion(content: bytes) -> ChatResponse:
    """Returns the first choice of a response. Raises ValueError with the problem in words."""
    found = json_body(content)
    if not isinstance(found, dict):
        raise ValueError("the body is not a completion")
    choices = found.get("choices")
    if not isinstance(choices, list) or not choices:
        raise ValueError("it has no choices")
    message = choices[0].get("message") if isinstance(choices[0], dict) else None
    if message is None and isinstance(choices[0], dict) and isinstance(choices[0].get("text"), str):  # of Completions
        message = {"content": choices[0]["text"]}
    if not isinstance(message, dict):
        raise ValueError("its choice has no message")
    said = choices[0].get("finish_reason")
    finish_reason = _FINISH_REASONS.get(said.casefold(), "stop") if isinstance(said, str) else "stop"
    if finish_reason is None:
        why = error_text(json.dumps(choices[0]["error"]).encode()) if choices[0].get("error") else "nothing more"
        raise _BrokenOffError(f"the server broke its answer off (finish_reason {said[:40]}): {why}")
    text, refusal = _text(message.get("content")), message.get("refusal")
    if found.get("error") and not text.strip():
        raise ValueError("it holds an error")
    if isinstance(refusal, str) and refusal.strip() and not text.strip():
        text, finish_reason = refusal, "refusal"
    return ChatResponse(text, finish_reason, _usage(found), _tier(found))


def _usage(found: Mapping[str, Any]) -> Usage:
    usage = found.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("prompt_tokens_details")
    prompt = token_count(usage.get("prompt_tokens"))
    cached = token_count(details.get("cached_tokens") if isinstance(details, dict) else 0)
    return Usage(prompt, token_count(usage.get("completion_tokens")), min(cached or 0, prompt or 0))


def _tier(found: Mapping[str, Any]) -> str | None:
    """Returns the tier that a response names; None where it names none, or repeats that the server was to choose."""
    said = found.get("service_tier")
    name = said.casefold() if isinstance(said, str) else ""
    if not _TIER.fullmatch(name) or name == "auto":
        return None
    return STANDARD if name == "default" else name


def reported(content: bytes, read: Callable[[Mapping[str, Any]], Read]) -> Read:
    """Returns what an answer reports that is no completion, such as its usage; `read` reads it from an object."""
    try:
        found = json_body(content)
    except ValueError:
        found = None
    return read(found if isinstance(found, dict) else {})


def _text(content: object) -> str:
    """Returns the text of a message: its content is a string, null, or a list of parts, of which those of text count."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):  # others are reasoning
        parts = [part for part in content if isinstance(part, dict) and part.get("type", "text") in ("text", "output_text")]
        return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))
    raise ValueError("its message is not text")


@dataclass(frozen=True)
class ChatProtocol:
    """How a kind of server is spoken to."""

    path: str  # of completions, behind the base URL
    headers: Callable[[str | None], dict[str, str]]
    request_body: Callable[[str, Request, Mapping[str, Any], Collection[str]], tuple[dict[str, Any], tuple[str, ...]]]
    parse_response: Callable[[int, Mapping[str, str], bytes], ChatResponse | RequestFailure]
    text_path: str | None = None  # of completions of a text that is no message

    def path_of(self, request: Request) -> str:
        """Returns the path that a request goes to.

        Raises:
            RewriterError: The server takes messages alone.
        """
        if not request.as_text:
            return self.path
        if self.text_path is None:
            what = f"strategy {request.name!r}: its prompt is a text to go on with, and {self.path} takes messages alone"
            raise RewriterError("engine-setting", f"{what}; give it another kind of engine, or set prompt_as: message")
        return self.text_path

    def probe_body(self, model: str, args: Mapping[str, Any], omitted: Collection[str]) -> dict[str, Any]:
        """Returns a request to which nobody can object: it shows whether a server refuses all of them."""
        probe = Request("", "", "probe", "Say yes.", "", decoding={"max_tokens": 16})
        return self.request_body(model, probe, args, omitted)[0]


CHAT_COMPLETIONS = ChatProtocol(
    "/chat/completions",
    lambda key: {"Authorization": f"Bearer {key}"} if key else {},
    request_body,
    parse_response,
    text_path="/completions",
)

"""The Chat Completions protocol: builds request bodies and parses responses, without any network.

Servers differ in the fields that they accept beside the messages. A field that only guides the answer (`OPTIONAL_FIELDS`)
is omitted for a server that rejects it; `max_tokens` is then sent under its newer name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NamedTuple

from cluster.http import FATAL, parsed_json, retry_after
from rewriters.engines import Request

# Fields that a request can go without, each with the words by which error messages name it.
OPTIONAL_FIELDS = {
    "response_format": re.compile(r"response_format|json_schema|structured|guided|grammar", re.I),
    "chat_template_kwargs": re.compile(r"chat_template", re.I),
    "seed": re.compile(r"\bseed\b", re.I),
    "stop": re.compile(r"\bstop\b", re.I),
}
RENAMED_FIELD = "max_tokens"  # if omitted, it is sent as max_completion_tokens
FIELD_REJECTIONS = frozenset({400, 404, 422, 501})  # statuses that can be due to one field
_UNAVAILABLE = frozenset({502, 503, 504, 529, 520, 521, 522, 523})  # due to the server's state, not to the request
_TIMEOUT = frozenset({408, 524})
_DECODING = ("temperature", "top_p", "max_tokens", "seed")
_MAX_TOKEN_COUNT = 2**31


class Usage(NamedTuple):
    """The tokens that a server reports; a count that is missing or invalid is None."""

    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int


@dataclass(frozen=True)
class ChatResponse:
    """A completion as the server sent it."""

    text: str
    finish_reason: str
    usage: Usage


@dataclass(frozen=True)
class RequestFailure:
    """Why one send of a request brought no completion.

    Attributes:
        reason: The error's name in the tables.
        message: The server's or the system's words.
        uses_attempt: False for failures due to the server's state, which are retried within the patience.
        final: True if the request must not be retried.
        retry_after: Seconds that the server asked to wait.
        usage: The tokens that the server reports of it all the same: of the prompt, from its cache, of the completion.
    """

    reason: str
    message: str
    uses_attempt: bool = True
    final: bool = False
    retry_after: float | None = None
    usage: Usage | None = None


def request_body(model: str, request: Request, args: Mapping[str, Any], omitted: Collection[str]) -> dict[str, Any]:
    """Returns the JSON object of a request without the `omitted` fields; those in `args` are always sent."""
    decoding = request.decoding
    fields: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": request.prompt}]}
    fields.update({name: decoding[name] for name in _DECODING if decoding.get(name) is not None})
    fields.update({name: decoding[name] for name in ("stop", "chat_template_kwargs") if decoding.get(name)})
    if request.schema:
        schema = {"name": request.name, "schema": request.schema, "strict": True}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    for name in omitted:
        value = fields.pop(name, None)
        if name == RENAMED_FIELD and value is not None:
            fields["max_completion_tokens"] = value
    return fields | dict(args)


def probe_body(model: str, args: Mapping[str, Any], omitted: Collection[str]) -> dict[str, Any]:
    """Returns the JSON object of a request to which nobody can object: it shows whether a server refuses all of them."""
    return request_body(model, Request("", "", "probe", "Say yes.", "", decoding={"max_tokens": 16}), args, omitted)


def encode(body: Mapping[str, Any]) -> bytes:
    """Returns a request body as JSON in UTF-8, with lone surrogates replaced."""
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def rejected_fields(content: bytes, sent: Collection[str]) -> set[str]:
    """Returns the optional fields among `sent` that an error response rejects."""
    message, named = _error_details(content)
    found = {name for name, pattern in OPTIONAL_FIELDS.items() if pattern.search(message if named is None else " ".join(named))}
    if "max_completion_tokens" in message and "max_completion_tokens" not in sent:
        found.add(RENAMED_FIELD)
    return found & set(sent)


def is_fatal(status: int) -> bool:
    """Returns whether a status means that no request can succeed: the key, the account or the address is wrong."""
    return status in FATAL or 300 <= status < 400


def parse_response(status: int, headers: Mapping[str, str], content: bytes) -> ChatResponse | RequestFailure:
    """Returns the completion in an HTTP response, or why there is none."""
    if 200 <= status < 300:
        try:
            return _parse_completion(content)
        except ValueError as problem:
            message = f"HTTP {status}, but {problem}: {error_text(content) or 'nothing'}"
            return RequestFailure("bad_answer", message, usage=_reported(content))
    message = f"HTTP {status}: {error_text(content) or _phrase(status)}"
    wait = retry_after(headers)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return RequestFailure("rate_limited", message, uses_attempt=False, retry_after=wait)
    if status in _UNAVAILABLE:
        return RequestFailure("unavailable", message, uses_attempt=False, retry_after=wait)
    broken = status == HTTPStatus.CONFLICT or (status >= 500 and status != HTTPStatus.NOT_IMPLEMENTED)
    if status in _TIMEOUT or broken:
        return RequestFailure("timeout" if status in _TIMEOUT else "server_error", message, retry_after=wait)
    return RequestFailure("bad_request", message, final=True)


def error_text(content: bytes) -> str:
    """Returns the message of a JSON error, or else the beginning of the body, on one line."""
    return " ".join(_error_details(content)[0].split())[:200]


def _token_count(value: object) -> int | None:
    """Returns a reported token count, None if it is invalid."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_TOKEN_COUNT else None


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "nothing more"


def _json(content: bytes) -> Any:
    """Returns the parsed JSON. Raises ValueError with the problem in words."""
    try:
        return parsed_json(content)
    except RecursionError:
        raise ValueError("its JSON is nested too deep") from None
    except ValueError:
        raise ValueError("the body is not JSON") from None


def _error_details(content: bytes) -> tuple[str, list[str] | None]:
    """Returns the message of an error response, and the fields that it lists as rejected (None: no such list)."""
    try:
        found = _json(content[:100_000])
    except ValueError:
        return content[:2_000].decode("utf-8", "replace"), None
    error = found.get("error", found) if isinstance(found, dict) else found
    if not isinstance(error, dict):
        return str(error)[:2_000], None
    detail = error.get("detail")
    if isinstance(detail, list) and detail and all(isinstance(one, dict) for one in detail):
        message = "; ".join(f"{'.'.join(map(str, _list(one.get('loc'))))}: {one.get('msg', '')}" for one in detail)
        return message, [str(name) for one in detail for name in _list(one.get("loc"))]
    message = str(next((error[key] for key in ("message", "detail", "error") if error.get(key)), error))[:2_000]
    message = re.split(r"['\"]input['\"]\s*:", message)[0]  # some servers quote the whole request after it
    param = error.get("param")
    return message, [param] if isinstance(param, str) and param else None


def _parse_completion(content: bytes) -> ChatResponse:
    """Returns the first choice of a response. Raises ValueError with the problem in words."""
    found = _json(content)
    if not isinstance(found, dict):
        raise ValueError("the body is not a completion")
    choices = found.get("choices")
    if not isinstance(choices, list) or not choices:
        raise ValueError("it has no choices")
    message = choices[0].get("message") if isinstance(choices[0], dict) else None
    if not isinstance(message, dict):
        raise ValueError("its choice has no message")
    return ChatResponse(
        _text(message.get("content")),
        "length" if choices[0].get("finish_reason") == "length" else "stop",
        _usage(found),
    )


def _usage(found: Mapping[str, Any]) -> Usage:
    usage = found.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("prompt_tokens_details")
    prompt = _token_count(usage.get("prompt_tokens"))
    cached = _token_count(details.get("cached_tokens") if isinstance(details, dict) else 0)
    return Usage(prompt, _token_count(usage.get("completion_tokens")), min(cached or 0, prompt or 0))


def _reported(content: bytes) -> Usage:
    """Returns the usage in an answer that is no completion."""
    try:
        found = _json(content)
    except ValueError:
        found = None
    return _usage(found if isinstance(found, dict) else {})


def _text(content: object) -> str:
    """Returns the text of a message: its content is a string, null, or a list of parts, of which those of text count."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
    raise ValueError("its message is not text")


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []

"""The words of the Chat Completions protocol: what a request says, and what an answer means. No network here.

Servers differ in what they accept beside the messages. A field of ours that one refuses can be left out, where the answer
is then only less guided (`OPTIONAL`), and `max_tokens` has a younger name.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

from rewriters.engines import Request

# Fields of a request that may be left out, each with what a refusal of it speaks of.
OPTIONAL = {
    "response_format": re.compile(r"response_format|json_schema|structured|guided|grammar", re.I),
    "chat_template_kwargs": re.compile(r"chat_template", re.I),
    "seed": re.compile(r"\bseed\b", re.I),
    "stop": re.compile(r"\bstop\b", re.I),
}
RENAMED = "max_tokens"  # left out as this, sent as max_completion_tokens
REFUSALS = frozenset({400, 404, 422, 501})  # statuses that may be about one field
_FATAL = frozenset({401, 402, 403, 404, 405})  # key, account or address
_AWAY = frozenset({502, 503, 504, 529, 520, 521, 522, 523})  # the server's state, not the request's fault
_LATE = frozenset({408, 524})
_DECODING = ("temperature", "top_p", "max_tokens", "seed")
_MOST_TOKENS = 2**31


@dataclass(frozen=True)
class Answer:
    """A completion as the server wrote it. A count that it did not report, or that is none, is None."""

    text: str
    finish_reason: str
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int


@dataclass(frozen=True)
class Failure:
    """Why one send gave nothing.

    own: the request's own failure, so that it uses up an attempt; else the server's state. final: not to be sent again.
    wait: seconds that the server asked to wait.
    """

    reason: str
    message: str
    own: bool = True
    final: bool = False
    wait: float | None = None


def body(model: str, request: Request, args: Mapping[str, Any], left_out: Collection[str]) -> dict[str, Any]:
    """The JSON of a request, without the fields `left_out` (but what `args` names is sent whatever happens)."""
    decoding = request.decoding
    fields: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": request.prompt}]}
    fields.update({name: decoding[name] for name in _DECODING if decoding.get(name) is not None})
    fields.update({name: decoding[name] for name in ("stop", "chat_template_kwargs") if decoding.get(name)})
    if request.schema:
        schema = {"name": request.name, "schema": request.schema, "strict": True}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    for name in left_out:
        value = fields.pop(name, None)
        if name == RENAMED and value is not None:
            fields["max_completion_tokens"] = value
    return fields | dict(args)


def encoded(fields: Mapping[str, Any]) -> bytes:
    """The bytes of a request: UTF-8, half surrogate pairs replaced."""
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")


def refused(content: bytes, sent: Collection[str]) -> set[str]:
    """The optional fields among `sent` that an error answer complains about."""
    message, named = _complaint(content)
    found = {name for name, pattern in OPTIONAL.items() if pattern.search(message if named is None else " ".join(named))}
    if "max_completion_tokens" in message and "max_completion_tokens" not in sent:
        found.add(RENAMED)
    return found & set(sent)


def fatal(status: int) -> bool:
    """Whether a status says that no request at all can succeed: the key, the account or the address is wrong."""
    return status in _FATAL or 300 <= status < 400


def verdict(status: int, headers: Mapping[str, str], content: bytes) -> Answer | Failure:
    """What an HTTP answer means for its request."""
    if 200 <= status < 300:
        try:
            return _completion(content)
        except ValueError as problem:
            return Failure("bad_answer", f"HTTP {status}, but {problem}: {words(content) or 'nothing'}")
    said = f"HTTP {status}: {words(content) or _phrase(status)}"
    wait = retry_after(headers)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Failure("rate_limited", said, own=False, wait=wait)
    if status in _AWAY:
        return Failure("unavailable", said, own=False, wait=wait)
    broken = status == HTTPStatus.CONFLICT or (status >= 500 and status != HTTPStatus.NOT_IMPLEMENTED)
    if status in _LATE or broken:
        return Failure("timeout" if status in _LATE else "server_error", said, wait=wait)
    return Failure("bad_request", said, final=True)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that Retry-After asks for, whether it says seconds or a date (by the server's own clock); None without."""
    value = headers.get("Retry-After", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - parsedate_to_datetime(headers["Date"])).total_seconds()
        except (KeyError, TypeError, ValueError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def words(content: bytes) -> str:
    """The server's own words, on one line: the message of a JSON error, or the beginning of whatever else it sent."""
    return " ".join(_complaint(content)[0].split())[:200]


def whole(value: object) -> int | None:
    """A token count, or None for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_TOKENS else None


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "nothing more"


def _json(content: bytes) -> Any:
    """The JSON value of some bytes; ValueError, with the problem in words, for anything else."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("its JSON is nested too deep") from None
    except ValueError:
        raise ValueError("the body is not JSON") from None


def _complaint(content: bytes) -> tuple[str, list[str] | None]:
    """An error answer's message, and the fields that it names as fields (None: it does not say)."""
    try:
        found = _json(content[:100_000])
    except ValueError:
        return content[:2_000].decode("utf-8", "replace"), None
    error = found.get("error", found) if isinstance(found, dict) else found
    if not isinstance(error, dict):
        return str(error)[:2_000], None
    detail = error.get("detail")
    if isinstance(detail, list) and detail and all(isinstance(one, dict) for one in detail):
        said = "; ".join(f"{'.'.join(map(str, _list(one.get('loc'))))}: {one.get('msg', '')}" for one in detail)
        return said, [str(name) for one in detail for name in _list(one.get("loc"))]
    message = str(next((error[key] for key in ("message", "detail", "error") if error.get(key)), error))[:2_000]
    message = re.split(r"['\"]input['\"]\s*:", message)[0]  # some quote the whole request after it
    param = error.get("param")
    return message, [param] if isinstance(param, str) and param else None


def _completion(content: bytes) -> Answer:
    """The first choice of an answer; ValueError, with the problem in words, where there is none."""
    found = _json(content)
    if not isinstance(found, dict):
        raise ValueError("the body is not a completion")
    choices = found.get("choices")
    if not isinstance(choices, list) or not choices:
        raise ValueError("it has no choices")
    message = choices[0].get("message") if isinstance(choices[0], dict) else None
    if not isinstance(message, dict):
        raise ValueError("its choice has no message")
    usage = found.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("prompt_tokens_details")
    prompt, cached = whole(usage.get("prompt_tokens")), whole(details.get("cached_tokens") if isinstance(details, dict) else 0)
    return Answer(
        _text(message.get("content")).encode("utf-8", "replace").decode("utf-8"),  # JSON can escape half a surrogate pair
        "length" if choices[0].get("finish_reason") == "length" else "stop",
        prompt,
        whole(usage.get("completion_tokens")),
        min(cached or 0, prompt or 0),
    )


def _text(content: object) -> str:
    """A message's content: a string, nothing, or a list of parts of which those of text count."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
    raise ValueError("its message is not text")


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []

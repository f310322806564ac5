"""Fields of a request that some servers refuse: which one an error names, and the request without it.

Models differ in the fields that they take beside the messages: reasoning models of OpenAI take no `temperature` but 1 and no
`max_tokens`; Claude takes `temperature` or `top_p`. A field that only guides the answer is left out for a server that refuses
it, each for its own error; `max_tokens` is then sent under its newer name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from cluster.http import parsed_json

RENAMED = "max_tokens"  # sent as max_completion_tokens if refused, so nothing is lost
# The fields that a request can go without, each with the words by which errors name it.
_WORDS = {
    "response_format": re.compile(r"response_format|json_schema|\bschema\b|structured|guided|grammar", re.I),
    "output_config": re.compile(r"output_config|output[ _]format|json_schema|\bschema\b|structured", re.I),  # of Claude
    "chat_template_kwargs": re.compile(r"chat_template", re.I),
    "skip_special_tokens": re.compile(r"skip_special_tokens", re.I),
    "temperature": re.compile(r"\btemperature\b", re.I),
    "top_p": re.compile(r"\btop_p\b", re.I),
    "seed": re.compile(r"\bseed\b", re.I),
    "stop": re.compile(r"\bstop\b", re.I),
}
_BY_VALUE = ("temperature", "top_p")  # another value may be taken
_NEWER_NAME = re.compile(r"max_completion_tokens", re.I)
# Errors of the prompt, which name fields only in passing ("max_tokens is too large: the context length is ...").
_CODES_OF_PROMPT = frozenset(
    {"context_length_exceeded", "string_above_max_length", "content_filter", "content_policy_violation"}
)
_OF_THE_PROMPT = re.compile(
    r"context[ _](?:length|window|size)|maximum (?:model|input|prompt)? ?length|max_model_len|prompt is too long"
    r"|content[ _](?:filter|management|policy)|moderation|flagged",
    re.I,
)
FILTERED = re.compile(r"content_filter|content_policy_violation|responsible_?ai_?policy_?violation", re.I)
"""Codes of errors by which a server's filter refuses a prompt."""


class ErrorDetails(NamedTuple):
    """The content of an error response."""

    message: str  # in words
    named: tuple[str, ...] | None = None  # the fields that it lists as refused; None: no such list
    code: str = ""  # its name for the error; "": none


def error_details(content: bytes, depth: int = 2) -> ErrorDetails:
    """Returns the content of an error response; `depth` and JSON as of `details_of`."""
    try:
        return details_of(parsed_json(content[:100_000]), depth)
    except (ValueError, RecursionError):
        return ErrorDetails(content[:2_000].decode("utf-8", "replace"))


def refused(error: ErrorDetails, body: Mapping[str, Any], fixed: Collection[str]) -> frozenset[str]:
    """Returns the fields of a request that an error refuses, in the names of `without`: of several in a sentence the first.

    `fixed` are those that the config sets, which are sent whatever comes.
    """
    message, named, code = error
    open_to = body.keys() - set(fixed)
    words = message if named is None else " ".join(named)
    at = {name: found.start() for name, pattern in _WORDS.items() if name in open_to and (found := pattern.search(words))}
    if code in _CODES_OF_PROMPT or (_OF_THE_PROMPT.search(message) and (named is None or not at)):
        return frozenset()
    if RENAMED in open_to and _NEWER_NAME.search(message):
        return frozenset({RENAMED})
    if named is None and at:
        first = min(at, key=lambda name: at[name])
        # "`temperature` and `top_p` cannot both be specified": the rarer one goes.
        at = {"top_p" if first == "temperature" and "top_p" in at else first: 0}
    return frozenset(_key(name, body) for name in at)


def sent(body: Mapping[str, Any]) -> frozenset[str]:
    """Returns the names in which `refused` speaks of what a request has."""
    return frozenset(_key(name, body) for name in (*_WORDS, RENAMED) if name in body)


def without(fields: Mapping[str, Any], omitted: Collection[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns the fields of a request without what a server refuses, and what that left out of them, sorted."""
    left, found = dict(fields), sent(fields)
    for name in found.intersection(omitted):
        if name == RENAMED:
            left["max_completion_tokens"] = left.pop(RENAMED)
        else:
            left.pop(name.split()[0], None)
    return left, tuple(sorted(found.intersection(omitted) - {RENAMED}))


def _key(name: str, body: Mapping[str, Any]) -> str:
    return f"{name} {body[name]}" if name in _BY_VALUE else name


def details_of(found: Any, depth: int = 2) -> ErrorDetails:
    """Returns what an error says, whatever its form: OpenAI's, Anthropic's, Mistral's, FastAPI's, or text.

    OpenRouter wraps the error of the provider, as a text, in one of its own; `depth` such errors are opened.
    """
    error = found.get("error", found) if isinstance(found, dict) else found
    if isinstance(error, dict) and isinstance(error.get("message"), dict):  # Mistral
        error = error["message"]
    if not isinstance(error, dict):
        return ErrorDetails(str(error)[:2_000])
    detail, code = error.get("detail"), str(error.get("code") or "")
    if isinstance(detail, list) and detail and all(isinstance(one, dict) for one in detail):
        message = "; ".join(f"{'.'.join(map(str, _list(one.get('loc'))))}: {one.get('msg', '')}" for one in detail)
        return ErrorDetails(message, tuple(str(name) for one in detail for name in _list(one.get("loc"))), code)
    message = str(next((error[key] for key in ("message", "detail", "error") if error.get(key)), error))[:2_000]
    message = re.split(r"['\"]input['\"]\s*:", message)[0]  # some servers quote the whole request after it
    wrapped = error["metadata"].get("raw") if isinstance(error.get("metadata"), dict) else None
    if isinstance(wrapped, str) and depth:
        inner = error_details(wrapped.encode("utf-8", "replace"), depth - 1)
        return inner._replace(message=f"{message}: {inner.message}")
    param = error.get("param")
    return ErrorDetails(message, (param,) if isinstance(param, str) and param else None, code)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []

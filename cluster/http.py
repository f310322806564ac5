"""Shared parts of HTTP clients: address, key, proxy, Retry-After, the meaning of statuses, answers that end a run."""

import json
import math
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

ATTEMPTS = 5  # of a request that times out or is answered badly, though its server answers others
FATAL = frozenset({401, 402, 403, 404, 405})  # wrong key, account or address: every request would get it
OF_ONE = frozenset({403, 404, 405})  # a moderator or a firewall gives them to single requests, too
_SPENT = frozenset(  # codes of an account without credit, whatever the status: 429 of OpenAI, 400 of Anthropic
    {"insufficient_quota", "exceeded_current_quota_error", "billing_error", "billing_not_active", "billing_hard_limit_reached",
     "insufficient_balance", "arrearage", "terminal_quota_exhausted"}
)  # fmt: skip
_LOW_CREDIT = "Your credit balance is too low"  # how a message of Anthropic begins that has no such code
_STATUSES = {  # of errors that are named and not numbered, by OpenAI's and Anthropic's names
    "invalid_request_error": 400, "invalid_api_key": 401, "authentication_error": 401, "insufficient_quota": 402,
    "permission_error": 403, "not_found_error": 404, "rate_limit_error": 429, "rate_limit_exceeded": 429,
    "overloaded_error": 529,
}  # fmt: skip
_IN_A_ROW = 20  # refusals without an answer between them, after which it is not single requests any more
_MAY_HOLD_SURROGATES = re.compile(rb"\\u[dD][89a-fA-F]|\xed|\x00")  # as escapes, as bytes, in UTF-16
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]{0,15}(?:_[A-Z0-9]{0,15})*")
_FORM = "must be like http://host:8000/v1, without ? or #"


def server_address(base_url: str) -> str:
    """Returns a server's address without a slash at its end. Raises ValueError, which never repeats a secret, if it is none."""
    try:
        parts = urlsplit(base_url.strip())
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{_FORM}: {error}; correct it") from None
    if parts.username is not None or parts.password is not None:
        remedy = "put the key into an environment variable, name it in api_key_env"
        raise ValueError(f"must not hold user and password (at {parts.hostname}); {remedy}")
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or parts.query or parts.fragment:
        shown = parts._replace(query="...", fragment="").geturl() if parts.query else base_url  # a query may hold a key
        raise ValueError(f"{_FORM}, found: {shown!r}; correct it")
    return base_url.strip().rstrip("/")


class ApiKey:
    """The key of a server (`value`) from an environment variable (`source`, for messages); both None: it wants none."""

    def __init__(self, variable: str | None) -> None:
        """Reads the key; raises ValueError if there is none, or what no key can hold."""
        self.source = variable
        self.value = None if variable is None else os.environ.get(variable, "").strip()
        if variable is not None and not (self.value and self.value.isascii() and self.value.isprintable()):
            problem = "holds characters that no key has" if self.value else "is not set or empty"
            # in another form it may be the secret itself, written there by mistake
            shown = variable if _VARIABLE.fullmatch(variable) else "(not shown, it may be the key itself)"
            remedy = "set it to the key" if shown == variable else "name a variable there, never write the key itself"
            raise ValueError(f"the environment variable {shown} (api_key_env) {problem}; {remedy}")


def parsed_json(content: bytes) -> Any:
    """Returns the JSON that a server sent, as `encodable`; raises ValueError or RecursionError if it is none, or too deep."""
    value = json.loads(content)
    return json.loads(encodable(json.dumps(value, ensure_ascii=False))) if _MAY_HOLD_SURROGATES.search(content) else value


def encodable(text: str) -> str:
    """Returns a text with halves of surrogate pairs, which UTF-8 cannot hold, replaced by "?"."""
    return text.encode("utf-8", "replace").decode("utf-8")


def may_repeat(attempts: int) -> bool:
    """Returns True if a request is sent again that timed out or was answered badly in the given number of attempts."""
    return attempts < ATTEMPTS


class Refusals:
    """Tells refusals of single requests (a moderator's, a firewall's) from those that every request would get. Thread-safe."""

    def __init__(self, accepted: bool = False) -> None:
        self.accepted = accepted  # whether a request was answered well
        self._in_a_row, self._lock = 0, threading.Lock()

    def answered(self) -> None:
        """Counts a request that was answered well."""
        if self._in_a_row or not self.accepted:
            with self._lock:
                self.accepted, self._in_a_row = True, 0

    def refused(self, status: int) -> bool:
        """Counts a refusal; returns whether it is of this request alone, as far as the answers before it tell."""
        with self._lock:
            self._in_a_row += 1
        return status in OF_ONE and self.others_answered()

    def others_answered(self) -> bool:
        """Returns True if other requests were answered well, and not too long ago."""
        return self.accepted and self._in_a_row < _IN_A_ROW


def proxy_of(base: str) -> str | None:
    """Returns the proxy that the environment names for an address; ValueError if it is no HTTP proxy."""
    parts = urlsplit(base)
    proxy = getproxies().get(parts.scheme)
    if not proxy or proxy_bypass(parts.netloc):
        return None
    if urlsplit(proxy).scheme not in ("http", "https"):
        name = f"{parts.scheme}_proxy"
        raise ValueError(f"the proxy in {name} is not an HTTP proxy; set {name} to one, or unset it")
    return proxy


def meant_status(status: int, content: bytes) -> int:
    """Returns the status that a response means: that of an error inside HTTP 200, and 402 where the account is spent.

    OpenRouter and other gateways put the error of a provider, with its status, into a response of their own.
    """
    if 200 <= status < 300 and b'"error"' in content:
        with suppress(ValueError, RecursionError):
            status = _named_status(parsed_json(content)) or status
    spent = status in (432, 433)  # Tavily's plans
    if status in (400, 403, 429):
        with suppress(ValueError, RecursionError):
            spent = not _SPENT.isdisjoint(_codes(parsed_json(content)))
    return 402 if spent else status


def _codes(body: Any) -> Iterator[str]:
    """Yields the codes and kinds of an error and of a provider's inside it, in lower case; a message may quote anything."""
    if isinstance(body, list):
        for part in body:
            yield from _codes(part)
    for key, value in body.items() if isinstance(body, dict) else ():
        if isinstance(value, dict | list) and key != "input":
            yield from _codes(value)
        elif isinstance(value, str) and key == "raw":
            with suppress(ValueError):
                yield from _codes(parsed_json(value.encode()))
        elif key in ("code", "type", "status"):
            yield str(value).casefold()
        elif key == "message" and str(value).startswith(_LOW_CREDIT):
            yield "insufficient_balance"


def _named_status(body: Any) -> int | None:
    """Returns the status that an error names by number or kind: that of a response, or of its choice without a text."""
    error = body.get("error") if isinstance(body, dict) else None
    if not error and isinstance(body, dict) and isinstance(body.get("choices"), list):
        choice = next((one for one in body["choices"] if isinstance(one, dict)), {})
        message = choice.get("message")
        error = None if isinstance(message, dict) and message.get("content") else choice.get("error")
    names = [str(error.get(key)).casefold() for key in ("code", "status", "type")] if isinstance(error, dict) else []
    numbers = [int(name) for name in names if re.fullmatch(r"[45]\d\d", name)]
    return next(iter([*numbers, *(_STATUSES[name] for name in names if name in _STATUSES)]), None)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds in Retry-After, None without it; a date is compared with the server's own clock, `Date`."""
    value = headers.get("Retry-After", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - parsedate_to_datetime(headers["Date"])).total_seconds()
        except (KeyError, TypeError, ValueError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def fatal_status(status: int, url: str, answer: str, key: ApiKey) -> tuple[str, str]:
    """Returns the error code and the message for a status that every request to a URL would get; `answer`: its words."""
    if status in (401, 403) and key.source:
        return "server-access", f"{url} refuses the key in {key.source} ({answer}); set {key.source} to a valid key"
    if status in (401, 403):
        return "server-access", f"{url} needs a key ({answer}); name the environment variable that holds it in api_key_env"
    if status == 402:
        return "server-access", f"{url} asks for payment ({answer}); check the billing of the key's account"
    if status == 404 and re.search(r"\bmodel\b", answer, re.I):
        return "model", f"{url} does not have the model ({answer}); name a model that it serves"
    return "server-away", f"{url} does not exist ({answer}); correct base_url, which usually ends in /v1"

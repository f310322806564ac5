"""The HTTP client of a server: its key, retries, and which failures are of one request and which of all.

Failures due to the server's state (429, 503, no connection) are retried within a patience; failures of a request itself (500,
424, timeout, an invalid answer) use up one of its attempts. A wrong key or address is an error of every request.
"""

import json
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar
from urllib.parse import unquote

import urllib3
from urllib3.exceptions import DecodeError, HTTPError, ReadTimeoutError
from urllib3.util import parse_url

from cluster.cause import redacted
from cluster.errors import RetrieverError
from cluster.http import (
    FATAL,
    OF_ONE,
    ApiKey,
    Refusals,
    fatal_status,
    may_repeat,
    meant_status,
    parsed_json,
    proxy_of,
    retry_after,
)
from cluster.outages import LONGEST_PAUSE, answered, failed, pause
from retrievers.settings import ServerSettings
from retrievers.web.settings import WebSettings

_CONNECT_TIMEOUT = 10.0  # seconds
_BUSY = frozenset({429, 502, 503, 504, 520, 521, 522, 523, 529})  # due to the server's state, not to the request
_BROKEN = frozenset({408, 409, 424, 425})  # 4xx after which the same request may succeed; 424: inference failed in TEI
_PART = 1 << 16  # bytes of a read
_TEXT = 200  # characters of a server's message, and of a reason, that are shown

Result = TypeVar("Result")


class TextRefused(Exception):
    """The server does not take a text, or fails on it; other texts may succeed."""

    def __init__(
        self, what: str, message: str, of_all: RetrieverError | None = None, reason: str = "refused", item: Hashable = None
    ) -> None:
        """Notes the server's words, and the text, or what stands for it, if it was sent alone.

        `reason` is refused, timeout, server_error, bad_answer, or stopped where another request failed; `of_all` the error if
        the server refuses every request so, None where the status is of one request.
        """
        super().__init__(f"{what}: {message}")
        self.reply, self.of_all, self.reason, self.item = message, of_all, reason, item


class ServerAway(RetrieverError):
    """The server gave no valid answer to any request for the patience; it may have `answers`, with a status.

    The reason is unavailable, rate_limited, or one of `TextRefused`.
    """

    def __init__(self, code: str, line: str, reason: str = "unavailable", answers: bool = False) -> None:  # pickle gives two
        super().__init__(code, line)
        self.reason, self.answers = reason, answers


class _Failure(Exception):
    """One send brought no valid answer; the same request may succeed later."""

    def __init__(self, message: str, reason: str, *, uses_attempt: bool, wait: float = 0.0) -> None:
        super().__init__(message)
        self.reason, self.uses_attempt, self.wait = reason, uses_attempt, wait


def bearer(key: str) -> dict[str, str]:
    """Returns the header with a key as most servers want it."""
    return {"Authorization": f"Bearer {key}"}


class Server:
    """A server. Threads may share it."""

    waits_patience = False  # True if a server that asks to wait longer than the patience is asked again at its end

    def __init__(
        self,
        what: str,
        service: str,
        base: str,
        settings: ServerSettings | WebSettings,
        key_header: Callable[[str], dict[str, str]] = bearer,
        wait: Callable[[Mapping[str, str]], float | None] = retry_after,
    ) -> None:
        """Reads the key from the environment; sends nothing.

        `what` is the server and its use, for messages, `service` its name among the outages, `base` its address. `wait` returns
        the seconds that the headers of a refusal ask to wait; None: they do not say.
        """
        self.base, self.what, self._service, self._settings = base, what, service, settings
        self.patience = 60 * settings.patience_minutes
        self._key_header, self._wait = key_header, wait
        try:
            self._key = ApiKey(settings.api_key_env)
        except ValueError as problem:
            raise self.error("server-access", str(problem)) from None
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        try:
            if (proxy := proxy_of(self.base)) is None:
                self._pool = urllib3.PoolManager(maxsize=settings.max_in_flight)
            else:
                login = parse_url(proxy).auth  # which urllib3 does not send by itself
                headers = urllib3.make_headers(proxy_basic_auth=unquote(login)) if login else {}
                self._pool = urllib3.ProxyManager(proxy, maxsize=settings.max_in_flight, proxy_headers=headers)
        except ValueError as problem:
            raise self.error("engine-setting", str(problem)) from None
        self._refusals = Refusals()
        self._lock = threading.Lock()
        self._failing = (0.0, float("-inf"))  # times of the first and the latest failure since the latest good answer

    def ask(
        self,
        url: str,
        body: Any = None,
        read: Callable[[Any], Result] | None = None,
        *,
        patience: float | None = None,
        stop: threading.Event | None = None,
        sending: Callable[[], object] = lambda: None,
        fatal: bool = True,
    ) -> Result:
        """Returns the result of `read` for the JSON that the server answers; sends the request until it is answered well.

        With a body of JSON values it is posted, else gotten. `read` raises ValueError, with the problem, for an invalid answer;
        None: the JSON itself. `stop` ends the wait for the next attempt; `sending` is called before each. `fatal=False` tries
        whether the server knows such requests: a 401, 404 or invalid answer is a refusal then.

        Raises:
            TextRefused: The server refuses the request, or fails on it in all attempts.
            RetrieverError: No request succeeds: the key, the address, or no valid answer to any request (`ServerAway`).
        """
        patience = self.patience if patience is None else patience
        first, sends, bad = 0.0, 0, 0  # first: when the first send failed, never before the outage began
        while True:
            try:
                sending()
                return self._once(url, body, read, fatal)
            except _Failure as failure:
                sends, bad = sends + 1, bad + failure.uses_attempt
                left = self._failed(failure, patience) + patience - (now := time.monotonic())
                first = first or now
                if left <= 0 or (failure.wait > left and not self.waits_patience):
                    problem = f"{self.what}: no valid answer: {failure}; start the server, or correct base_url"
                    answers = str(failure).startswith("HTTP ")
                    raise ServerAway("server-away", problem, failure.reason, answers) from None
                if not may_repeat(bad) or now - first >= patience:
                    raise TextRefused(self.what, f"{failure}; sent {sends} times", reason=failure.reason) from None
                if (stop or threading.Event()).wait(min(failure.wait + pause(sends), left)):
                    raise TextRefused(self.what, "stopped, since another request failed", reason="stopped") from None

    def answers_others(self) -> bool:
        """Returns True if it answers another request well, asked where many in a row were refused; False: none is known."""
        return False

    def error(self, code: str, problem: str) -> RetrieverError:
        """Returns an error that names the server."""
        return RetrieverError(code, f"{self.what}: {problem}")

    def _once(self, url: str, body: Any, read: Callable[[Any], Result] | None, fatal: bool) -> Result:
        status, headers, content = self._send(url, body)
        if 200 <= status < 300:
            try:
                value = parsed_json(content)
                result: Result = value if read is None else read(value)
            except (ValueError, OverflowError, RecursionError) as problem:
                broken = "its body is not JSON" if isinstance(problem, json.JSONDecodeError | RecursionError) else problem
                if not fatal:
                    raise TextRefused(self.what, f"HTTP {status}, but {broken}") from None
                raise _Failure(f"HTTP {status}, but {broken}", "bad_answer", uses_attempt=True) from None
            self._answered()
            self._refusals.answered()
            return result
        answer = f"HTTP {status}: {redacted(_error_text(content), [self._key.value], _TEXT) or 'no message'}"
        if status in _BUSY:
            reason_of = "rate_limited" if status == 429 else "unavailable"
            raise _Failure(answer, reason_of, uses_attempt=False, wait=self._wait(headers) or 0.0)
        if status in _BROKEN or status >= 500:
            raise _Failure(answer, "server_error", uses_attempt=True, wait=self._wait(headers) or 0.0)
        self._answered()
        error = None
        if status in FATAL or status < 400:
            error = self.error(*fatal_status(status, url, answer, self._key))
            if fatal and not self._refusals.refused(status) and not (status in OF_ONE and self.answers_others()):
                raise error
        raise TextRefused(self.what, answer, error)

    def _send(self, url: str, body: Any) -> tuple[int, Mapping[str, str], bytes]:
        content = None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        seconds = self._settings.timeout_seconds
        headers = self._headers | (self._key_header(self._key.value) if self._key.value else {})
        timeout, deadline = urllib3.Timeout(min(_CONNECT_TIMEOUT, seconds), seconds), time.monotonic() + seconds
        try:
            answer = self._pool.request(
                "GET" if content is None else "POST", url, body=content, headers=headers, timeout=timeout,
                retries=False, redirect=False, preload_content=False,
            )  # fmt: skip
            received = _body(answer, deadline)
        except (ReadTimeoutError, TimeoutError):
            raise _Failure(f"no answer in {seconds:g} s", "timeout", uses_attempt=True) from None
        except DecodeError as error:
            raise _Failure(f"its body is broken: {reason(error)}", "bad_answer", uses_attempt=True) from None
        except (HTTPError, OSError) as error:
            raise _Failure(reason(error), "unavailable", uses_attempt=False) from None
        return meant_status(answer.status, received), answer.headers, received

    def _failed(self, failure: _Failure, patience: float) -> float:
        """Notes a failure; returns the time of the first one since the latest good answer."""
        failed(self._service, failure, patience)
        now = time.monotonic()
        with self._lock:
            since, latest = self._failing
            idle = now - latest > self._settings.timeout_seconds + 2 * LONGEST_PAUSE  # nothing was asked in between
            self._failing = (now if idle else since, now)
            return self._failing[0]

    def _answered(self) -> None:
        answered(self._service)
        with self._lock:
            self._failing = (0.0, float("-inf"))


def _body(answer: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
    """Returns the body of an answer; TimeoutError once the deadline has passed: urllib3's own timeout is of each read."""
    parts = []
    while part := answer.read1(_PART):
        parts.append(part)
        if time.monotonic() > deadline:
            answer.close()
            raise TimeoutError
    answer.release_conn()
    return b"".join(parts)


def reason(error: BaseException) -> str:
    """Returns the reason for a missing answer, as the system gives it; `error` is of urllib3, or of a client that uses it."""
    inner, seen = next(iter(getattr(error, "errors", ())), error), {id(error)}
    while (cause := inner.__cause__ or next((arg for arg in inner.args if isinstance(arg, Exception)), None)) is not None:
        if id(cause) in seen:
            break
        seen.add(id(cause))
        inner = cause
    text = " ".join(str(getattr(inner, "strerror", None) or inner or type(inner).__name__).split())[:_TEXT]
    return f"no TLS: {text}" if isinstance(error, urllib3.exceptions.SSLError) else text


def _error_text(content: bytes) -> str:
    """Returns the message of an error as TEI, vLLM and OpenAI write it, or else the beginning of the body."""
    try:
        body = parsed_json(content[:100_000])
    except (ValueError, RecursionError):
        return content[:2000].decode("utf-8", "replace")
    while isinstance(body, dict):
        inner = next((body[key] for key in ("message", "error", "detail") if body.get(key)), None)
        if inner is None:
            break
        body = inner
    return str(body)

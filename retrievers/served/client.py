"""The HTTP client of a server with an encoder or a reranker: its key, requests in flight, retries.

Failures due to the server's state (429, 503, no connection) are retried within a patience; failures of a request itself (500,
424, timeout, an invalid answer) use up one of its attempts. A server that gives no good answer for the patience ends the run,
as a wrong key or address does; a request that fails by itself fails the queries whose texts it has.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import urllib3
from urllib3.exceptions import HTTPError, ReadTimeoutError

from cluster.cause import redacted
from cluster.errors import RetrieverError
from cluster.http import FATAL, OF_ONE, ApiKey, fatal_status, parsed_json, retry_after
from cluster.outages import LONGEST_PAUSE, answered, failed, pause
from retrievers.served.http import connections, error_text, reason
from retrievers.settings import ServerSettings

PROBE = "a probe"  # the text of a first request
_OPENING_PATIENCE = 3.0  # seconds; before a run a server that does not answer is refused at once
_CONNECT_TIMEOUT = 10.0  # seconds
_BUSY = frozenset({429, 502, 503, 504, 520, 521, 522, 523, 529})  # due to the server's state, not to the request
_BROKEN = frozenset({408, 409, 424, 425})  # 4xx after which the same request may succeed; 424: inference failed in TEI
_TEXT = 200  # characters of a server's message that are shown

Item = TypeVar("Item", bound=Hashable)
Result = TypeVar("Result")


class TextRefused(Exception):
    """The server does not take a text, or fails on it; other texts may succeed.

    Attributes:
        words: What the server said.
        of_all: The error if the server refuses every request so; None: the status is of one request.
    """

    def __init__(self, what: str, words: str, of_all: RetrieverError | None = None) -> None:
        """Sets the attributes; the message names the server, too."""
        super().__init__(f"{what}: {words}")
        self.words, self.of_all = words, of_all


class _Failure(Exception):
    """One send brought no good answer; the same request may succeed later."""

    def __init__(self, words: str, *, uses_attempt: bool, wait: float = 0.0) -> None:
        super().__init__(words)
        self.uses_attempt, self.wait = uses_attempt, wait


class _Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    content: bytes


class ModelServer:
    """A server and one of its models. Threads may share it."""

    def __init__(self, what: str, settings: ServerSettings, *, patient: bool = False) -> None:
        """Reads the key from the environment; sends nothing.

        Args:
            what: The model's use, for messages: "encoder", "rerank".
            settings: With a base_url.
            patient: The run's plan has reached the server, so that a worker waits for it when it opens; otherwise a server
                that is away is refused within seconds.

        Raises:
            RetrieverError: The variable of the key is not set, or the proxy of the environment cannot be used.
        """
        assert settings.base_url is not None, "a config without one is refused"
        self.base, self.model = settings.base_url, settings.model
        self.root = self.base.removesuffix("/v1")
        self.what = f"{what} {self.model} at {self.base}"
        self.patience = 60 * settings.patience_minutes
        self.opening_patience = self.patience if patient else min(_OPENING_PATIENCE, self.patience)
        """Seconds of retries of the first requests."""
        self._settings, self._service = settings, f"model server {self.base}"
        try:
            self._key = ApiKey(settings.api_key_env, settings.api_key_file)
        except ValueError as problem:
            raise self.error("engine-access", str(problem)) from None
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        try:
            self._pool = connections(self.base, settings.max_in_flight)
        except ValueError as problem:
            raise self.error("engine-setting", str(problem)) from None
        self._probe: Callable[[], object] | None = None  # sends the first request, which was answered well, once more
        self._lock = threading.Lock()
        self._failing = (0.0, float("-inf"))  # times of the first and the latest failure since the latest good answer
        self._refused: dict[Hashable, str] = {}  # a block is halved until its bad rows are found: ask once for each

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
        """Returns what ``read`` makes of the JSON that the server answers; sends the request until it is answered well.

        Args:
            url: With a body it is posted to, else gotten.
            body: JSON values.
            read: Raises ValueError, with the problem in words, for an invalid answer; None: the JSON itself.
            patience: Seconds of retries; None: the server's own.
            stop: Once set, ends the wait for the next attempt.
            sending: Called before each send.
            fatal: False to try whether the server knows such requests: a 401, 404 or invalid answer is a refusal then.

        Raises:
            TextRefused: The server refuses the request, or fails on it in all attempts.
            RetrieverError: No request succeeds: the key, the address, or no good answer to any request.
        """
        patience = self.patience if patience is None else patience
        first, sends, bad = time.monotonic(), 0, 0
        while True:
            try:
                sending()
                return self._once(url, body, read, fatal)
            except _Failure as failure:
                sends, bad = sends + 1, bad + failure.uses_attempt
                now = time.monotonic()
                left = self._failed(failure, patience) + patience - now
                if left <= 0 or failure.wait > left:
                    raise self.error(
                        "engine-away", f"no good answer: {failure}; start the server, or correct base_url"
                    ) from None
                if bad >= self._settings.attempts or now - first >= patience:
                    raise TextRefused(self.what, f"{failure}; sent {sends} times") from None
                if (stop or threading.Event()).wait(min(failure.wait + pause(sends), left)):
                    raise TextRefused(self.what, "stopped, since another request failed") from None

    def probe(self, url: str, body: Any, read: Callable[[Any], Result], gives: str, does: str) -> Result:
        """Returns what ``read`` makes of the answer to a first request, which shows what the model is for.

        Args:
            url: To which it is posted.
            body: Of the request.
            read: As that of `ask`.
            gives: What the model must give, for the message: "vectors".
            does: What the server must do with it: "embeds".

        Raises:
            RetrieverError: The server refuses such requests, is away, or refuses the key.
        """
        try:
            result = self.ask(url, body, read, patience=self.opening_patience, fatal=False)
            self._probe = lambda: self.ask(url, body, read, fatal=False)
            return result
        except TextRefused as refused:
            raise self.error(
                "model-unfit", f"it gives no {gives}: {refused.words}; name a model that the server {does} with"
            ) from None

    def answers(
        self,
        batches: Sequence[Sequence[Item]],
        send: Callable[[Sequence[Item], threading.Event], list[Result]],
    ) -> list[list[Result]]:
        """Returns the results of each batch; at most ``max_in_flight`` requests are in flight.

        A batch that the server refuses is halved, since it may be too large as a whole. An item that is refused by itself is
        not sent again.

        Args:
            batches: Distinct items.
            send: Returns a result for each item of a batch, or of a part of one; it gives up when the event is set.

        Raises:
            TextRefused, RetrieverError: Of the first batch that fails; the others are given up.
        """
        for batch in batches:
            for item in batch:
                if item in self._refused:
                    raise TextRefused(self.what, self._refused[item])
        stop = threading.Event()
        with ThreadPoolExecutor(max(1, min(self._settings.max_in_flight, len(batches)))) as threads:
            futures = [threads.submit(self._halved, batch, send, stop) for batch in batches]
            try:
                return [future.result() for future in futures]
            except BaseException:
                stop.set()
                for future in futures:
                    future.cancel()
                raise

    def _halved(
        self, items: Sequence[Item], send: Callable[[Sequence[Item], threading.Event], list[Result]], stop: threading.Event
    ) -> list[Result]:
        try:
            return send(items, stop)
        except TextRefused as refused:
            if len(items) == 1:
                if refused.of_all is not None and not self._answers_others():
                    raise refused.of_all from None
                if not stop.is_set():
                    self._refused[items[0]] = refused.words
                raise
            middle = len(items) // 2
            return self._halved(items[:middle], send, stop) + self._halved(items[middle:], send, stop)

    def _answers_others(self) -> bool:
        """Returns whether the server still answers the first request, so that a refusal is of one text: a firewall's, say."""
        try:
            return self._probe is not None and self._probe() is not None
        except TextRefused:
            return False

    def error(self, code: str, words: str) -> RetrieverError:
        """Returns an error that names the server and the model."""
        return RetrieverError(code, f"{self.what}: {words}")

    def _once(self, url: str, body: Any, read: Callable[[Any], Result] | None, fatal: bool) -> Result:
        used = self._key.value
        reply = self._send(url, body)
        if reply.status == 401 and self._key.renewed(used):  # a key that was replaced in its file
            reply = self._send(url, body)
        status = reply.status
        if 200 <= status < 300:
            try:
                value = parsed_json(reply.content)
                result: Result = value if read is None else read(value)
            except (ValueError, RecursionError) as problem:
                words = "its body is not JSON" if isinstance(problem, json.JSONDecodeError | RecursionError) else problem
                if not fatal:
                    raise TextRefused(self.what, f"HTTP {status}, but {words}") from None
                raise _Failure(f"HTTP {status}, but {words}", uses_attempt=True) from None
            self._answered()
            return result
        said = f"HTTP {status}: {redacted(error_text(reply.content), self._key.sent, _TEXT) or 'no more words'}"
        if status in _BUSY:
            raise _Failure(said, uses_attempt=False, wait=retry_after(reply.headers) or 0.0)
        if status in _BROKEN or status >= 500:
            raise _Failure(said, uses_attempt=True, wait=retry_after(reply.headers) or 0.0)
        self._answered()
        if fatal and (status in FATAL or status < 400):
            code, words = fatal_status(status, url, said, self._key)
            error = self.error(code, words)
            if status not in OF_ONE or self._probe is None:
                raise error
            raise TextRefused(self.what, said, error)
        raise TextRefused(self.what, said)

    def _send(self, url: str, body: Any) -> _Reply:
        content = None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        seconds = self._settings.timeout_seconds
        headers = self._headers | ({"Authorization": f"Bearer {self._key.value}"} if self._key.value else {})
        timeout = urllib3.Timeout(connect=min(_CONNECT_TIMEOUT, seconds), read=seconds)
        try:
            answer = self._pool.request(
                "GET" if content is None else "POST", url, body=content, headers=headers, timeout=timeout,
                retries=False, redirect=False,
            )  # fmt: skip
        except ReadTimeoutError:
            raise _Failure(f"no answer in {seconds:g} s", uses_attempt=True) from None
        except (HTTPError, OSError) as error:
            raise _Failure(reason(error), uses_attempt=False) from None
        return _Reply(answer.status, answer.headers, answer.data)

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


def in_order(listed: Any, count: int, what: str) -> list[dict[str, Any]]:
    """Returns the items of an answer in the order of its request's texts, which their `index` tells.

    Raises:
        ValueError: They are not one for each text.
    """
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise ValueError(f"it holds no {what}")
    places = [one.get("index", place) for place, one in enumerate(listed)]
    if not all(isinstance(place, int) for place in places) or sorted(places) != list(range(count)):
        raise ValueError(f"it holds {len(listed)} {what} for {count} texts, or their numbers are wrong")
    return [one for _, one in sorted(zip(places, listed, strict=True), key=lambda item: item[0])]

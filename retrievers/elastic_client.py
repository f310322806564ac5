"""A connection to Elasticsearch: address and keys from the environment, one request at a time, its failures told apart.

Nothing is retried by the client below: it would do so without a pause, and it does not look into the items of a bulk or
msearch answer. Whoever asks decides: `ask` repeats a whole request, `elastic_search` and `elastic_build` repeat items.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from retrievers.elastic_access import KEYS, read_access
from retrievers.retriever import RetrieverError

PRODUCT = "Elasticsearch"
BUSY = (429, 502, 503, 504)  # of a request or of one item: the same may be well answered later
_OPENING = 3.0  # seconds of patience while opening: a server that is not there is refused at once
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 15.0
_OTHER_MAJOR = "media_type_header_exception"  # the client asks for answers of its own major version
_TEXT = 300  # characters of what a server says that are repeated to a person

T = TypeVar("T")


class Trouble(Exception):
    """The server was not reached, was too busy, or broke off: the same request may succeed later.

    full: it had no room for what was asked; less at a time may help.
    """

    def __init__(self, words: str, *, full: bool = False) -> None:
        super().__init__(words)
        self.full = full


class Refused(RetrieverError):
    """The server understood the request and will not do it; `status` and `kind` are Elasticsearch's, `said` kind and why."""

    def __init__(self, where: str, status: int, kind: str, reason: str) -> None:
        self.status, self.kind = status, kind
        self.said = f"{kind}: {reason}" if reason else kind
        super().__init__(f"{where}: {self.said}; correct the config")


class Answer(NamedTuple):
    """``body``: JSON as Python values; None where there was none."""

    status: int
    body: Any


class Connection:
    """A server, or several nodes of one cluster. Threads may share it."""

    def __init__(self, where: str, block: Mapping[str, Any], requests: int = 1, *, patient: bool = False) -> None:
        """
        Args:
            where: the place in the config, for messages.
            block: the retriever's settings; of them `KEYS` count here.
            requests: how many there will be at a time: connections kept open.
            patient: the server and the key were found good before (by the plan of the run that this is part of), so also
                at the beginning a server is waited for; else one that is not there is refused at once.

        Raises:
            RetrieverError: an environment variable is not set or is no URL; no such ca_file; the client is missing.
        """
        self.where = where
        settings = KEYS | {key: value for key, value in block.items() if key in KEYS and value is not None}
        self.timeout, self.patience = float(settings["timeout_seconds"]), 60 * float(settings["patience_minutes"])
        self.opening = self.patience if patient else min(_OPENING, self.patience)
        """Seconds of patience with the first questions."""
        self._known = patient  # the key: a server that comes up answers 401 until it can read its own list of keys
        self._access = access = read_access(where, settings)
        self.shown, self._url_env = ", ".join(access.hosts), settings["url_env"]
        options: dict[str, Any] = {"api_key": access.api_key, "basic_auth": access.basic_auth}
        if any(host.startswith("https:") for host in access.hosts):
            options["ca_certs"] = settings["ca_file"]
        self._client = _client(where, access.hosts, options | {"connections_per_node": max(1, requests)})

    def once(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        lines: bool = False,
        params: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        missing: bool = False,
    ) -> Answer:
        """Send a request once.

        Args:
            body: JSON values, or bytes as they are to be sent.
            lines: the body is lines of JSON (bulk, msearch).
            timeout: seconds; None: the connection's own.
            missing: a 404 is an answer.

        Raises:
            Trouble: not reached, too busy, broken off.
            Refused: another status than 2xx; 401 and 403 are RetrieverErrors.
            RetrieverError: the key is refused; not Elasticsearch.
        """
        from elastic_transport import ConnectionTimeout, SerializationError, TlsError, TransportError
        from elasticsearch import UnsupportedProductError

        headers = {"accept": "application/json"}
        if body is not None:
            headers["content-type"] = "application/x-ndjson" if lines else "application/json"
        client = self._client.options(request_timeout=timeout or self.timeout)
        try:
            answer = client.perform_request(method, path, params=params, headers=headers, body=body)
        except TlsError as error:
            raise self._insecure(error) from None
        except SerializationError:
            raise Trouble("an answer that is not JSON or was cut short") from None
        except TransportError as error:
            raise Trouble(_reason(error), full=isinstance(error, ConnectionTimeout)) from None
        except UnsupportedProductError:
            raise self._other() from None
        except OSError as error:
            raise Trouble(error.strerror or type(error).__name__) from None
        status, content = answer.meta.status, answer.body
        if 200 <= status < 300 or (missing and status == 404):
            self._known = True
            return Answer(status, content)
        kind, reason = _words(content)
        if status in BUSY:
            raise Trouble(f"status {status} {kind} {self._plain(reason)}".strip(), full=True)
        if status == 401:
            raise self._unknown()
        if kind == _OTHER_MAJOR:
            raise self._unfit("of another major version")
        if status == 403:
            asked = f"{self.where}: {self.shown} does not allow {method} {path} with this key"
            raise RetrieverError(f"{asked}; give it the right: {self._plain(reason)}")
        raise Refused(f"{self.where}: {self.shown} refuses the request {method} {path}", status, kind, self._plain(reason))

    def ask(self, method: str, path: str, body: Any = None, *, patience: float | None = None, **more: Any) -> Answer:
        """`once`, and again after trouble until `patience` seconds (None: the connection's own) are over.

        Raises:
            Refused: as `once`.
            RetrieverError: as `once`; patience is at its end.
        """
        return self.patiently(lambda: self.once(method, path, body, **more), self.patience if patience is None else patience)

    def patiently(self, send: Callable[[], T], patience: float) -> T:
        """Call `send` until there is no trouble, with growing pauses of random length."""
        pauses, began = Pauses(), time.monotonic()
        while True:
            try:
                return send()
            except Trouble as trouble:
                if time.monotonic() - began >= patience:
                    raise self.away(trouble) from None
            pauses.wait()

    def away(self, trouble: object) -> RetrieverError:
        """The line for a server that has been asked long enough."""
        return RetrieverError(
            f"{self.where}: no good answer from {self.shown}: {trouble}; start the server, or correct {self._url_env}"
        )

    def check(self) -> str | None:
        """The server's version, once it is seen that this client fits it; None where the key may not ask for it.

        Raises:
            RetrieverError: not there; the key is refused; not Elasticsearch; of another major version than the client.
        """
        from elasticsearch import __version__ as client

        # Past the client's own ways: it would ask for answers of its own major, which an older server does not know
        answer = self.patiently(self._root, self.opening)
        if answer.status == 403:
            return None
        version = str((answer.body.get("version") or {}).get("number") or "")
        major = version.partition(".")[0]
        if not major.isdigit():
            raise RetrieverError(f"{self.where}: {self.shown} does not say its version; correct {self._url_env}")
        if int(major) != client[0]:
            raise self._unfit(f"Elasticsearch {version}", f": pip install 'elasticsearch>={major},<{int(major) + 1}'")
        return version

    def _unfit(self, server: str, command: str = "") -> RetrieverError:
        """The line for a server that this client does not fit."""
        from elasticsearch import __version__ as client

        return RetrieverError(
            f"{self.where}: the server at {self.shown} is {server}, the client installed here is "
            f"{'.'.join(map(str, client[:3]))}; take the server's major version{command}"
        )

    def _root(self) -> Answer:
        from elastic_transport import SerializationError, TlsError, TransportError

        headers = {**self._client._headers, "accept": "application/json"}
        try:
            meta, body = self._client.transport.perform_request("GET", "/", headers=headers, request_timeout=10, max_retries=0)
        except TlsError as error:
            raise self._insecure(error) from None
        except SerializationError:
            raise self._other() from None
        except TransportError as error:
            raise Trouble(_reason(error)) from None
        if meta.status in BUSY:
            raise Trouble(f"status {meta.status}")
        if meta.status == 401:
            raise self._unknown()
        if meta.headers.get("x-elastic-product") != PRODUCT or not isinstance(body, dict):
            raise self._other()
        return Answer(meta.status, body)

    def _unknown(self) -> RetrieverError | Trouble:
        """What a 401 is: the line for a key that the server does not accept; trouble, if it has accepted it before."""
        if self._known and self._access.keys:
            return Trouble("the key, which was good before, is not accepted")
        if not self._access.keys:
            return RetrieverError(
                f"{self.where}: {self.shown} asks for a key; name its variable in api_key_env, or user_env and password_env"
            )
        return RetrieverError(
            f"{self.where}: {self.shown} does not accept the key; correct {' and '.join(self._access.keys)} in the environment"
        )

    def _insecure(self, error: Any) -> RetrieverError:
        words = self._plain(_reason(error))
        return RetrieverError(
            f"{self.where}: no secure connection to {self.shown}: {words}; correct ca_file or {self._url_env}"
        )

    def _other(self) -> RetrieverError:
        return RetrieverError(f"{self.where}: what answers at {self.shown} is not Elasticsearch; correct {self._url_env}")

    def _plain(self, text: object) -> str:
        """What a server says, in one line, without the secrets that were sent to it."""
        line = " ".join(str(text).split())
        for secret in self._access.secrets:
            line = line.replace(secret, "***")
        return "".join(c if c.isprintable() else "?" for c in line)[:_TEXT]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class Pauses:
    """Growing pauses of random length, so that workers that were turned away together do not come back together."""

    def __init__(self) -> None:
        self._top = _FIRST_PAUSE

    def wait(self, until: threading.Event | None = None) -> None:
        """Sleep for a while; no longer than until the event is set."""
        (until or threading.Event()).wait(random.uniform(self._top / 4, self._top))
        self._top = min(_LONGEST_PAUSE, self._top * 2)


def _client(where: str, hosts: list[str], options: Mapping[str, Any]) -> Any:
    try:
        from elasticsearch import Elasticsearch
        from elasticsearch.serializer import OrjsonSerializer
    except ImportError as error:
        raise RetrieverError(
            f"{where}: package {error.name!r} is missing; pip install 'elasticsearch>=8.19,<9' orjson"
        ) from None
    given = {key: value for key, value in options.items() if value is not None}
    client = Elasticsearch(hosts, serializer=OrjsonSerializer(), max_retries=0, **given)
    return client.options(ignore_status=tuple(range(300, 600)), max_retries=0)


def _reason(error: Any) -> str:
    """Why there was no answer, in a few words; addresses in memory and class names are left out."""
    inner: Any = error.errors[0] if getattr(error, "errors", None) else error
    while getattr(inner, "__cause__", None) is not None:
        inner = inner.__cause__
    words = getattr(inner, "strerror", None) or getattr(error, "message", "") or type(error).__name__
    return " ".join(str(words).split())[:120]


def _words(content: Any) -> tuple[str, str]:
    """Kind and reason of Elasticsearch's error body, the innermost cause first."""
    error = content.get("error") if isinstance(content, dict) else None
    return error_words(error) if isinstance(error, dict) else ("", str(error or ""))


def error_words(error: Mapping[str, Any]) -> tuple[str, str]:
    """Kind and reason of an error object; of a failed shard where that says more."""
    causes = error.get("root_cause") or [error]
    first = causes[0] if isinstance(causes[0], dict) else error
    return str(first.get("type") or error.get("type") or ""), str(first.get("reason") or error.get("reason") or "")

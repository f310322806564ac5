"""A connection to Elasticsearch: sends requests, tells their failures apart, repeats those that may succeed later.

The client's own retries are off: they do not pause, and they ignore single items of a bulk or msearch answer. Single requests
are repeated by `retry`; `bulk`, `documents` and `search` find the items of an answer that must be sent again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from cluster.cause import redacted
from cluster.errors import RetrieverError
from cluster.http import Refusals
from cluster.outages import answered, retried
from retrievers.elastic.access import read_access
from retrievers.elastic.failures import BUSY, RequestRefused, ServerUnavailable, body_words
from retrievers.elastic.settings import ElasticSettings
from retrievers.served.http import reason

PRODUCT = "Elasticsearch"
_OPENING_PATIENCE = 3.0  # seconds; where a retriever is opened a server that does not answer is refused at once
_OTHER_MAJOR = "media_type_header_exception"  # the client asks for answers of its own major version
_CLIENT_MAJOR, _INSTALL = 8, "pip install 'elasticsearch>=8.19,<9'"  # pyproject.toml's
_TEXT = 300  # characters of a server's message that are shown

T = TypeVar("T")


class Connection:
    """A server, or several nodes of one cluster. Threads may share it."""

    def __init__(self, where: str, settings: ElasticSettings, in_flight: int = 1, *, patient: bool = False) -> None:
        """Reads address and keys from the environment; sends nothing. `where` is the place in the config, for messages.

        At most `in_flight` requests are sent at a time. Where `patient`, the run's plan has reached the server with this key,
        and even the first request waits for it; otherwise a server that does not answer is refused within seconds.
        """
        self.where = where
        self.timeout, self.patience = settings.timeout_seconds, 60 * settings.patience_minutes
        self.opening_patience = self.patience if patient else min(_OPENING_PATIENCE, self.patience)
        """Seconds of retries of the first requests."""
        self._authenticated = patient  # a server that starts answers 401 until it can read its own list of keys
        self._refusals = Refusals(patient)
        self._access = access = read_access(where, settings)
        self.address, self._url_env = ", ".join(access.hosts), settings.url_env
        self._service = f"{PRODUCT} at {self.address}"
        secure = any(host.startswith("https:") for host in access.hosts)
        self._client = _client(
            where, access.hosts, api_key=access.api_key, basic_auth=access.basic_auth, connections_per_node=max(1, in_flight),
            ca_certs=os.environ.get("SSL_CERT_FILE") if secure else None,
        )  # fmt: skip
        self._slots = threading.Semaphore(max(1, in_flight))

    @contextmanager
    def client(self, asked: str, *, timeout: float | None = None, allow: Collection[int] = ()) -> Iterator[Any]:
        """Lends the client for one request (`asked`: method and path) and translates what it raises, but for `allow`.

        Raises:
            ServerUnavailable: Not reached, too busy, broken off.
            RequestRefused: Another status than 2xx; 401 and 403 are RetrieverErrors.
            RetrieverError: The key is refused; not Elasticsearch.
        """
        from elastic_transport import ConnectionTimeout, SerializationError, TlsError, TransportError
        from elasticsearch import ApiError, UnsupportedProductError

        try:
            with self._slots:
                yield self._client.options(request_timeout=timeout or self.timeout, ignore_status=tuple(allow))
        except TlsError as error:
            words = f"no secure connection to {self.address}: {redacted(reason(error), self._access.secrets, _TEXT)}"
            remedy = f"name its authority's file in SSL_CERT_FILE, or correct {self._url_env}"
            raise self._error("server-access", f"{words}; {remedy}") from None
        except SerializationError:
            raise self._not_elasticsearch() from None
        except TransportError as error:
            raise ServerUnavailable(reason(error), overloaded=isinstance(error, ConnectionTimeout)) from None
        except UnsupportedProductError:
            raise self._not_elasticsearch() from None
        except ApiError as error:
            raise self._failure(asked, error.status_code, error.body) from None
        except OSError as error:
            raise ServerUnavailable(reason(error)) from None
        self._authenticated = True
        self._refusals.answered()
        answered(self._service)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        lines: bool = False,
        params: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        allow: Collection[int] = (),
    ) -> Any:
        """Sends a request once; returns the JSON that is answered, None for an error status of `allow`.

        The body is JSON values, or bytes that are sent as they are: with `lines`, lines of JSON (msearch). Errors are those of
        `client`.
        """
        headers = {"accept": "application/json"}
        if body is not None:
            headers["content-type"] = "application/x-ndjson" if lines else "application/json"
        with self.client(f"{method} {path}", timeout=timeout, allow=allow) as client:
            answer = client.perform_request(method, path, params=params, headers=headers, body=body)
        if isinstance(answer.body, str):  # a login page; the client looks at the first answer alone
            raise self._not_elasticsearch()
        return None if answer.meta.status in allow else answer.body

    def request(self, method: str, path: str, body: Any = None, *, patience: float | None = None, **options: Any) -> Any:
        """Sends a request, again while the server is unavailable, for `patience` seconds (None: the connection's own)."""
        seconds = self.patience if patience is None else patience
        return self.retry(lambda: self.send(method, path, body, **options), seconds)

    def search(self, index: str, body: dict[str, Any], shown: str | None = None, *, patience: float | None = None) -> Any:
        """Returns the answer of all shards to a search, of it only the parts `shown`; options and errors as of `request`."""
        params = {"allow_partial_search_results": "false"} | ({"filter_path": shown} if shown else {})
        return (
            self.request("POST", f"/{index}/_search", {"track_total_hits": False} | body, params=params, patience=patience)
            or {}
        )

    def retry(self, send: Callable[[], T], patience: float, stop: threading.Event | None = None) -> T:
        """Returns what `send` returns; sends again while the server is unavailable, for `patience` seconds."""

        def attempt() -> T:
            try:
                return send()
            except ServerUnavailable as failure:
                failure.service = self._service
                raise

        try:
            return retried(attempt, patience, stop)
        except ServerUnavailable as error:
            words = f"no good answer from {self.address}: {error}; start the server, or correct {self._url_env}"
            raise self._error("server-away", words) from None

    def check(self) -> str | None:
        """Returns the server's version if this client fits it; None where the key may not ask for the version.

        Raises:
            RetrieverError: No answer, not Elasticsearch, a key that is refused, or not the client's major version or the next.
        """
        from elasticsearch import __version__ as client

        answer = self.request("GET", "/", patience=self.opening_patience, timeout=10, allow=(403,))
        if answer is None:
            return None
        version = str((answer.get("version") or {}).get("number") or "")
        major = version.partition(".")[0]
        if not major.isdigit():
            raise self._error("elastic-refused", f"{self.address} does not say its version; correct {self._url_env}")
        if int(major) not in (client[0], client[0] + 1):  # a server answers clients of its own major version and the one before
            raise self._wrong_version(f"Elasticsearch {version}")
        return version

    def _failure(self, asked: str, status: int, content: Any) -> RetrieverError | ServerUnavailable:
        kind, text = body_words(content)
        text = redacted(text, self._access.secrets, _TEXT)
        if status >= 500 or status in BUSY:
            return ServerUnavailable(f"status {status} {kind} {text}".strip(), overloaded=status in BUSY)
        if status == 401:
            return self._unauthorized()
        if kind == _OTHER_MAJOR:
            return self._wrong_version("of another major version")
        if status == 403 and kind:
            return self._error(
                "server-access", f"{self.address} does not allow {asked} with this key; give it the right: {text}"
            )
        if status == 403 and not self._refusals.refused(status):  # in words that are not Elasticsearch's
            words = f"what stands before {self.address} refuses {asked}: {text or 'no words'}; have it passed on"
            return self._error("server-access", words)
        return RequestRefused(f"{self.where}: {self.address} refuses the request {asked}", status, kind, text)

    def _wrong_version(self, server: str) -> RetrieverError:
        from elasticsearch import __version__ as client

        install = "" if client[0] == _CLIENT_MAJOR else f", or the client of this package: {_INSTALL}"
        return self._error(
            "elastic-refused",
            f"the server at {self.address} is {server}, the client installed here is {'.'.join(map(str, client[:3]))}, for "
            f"servers {client[0]}.x and {client[0] + 1}.x; take such a server{install}",
        )

    def _unauthorized(self) -> RetrieverError | ServerUnavailable:
        """The error for a 401; one to retry if the server has accepted the key before."""
        if self._authenticated and self._access.variable:
            return ServerUnavailable("the key, which was good before, is not accepted")
        if not self._access.variable:
            words = "name its variable in api_key_env, or put user and password into the address in"
            return self._error("server-access", f"{self.address} asks for a key; {words} {self._url_env}")
        words = f"does not accept the key; correct {self._access.variable} in the environment"
        return self._error("server-access", f"{self.address} {words}")

    def _not_elasticsearch(self) -> RetrieverError | ServerUnavailable:
        """The error for an answer of something else; one to retry if Elasticsearch has answered before."""
        if self._authenticated:
            return ServerUnavailable("an answer that is not Elasticsearch's, or was cut short")
        return self._error("elastic-refused", f"what answers at {self.address} is not Elasticsearch; correct {self._url_env}")

    def _error(self, code: str, words: str) -> RetrieverError:
        return RetrieverError(code, f"{self.where}: {words}")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def hits_of(answer: Any) -> list[dict[str, Any]]:
    """Returns the hits of an answer to a search."""
    return (answer.get("hits") or {}).get("hits") or []


def _client(where: str, hosts: list[str], **options: Any) -> Any:
    try:
        from elasticsearch import Elasticsearch
        from elasticsearch.serializer import OrjsonSerializer
    except ImportError as error:
        raise RetrieverError("package-missing", f"{where}: package {error.name!r} is missing; {_INSTALL} orjson") from None
    given = {key: value for key, value in options.items() if value is not None}
    return Elasticsearch(hosts, serializer=OrjsonSerializer(), max_retries=0, **given)

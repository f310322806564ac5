"""A connection to Elasticsearch: sends requests, tells their failures apart, repeats those that may succeed later.

The client's own retries are off: they do not pause, and they ignore single items of a bulk or msearch answer. Single requests
are repeated by `retry`; `passages` and `search` find items of an answer that must be sent again. Addresses and keys come from
the environment only, so that no config and no record of a run holds a secret.
"""

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from cluster.cause import redacted
from cluster.errors import RetrieverError
from cluster.http import ApiKey, Refusals, encodable
from cluster.outages import Transient, answered, retried
from retrievers.elastic.settings import ElasticSettings
from retrievers.served.server import reason

BUSY = (429, 502, 503, 504)  # statuses, of a request or of an item, after which the same may succeed later
PRODUCT = "Elasticsearch"
_OPENING_PATIENCE = 3.0  # seconds; where a retriever is opened a server that does not answer is refused at once
_TEXT = 300  # characters of a server's message that are shown

T = TypeVar("T")


class ServerUnavailable(Transient):
    """The server was not reached, was too busy, or broke off: the same request may succeed later."""

    def __init__(self, message: str, *, overloaded: bool = False, of_item: bool = False) -> None:
        """Tells servers that lack resources, where less may succeed, from searches that may be the cause themselves."""
        super().__init__(message, PRODUCT)
        self.overloaded, self.of_item = overloaded, of_item


class RequestRefused(RetrieverError):
    """The server understood a request and will not do it: its HTTP status, Elasticsearch's kind of error, kind and reason."""

    def __init__(self, where: str, status: int, kind: str, reason: str) -> None:
        self.status, self.kind = status, kind
        self.problem = f"{kind}: {reason}" if reason else kind
        super().__init__("elastic-refused", f"{where}: {self.problem}; correct the config")


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
        self._refusals = Refusals(patient)
        self._url_env = settings.url_env
        hosts, user = _hosts(where, settings.url_env)
        try:
            key = ApiKey(settings.api_key_env)
        except ValueError as problem:
            raise self._error("server-access", str(problem)) from None
        self._key_variable = key.source or (settings.url_env if user else None)
        self._secrets = [key.value, user[1] if user else None]
        self.address = ", ".join(hosts)
        self._service = f"{PRODUCT} at {self.address}"
        options: dict[str, Any] = {"api_key": key.value} if key.value else {"basic_auth": user}
        if "SSL_CERT_FILE" in os.environ and any(host.startswith("https:") for host in hosts):
            options["ca_certs"] = os.environ["SSL_CERT_FILE"]
        from elasticsearch import Elasticsearch
        from elasticsearch.serializer import OrjsonSerializer

        most = max(1, in_flight)
        self._client = Elasticsearch(hosts, serializer=OrjsonSerializer(), max_retries=0, connections_per_node=most, **options)
        self._slots = threading.Semaphore(most)

    @contextmanager
    def client(self, asked: str, *, timeout: float | None = None, allow: Collection[int] = ()) -> Iterator[Any]:
        """Lends the client for one request (`asked`: method and path); its errors are raised as those of this module.

        Another status than 2xx is a RequestRefused unless `allow` has it; 401, 403 and another product are RetrieverErrors.
        """
        from elastic_transport import ConnectionTimeout, SerializationError, TlsError, TransportError
        from elasticsearch import ApiError, UnsupportedProductError

        try:
            with self._slots:
                yield self._client.options(request_timeout=timeout or self.timeout, ignore_status=tuple(allow))
        except TlsError as error:
            problem = f"no secure connection to {self.address}: {redacted(reason(error), self._secrets, _TEXT)}"
            remedy = f"name its authority's file in SSL_CERT_FILE, or correct {self._url_env}"
            raise self._error("server-access", f"{problem}; {remedy}") from None
        except (SerializationError, UnsupportedProductError):
            raise self._not_elasticsearch() from None
        except TransportError as error:
            raise ServerUnavailable(reason(error), overloaded=isinstance(error, ConnectionTimeout)) from None
        except ApiError as error:
            raise self._failure(asked, error.status_code, error.body) from None
        except OSError as error:
            raise ServerUnavailable(reason(error)) from None
        self._refusals.answered()
        answered(self._service)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        allow: Collection[int] = (),
    ) -> Any:
        """Sends a request once; returns the JSON that is answered, None for an error status of `allow`. Raises as `client`.

        The body is JSON values, or bytes that are sent as they are: lines of JSON (msearch).
        """
        headers = {"accept": "application/json"}
        if body is not None:
            headers["content-type"] = "application/x-ndjson" if isinstance(body, bytes) else "application/json"
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
        asked = {"track_total_hits": False} | body
        return self.request("POST", f"/{index}/_search", asked, params=params, patience=patience) or {}

    def retry(self, send: Callable[[], T], patience: float, stop: threading.Event | None = None) -> T:
        """Returns the result of `send`, which is called again while the server is unavailable, for `patience` seconds."""

        def attempt() -> T:
            try:
                return send()
            except ServerUnavailable as failure:
                failure.service = self._service
                raise

        try:
            return retried(attempt, patience, stop)
        except ServerUnavailable as error:
            problem = f"no valid answer from {self.address}: {error}; start the server, or correct {self._url_env}"
            raise self._error("server-away", problem) from None

    def check(self) -> None:
        """Raises RetrieverError if the client does not fit the server's version, where the key may ask for it."""
        from elasticsearch import __version__ as client

        answer = self.request("GET", "/", patience=self.opening_patience, timeout=10, allow=(403,))
        if answer is None:
            return
        version = str((answer.get("version") or {}).get("number") or "")
        major = version.partition(".")[0]
        if not major.isdigit():
            raise self._error("elastic-refused", f"{self.address} does not say its version; correct {self._url_env}")
        if int(major) not in (client[0], client[0] + 1):  # a server answers clients of its own major version and the one before
            mine = f"{'.'.join(map(str, client[:3]))}, for servers {client[0]}.x and {client[0] + 1}.x"
            problem = f"the server at {self.address} is Elasticsearch {version}, the client installed here is {mine}"
            raise self._error("elastic-refused", f"{problem}; take such a server")

    def _failure(self, asked: str, status: int, content: Any) -> RetrieverError | ServerUnavailable:
        error = content.get("error") if isinstance(content, dict) else None
        kind, text = error_words(error) if isinstance(error, dict) else ("", encodable(str(error or "")))
        text = redacted(text, self._secrets, _TEXT)
        if status >= 500 or status in BUSY:
            return ServerUnavailable(f"status {status} {kind} {text}".strip(), overloaded=status in BUSY)
        if status == 401:
            return self._unauthorized()
        if kind == "media_type_header_exception":  # the client asks for answers of its own major version
            problem = f"the server at {self.address} is of another major version than the client installed here"
            return self._error("elastic-refused", f"{problem}; take a server of the client's version")
        if status == 403 and kind:
            problem = f"does not allow {asked} with this key; give it the right: {text}"
            return self._error("server-access", f"{self.address} {problem}")
        if status == 403 and not self._refusals.refused(status):  # in words that are not Elasticsearch's
            problem = f"what stands before {self.address} refuses {asked}: {text or 'no words'}; have it passed on"
            return self._error("server-access", problem)
        return RequestRefused(f"{self.where}: {self.address} refuses the request {asked}", status, kind, text)

    def _unauthorized(self) -> RetrieverError | ServerUnavailable:
        """Returns the error for a 401: a server that starts answers so until it can read its own list of keys."""
        if self._refusals.accepted and self._key_variable:
            return ServerUnavailable("the key is no longer accepted")
        problem = f"does not accept the key; correct {self._key_variable} in the environment"
        if not self._key_variable:
            remedy = "name its variable in api_key_env, or put user and password into the address in"
            problem = f"asks for a key; {remedy} {self._url_env}"
        return self._error("server-access", f"{self.address} {problem}")

    def _not_elasticsearch(self) -> RetrieverError | ServerUnavailable:
        """Returns the error for a server other than Elasticsearch; a transient one if Elasticsearch answered before."""
        if self._refusals.accepted:
            return ServerUnavailable("an answer that is not Elasticsearch's, or was cut short")
        return self._error("elastic-refused", f"the server at {self.address} is not Elasticsearch; correct {self._url_env}")

    def _error(self, code: str, problem: str) -> RetrieverError:
        return RetrieverError(code, f"{self.where}: {problem}")

    def close(self) -> None:
        self._client.close()


def hits_of(answer: Any) -> list[dict[str, Any]]:
    """Returns the hits of an answer to a search."""
    return (answer.get("hits") or {}).get("hits") or []


def error_words(error: Mapping[str, Any]) -> tuple[str, str]:
    """Returns type and reason of an error object, those of the first root cause where there is one."""
    causes = error.get("root_cause") or [error]
    first = causes[0] if isinstance(causes[0], dict) else error
    kind, reason = (encodable(str(first.get(key) or error.get(key) or "")) for key in ("type", "reason"))
    return kind, reason


def _hosts(where: str, name: str) -> tuple[list[str], tuple[str, str] | None]:
    """Returns the addresses in a variable, and user and password from the first address that has them."""
    hosts, user = [], None
    for address in os.environ.get(name, "").split(","):
        try:
            url = urlsplit(address.strip())
            port = url.port or (443 if url.scheme == "https" else 9200)
        except ValueError:
            url, port = urlsplit(""), 0
        if url.scheme not in ("http", "https") or not url.hostname:
            problem = f"{name} holds no address" if os.environ.get(name, "").strip() else f"the environment has no {name}"
            raise RetrieverError("server-access", f"{where}.url_env: {problem}; set it to one such as http://host:9200")
        if url.username and user is None:
            user = unquote(url.username), unquote(url.password or "")
        host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
        hosts.append(f"{url.scheme}://{host}:{port}{url.path.rstrip('/')}")
    return hosts, user

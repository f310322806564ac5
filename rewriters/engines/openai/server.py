"""The HTTP client of one server of completions: its address, key, connections and list of models.

The key comes from the environment only, and is in no message and no repr. Proxies come from the environment; a `.netrc`
is not read, since its passwords are not meant for this server.
"""

import asyncio
import json
import logging
import os
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import aiohttp

from cluster.cause import redacted
from cluster.errors import RewriterError, nearest
from cluster.http import ApiKey, fatal_status, meant_status, parsed_json, proxy_of, retry_after, server_address
from rewriters.engines.openai.protocol import ChatProtocol, ChatResponse, RequestFailure, error_details, refused_fields
from rewriters.engines.settings import ServerEngineSettings

_log = logging.getLogger(f"dmqr.{__name__}")

_KEEPALIVE = 4.0  # seconds: uvicorn closes an idle connection after 5, and a request sent just then is lost
_MAX_BYTES = 16 * 2**20  # of a response
_CONNECT_TIMEOUT, _CHECK_TIMEOUT = 10.0, 10.0  # seconds; the timeout of a request if that is less
_CHECK_ATTEMPTS = 3


class ChatServer:
    """A server and the connections to it."""

    def __init__(self, settings: ServerEngineSettings, protocol: ChatProtocol) -> None:
        """Reads the address and the key; sends nothing. Raises RewriterError if the address or the key cannot work."""
        self._seconds, self._protocol, self._kind = settings.timeout_seconds, protocol, settings.kind
        self.key = ApiKey(None)
        try:
            self.base = server_address(settings.base_url)
        except ValueError as problem:
            raise self.error("engine-setting", f"base_url {problem}") from None
        try:
            self.key = ApiKey(settings.api_key_env)
        except ValueError as problem:
            raise self.error("server-access", str(problem)) from None
        try:
            self._proxy = proxy_of(self.base)
        except ValueError as problem:
            raise self.error("engine-setting", str(problem)) from None
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Opens the session that `send` uses, on the running event loop."""
        self._session = self._new_session()

    async def close(self) -> None:
        """Closes the session; a second call does nothing."""
        if self._session is not None:
            await self._session.close()

    async def send(self, body: Mapping[str, Any], path: str) -> ChatResponse | RequestFailure:
        """Returns the answer to a request to a path behind the base URL. Raises RewriterError if the session is closed."""
        if self._session is None or self._session.closed:
            raise RewriterError("worker-died", f"engine {self._kind!r} is closed; run the same command again")
        status, headers, content = await self._exchange(self._session, path, body, self._seconds)
        return self._protocol.parse_response(status, headers, content) if isinstance(content, bytes) else content

    async def check(self, model: str, args: Mapping[str, Any]) -> None:
        """Looks for a model in the server's list; where it is not there, or there is no list, one completion decides.

        Raises RewriterError if the server does not have the model, or does not answer.
        """
        async with self._new_session() as session:
            status, content = await self._asked(session, "/models", None)
            names = _models(content) if status == 200 and isinstance(content, bytes) else None
            if names is not None and model in names:
                return
            body = self._protocol.probe_body(model, args, ())
            if isinstance(content, bytes):
                status, content = await self._asked(session, self._protocol.path, body)
        if isinstance(content, RequestFailure):
            remedy = "start the server, or correct base_url"
            if "no TLS" in content.message:
                remedy = "correct base_url, which may have to begin with http:"
                if "certificate" in content.message:
                    remedy = "name its authority's file in SSL_CERT_FILE"
            raise self.error("server-away", f"{content.message}; {remedy}")
        result = self._protocol.parse_response(status, {}, content)
        listed = nearest(model, names or ())
        if isinstance(result, ChatResponse) or refused_fields(error_details(content), body, args.keys()):
            if names:  # other requests go without what is refused
                _log.warning("%s does not list the model %r, and answers for it%s", self.base, model, listed)
            return
        if names is not None and result.may_be_of_a_field:
            raise self.error("model", f"no model {model!r} at {self.base}{listed} ({result.message}); name one of them")
        if result.is_fatal:
            raise self.fatal_error(result, self._protocol.path)
        url = self.base + self._protocol.path
        if _is_busy(status):
            raise self.error("server-away", f"{url} is failing ({result.message}); try again when it works")
        remedy = "correct base_url, which usually ends in /v1, or the model"
        raise self.error("server-away", f"{url} answers {result.message}; {remedy}")

    def fatal_error(self, failure: RequestFailure, path: str) -> RewriterError:
        """Returns the error for a failure that every request would get."""
        code, message = fatal_status(failure.status, self.base + path, failure.message, self.key)
        return self.error(code, message)

    def error(self, code: str, message: str) -> RewriterError:
        """Returns an error of this engine, with the key redacted."""
        return RewriterError(code, f"engine {self._kind!r}: {self.redact(message)}")

    def redact(self, text: str) -> str:
        """Returns the text in one line, with the key replaced by ***."""
        return redacted(text, [self.key.value])

    def _new_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE),
            headers={"Content-Type": "application/json"} | self._protocol.headers(self.key.value),
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=self._proxy,
        )

    async def _asked(
        self, session: aiohttp.ClientSession, path: str, body: Mapping[str, Any] | None
    ) -> tuple[int, bytes | RequestFailure]:
        """Returns the status and the content of an answer, or why there is none; asks a busy server again."""
        seconds = self._seconds if body else min(_CHECK_TIMEOUT, self._seconds)
        for attempt in range(1, _CHECK_ATTEMPTS + 1):
            status, headers, content = await self._exchange(session, path, body, seconds)
            if not _is_busy(status):
                break
            await asyncio.sleep(min(retry_after(headers) or 0.5 * attempt, 2.0) if attempt < _CHECK_ATTEMPTS else 0)
        return status, content

    async def _exchange(
        self, session: aiohttp.ClientSession, path: str, body: Mapping[str, Any] | None, seconds: float
    ) -> tuple[int, Mapping[str, str], bytes | RequestFailure]:
        """Returns the status that an answer means (0: none came), its headers, and its content or why there is none."""
        status = 0
        headers: Mapping[str, str] = {}
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace") if body else None  # without lone surrogates
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=min(_CONNECT_TIMEOUT, seconds))
        method = "POST" if body else "GET"
        try:
            async with session.request(method, self.base + path, data=data, allow_redirects=False, timeout=timeout) as response:
                status, headers = response.status, response.headers
                content = await _read(response)
                return meant_status(status, content), headers, content
        except aiohttp.ConnectionTimeoutError:
            reason, message = "unavailable", f"no connection to {self.base}: timed out"
        except TimeoutError:
            reason, message = "timeout", f"no answer from {self.base} in time"
        except (aiohttp.ClientPayloadError, aiohttp.ClientResponseError) as error:
            broken = f"HTTP {status}, but its body is broken" if status else f"the answer from {self.base} is no HTTP"
            reason, message = "bad_answer", f"{broken}: {_reason(error)}"
        except (aiohttp.ClientSSLError, ssl.SSLError) as error:
            reason, message = "unavailable", f"no TLS with {self.base}: {_reason(error)}"
        except (aiohttp.ClientError, OSError) as error:
            if status:
                reason, message = "bad_answer", f"HTTP {status}, but its body is cut off: {_reason(error)}"
            else:
                reason, message = "unavailable", f"no answer from {self.base}: {_reason(error)}"
        return status, headers, RequestFailure(reason, message, status, uses_attempt=reason != "unavailable")


def _is_busy(status: int) -> bool:
    return status == HTTPStatus.TOO_MANY_REQUESTS or status >= 500


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    while part := await response.content.readany():
        body += part
        if len(body) > _MAX_BYTES:
            response.close()
            raise aiohttp.ClientPayloadError(f"longer than {_MAX_BYTES >> 20} MiB")
    return bytes(body)


def _reason(error: BaseException) -> str:
    """Returns the system's reason for a failed connection or response, without addresses of objects or headers."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        error = error.certificate_error
        return str(getattr(error, "verify_message", "") or error)
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    if isinstance(error, aiohttp.ClientResponseError):  # its str has the address, its repr the headers
        return error.message or "cannot be read"
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


def _models(content: bytes) -> list[str] | None:
    try:
        body: Any = parsed_json(content)
    except (ValueError, RecursionError):
        return None
    listed = body.get("data") if isinstance(body, dict) else body
    if not isinstance(listed, list) or not all(isinstance(one, dict) and isinstance(one.get("id"), str) for one in listed):
        return None
    return [one["id"] for one in listed]

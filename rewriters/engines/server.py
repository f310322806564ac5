"""One server that speaks the Chat Completions protocol: its address, its key, the connections to it, and the question
whether it has a model.

The key comes from the environment only, and is in no message and no repr. Proxies come from the environment as
everywhere; a `.netrc` is not read, since its passwords are not meant for this server.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from rewriters.engines.chat import Failure, fatal, retry_after, words
from rewriters.errors import RewriterError, nearest

_KEPT = 4.0  # seconds that an idle connection is kept: servers drop theirs after 5, and a request sent then is lost
_LARGEST = 16 * 2**20  # bytes of an answer
_CONNECT, _CHECK = 10.0, 10.0  # seconds, or the time of a send if that is less
_TRIES = 3
_LISTED = 10


class _TooLong(Exception):
    pass


class Server:
    """A server, and the way to it.

    base_url: http or https, with neither credentials nor a query. key_env: the environment variable with the key, or
    None. seconds: of one send. Raises RewriterError for an address or a key that cannot work; sends nothing.
    """

    def __init__(self, base_url: str, key_env: str | None, seconds: float) -> None:
        self.base = _address(base_url)
        self._key_env, self._key = key_env, _key(key_env)
        self._seconds = seconds
        self._proxy = _proxy(self.base)
        self._session: aiohttp.ClientSession | None = None
        self._sends_to = f"{self.base}/chat/completions"

    async def open(self) -> None:
        """Open the session that `send` uses, on the running loop."""
        self._session = self._opened(self._seconds)

    async def close(self) -> None:
        """Close it; a second call does nothing."""
        if self._session is not None:
            await self._session.close()

    async def send(self, content: bytes) -> tuple[int, Mapping[str, str], bytes | Failure]:
        """Send one request: the status (0: none came), headers and body of the answer, or what came instead of a body.

        Raises RewriterError once the session is closed.
        """
        if self._session is None or self._session.closed:
            raise RewriterError("engine 'openai' is closed; run the same command again")
        return await self._exchange(self._session.post(self._sends_to, data=content, allow_redirects=False))

    async def check(self, model: str) -> None:
        """Raises RewriterError unless the server lists the model."""
        url = f"{self.base}/models"
        async with self._opened(min(_CHECK, self._seconds)) as session:
            for tried in range(1, _TRIES + 1):
                status, headers, content = await self._exchange(session.get(url, allow_redirects=False))
                busy = status == 429 or status >= 500
                if not busy or tried == _TRIES:
                    break
                await asyncio.sleep(min(retry_after(headers) or 0.5 * tried, 2.0))
        if isinstance(content, Failure):
            raise self.error(f"{content.message}; {_advice(content.message)}")
        said = f"HTTP {status}: {words(content) or 'no more words'}"
        if fatal(status):
            raise self.refusal(status, said, url)
        if busy:
            raise self.error(f"{url} does not work now ({said}); try again when the server does")
        if status != 200:
            raise self.error(f"{url} answers {said}; correct base_url, which usually ends in /v1")
        names = _models(content)
        if names is None:
            raise self.error(
                f"{url} answers with something else than a list of models; correct base_url, which usually ends in /v1"
            )
        if model not in names:
            more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
            listed = ", ".join(names[:_LISTED]) or "none"
            raise self.error(f"no model {model!r} at {self.base}{nearest(model, names)}; there are: {listed}{more}")

    def refusal(self, status: int, said: str, url: str | None = None) -> RewriterError:
        """The error for a status that no request can survive. said: the status and the server's words."""
        url = url or self._sends_to
        if status in (401, 403) and self._key_env:
            return self.error(f"{url} refuses the key in {self._key_env} ({said}); set {self._key_env} to one that it takes")
        if status in (401, 403):
            return self.error(f"{url} wants a key ({said}); name the environment variable that has it in api_key_env")
        if status == 402:
            return self.error(f"{url} wants to be paid first ({said}); look at the account of the key")
        return self.error(f"{url} is not there ({said}); correct base_url, which usually ends in /v1")

    def error(self, message: str) -> RewriterError:
        """An error of this engine, without the key."""
        return RewriterError(f"engine 'openai': {self.safe(message)}")

    def safe(self, text: str) -> str:
        """A text on one line, with the key struck out."""
        return " ".join((text.replace(self._key, "***") if self._key else text).split())

    def _opened(self, seconds: float) -> aiohttp.ClientSession:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEPT),
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=min(_CONNECT, seconds)),
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=self._proxy,
        )

    async def _exchange(
        self, call: AbstractAsyncContextManager[aiohttp.ClientResponse]
    ) -> tuple[int, Mapping[str, str], bytes | Failure]:
        status = 0
        headers: Mapping[str, str] = {}
        try:
            async with call as response:
                status, headers = response.status, response.headers
                return status, headers, await _read(response)
        except aiohttp.ConnectionTimeoutError:
            failure = Failure("unavailable", f"no connection to {self.base}: timed out", own=False)
        except TimeoutError:
            failure = Failure("timeout", f"no answer from {self.base} in time")
        except (aiohttp.ClientPayloadError, aiohttp.ClientResponseError, _TooLong) as error:
            broken = f"HTTP {status}, but its body is broken" if status else f"the answer from {self.base} is no HTTP"
            failure = Failure("bad_answer", f"{broken}: {_reason(error)}")
        except (aiohttp.ClientSSLError, ssl.SSLError) as error:
            failure = Failure("unavailable", f"no TLS with {self.base}: {_reason(error)}", own=False)
        except (aiohttp.ClientError, OSError) as error:
            if status:
                failure = Failure("bad_answer", f"HTTP {status}, but its body is cut off: {_reason(error)}")
            else:
                failure = Failure("unavailable", f"no answer from {self.base}: {_reason(error)}", own=False)
        return status, headers, failure


def _advice(message: str) -> str:
    if "no TLS" not in message:
        return "start the server, or correct base_url"
    return (
        "name its authority's file in SSL_CERT_FILE"
        if "certificate" in message
        else "correct base_url, which may have to begin with http:"
    )


async def _read(response: aiohttp.ClientResponse) -> bytes:
    whole = bytearray()
    while part := await response.content.readany():
        whole += part
        if len(whole) > _LARGEST:
            response.close()
            raise _TooLong(f"longer than {_LARGEST >> 20} MiB")
    return bytes(whole)


def _reason(error: BaseException) -> str:
    """Why a connection or an answer failed, in the system's words and without addresses of objects or headers."""
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


def _address(base_url: str) -> str:
    try:
        parts = urlsplit(base_url.strip())
        port = parts.port
    except ValueError as error:
        raise RewriterError(f"engine 'openai': base_url is no address: {error}; correct rewrite.engine.base_url") from None
    if parts.username is not None or parts.password is not None:
        raise RewriterError(
            f"engine 'openai': base_url must not hold credentials (at {parts.hostname}); put the key into an environment "
            "variable and name it in api_key_env"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or parts.query or parts.fragment:
        shown = parts._replace(query="...", fragment="").geturl() if parts.query else base_url  # a query may hold a key
        raise RewriterError(
            f"engine 'openai': base_url must be like http://host:8000/v1, without ? or #, found: {shown!r}; correct it"
        )
    return base_url.strip().rstrip("/")


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise RewriterError(f"engine 'openai': the environment variable {variable} (api_key_env) is not set or empty; set it")
    if not (key.isascii() and key.isprintable()):
        raise RewriterError(
            f"engine 'openai': the environment variable {variable} (api_key_env) holds what no key can hold; "
            "set it to the key alone"
        )
    return key


def _proxy(base: str) -> str | None:
    parts = urlsplit(base)
    proxy = getproxies().get(parts.scheme)
    if not proxy or proxy_bypass(parts.hostname or ""):
        return None
    if urlsplit(proxy).scheme not in ("http", "https"):
        where = f"{parts.scheme}_proxy"
        raise RewriterError(
            f"engine 'openai': the proxy in {where} is no http proxy; set {where} to an http proxy, or unset it"
        )
    return proxy


def _models(content: bytes) -> list[str] | None:
    try:
        found: Any = json.loads(content)
    except (ValueError, RecursionError):
        return None
    listed = found.get("data") if isinstance(found, dict) else found
    if not isinstance(listed, list) or not all(isinstance(one, dict) and isinstance(one.get("id"), str) for one in listed):
        return None
    return [one["id"] for one in listed]

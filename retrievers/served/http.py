"""What the client of a model's server has from the environment, and what it makes of failures in words."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import InvalidHeader

from cluster.errors import RetrieverError

_WORDS = 200  # characters of a reason


def connections(what: str, base: str, in_flight: int) -> urllib3.PoolManager:
    """Returns kept connections to a server, through the proxy of the environment if it names one.

    Raises:
        RetrieverError: The proxy cannot be used.
    """
    parts = urlsplit(base)
    proxy = getproxies().get(parts.scheme)
    if not proxy or proxy_bypass(parts.hostname or ""):
        return urllib3.PoolManager(maxsize=in_flight)
    if urlsplit(proxy).scheme not in ("http", "https"):
        name = f"{parts.scheme}_proxy"
        raise RetrieverError("engine-setting", f"{what}: the proxy in {name} is no http proxy; set {name} to one, or unset it")
    return urllib3.ProxyManager(proxy, maxsize=in_flight)


def api_key(what: str, variable: str | None) -> str | None:
    """Returns the key in an environment variable; None without a variable.

    Raises:
        RetrieverError: It is not set, or holds what no key can hold.
    """
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key or not (key.isascii() and key.isprintable()):
        found = "holds what no key can hold" if key else "is not set or empty"
        raise RetrieverError(
            "engine-access", f"{what}: the environment variable {variable} (api_key_env) {found}; set it to the key"
        )
    return key


def retry_after(headers: Mapping[str, str]) -> float:
    """Returns the seconds that the server asks to wait; 0 if it says nothing that can be read."""
    value = headers.get("Retry-After")
    try:
        return urllib3.Retry().parse_retry_after(value) if value else 0.0
    except InvalidHeader:
        return 0.0


def reason(error: BaseException) -> str:
    """Returns why there was no answer, in the system's words."""
    inner, seen = error, {id(error)}
    while (cause := inner.__cause__ or next((arg for arg in inner.args if isinstance(arg, Exception)), None)) is not None:
        if id(cause) in seen:
            break
        seen.add(id(cause))
        inner = cause
    words = " ".join(str(getattr(inner, "strerror", None) or inner or type(inner).__name__).split())[:_WORDS]
    return f"no TLS: {words}" if isinstance(error, urllib3.exceptions.SSLError) else words


def error_text(content: bytes) -> str:
    """Returns the message of an error as TEI, vLLM and OpenAI write it, or else the beginning of the body."""
    try:
        found = json.loads(content[:100_000])
    except (ValueError, RecursionError):
        return content[:2000].decode("utf-8", "replace")
    while isinstance(found, dict):
        inner = next((found[key] for key in ("message", "error", "detail") if found.get(key)), None)
        if inner is None:
            break
        found = inner
    return str(found)

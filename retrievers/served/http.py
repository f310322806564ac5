"""Connections to a model's server, and what is made of failures in words."""

from __future__ import annotations

from urllib.parse import unquote

import urllib3
from urllib3.util import parse_url

from cluster.http import parsed_json, proxy_of

_WORDS = 200  # characters of a reason


def connections(base: str, in_flight: int) -> urllib3.PoolManager:
    """Returns kept connections to a server, through the proxy of the environment if it names one."""
    proxy = proxy_of(base)
    if proxy is None:
        return urllib3.PoolManager(maxsize=in_flight)
    login = parse_url(proxy).auth  # which urllib3 does not send by itself
    headers = urllib3.make_headers(proxy_basic_auth=unquote(login)) if login else {}
    return urllib3.ProxyManager(proxy, maxsize=in_flight, proxy_headers=headers)


def reason(error: BaseException) -> str:
    """Returns why there was no answer, in the system's words; `error` is of urllib3, or of a client that uses it."""
    inner, seen = next(iter(getattr(error, "errors", ())), error), {id(error)}
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
        found = parsed_json(content[:100_000])
    except (ValueError, RecursionError):
        return content[:2000].decode("utf-8", "replace")
    while isinstance(found, dict):
        inner = next((found[key] for key in ("message", "error", "detail") if found.get(key)), None)
        if inner is None:
            break
        found = inner
    return str(found)

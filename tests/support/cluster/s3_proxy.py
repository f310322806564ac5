"""A proxy before the real S3 server that does what a healthy one will not: 503 SlowDown, 409, resets, lost answers.

Requests are passed on byte by byte, signed as they are, so the server checks what our client has signed.
"""

import http.client
import re
import ssl
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.cluster.s3_server import S3Server, connect
from tests.support.wire import Said, Wire

ANSWERS = {
    "slow_down": (503, "<Code>SlowDown</Code><Message>Please reduce your request rate.</Message>"),
    "conflict": (409, "<Code>ConditionalRequestConflict</Code><Message>A conflicting operation occurred.</Message>"),
    "region": (400, "<Code>AuthorizationHeaderMalformed</Code><Region>eu-west-7</Region>"),
    "denied": (403, "<Code>AccessDenied</Code><Message>Access Denied</Message>"),
    "expired": (400, "<Code>ExpiredToken</Code><Message>The provided token has expired.</Message>"),
    "spoilt": (400, "<Code>XAmzContentChecksumMismatch</Code><Message>The checksum did not match.</Message>"),
    "login": (200, "<html>please log in</html>"),
    "missing": (404, "<Code>NoSuchKey</Code><Message>The specified key does not exist.</Message>"),
    "unknown": (501, "<Code>NotImplemented</Code><Message>A header you provided implies ...</Message>"),
}
_OF_A_CONNECTION = {"connection", "expect", "transfer-encoding"}


@dataclass
class Fault:
    """A fault that is done to the next `times` requests of a method whose path (with query) matches.

    kind: of ANSWERS: answered so, the server never sees them. reset: the connection is reset before. lost: the
    server does it, and the connection is reset before its answer. cut: half of the answer's body, then a reset. slow: passed
    on after `seconds`. unconditional: `If-None-Match` is not heeded.
    """

    kind: str
    method: str = "PUT"
    path: str = ""
    times: int = 1
    every: int = 1  # only each n-th request that matches
    seconds: float = 0.0
    seen: int = 0


class Proxy(Wire):
    """`faults` may be changed at any time; `requests` are all that came, as (method, path), `did` those that met a fault."""

    def __init__(self, server: S3Server, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.server = server
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        self.did: list[tuple[str, str, str]] = []

    def kinds(self) -> Counter[str]:
        """The requests that came, by what a store charges for."""
        with self._lock:
            return Counter(kind(method, path) for method, path in self.requests)

    def answer(self, method: str, path: str, data: bytes, headers: Mapping[str, str]) -> Said:
        fault = self._meet(method, path)
        kind = fault.kind if fault else ""
        if kind in ANSWERS:
            status, words = ANSWERS[kind]
            body = words if status == 200 else f"<?xml version='1.0'?><Error>{words}</Error>"
            return Said(status, body.encode(), {"Content-Type": "application/xml"})
        if kind == "reset":
            return Said(broken="reset")
        if kind == "unconditional" and headers.get("If-None-Match"):
            bucket, _, key = unquote(urlsplit(path).path).lstrip("/").partition("/")
            connect(self.server).put_object(Bucket=bucket, Key=key, Body=data)
            return Said(headers={"ETag": '"0"'})
        if fault is not None and kind == "slow":
            time.sleep(fault.seconds)
        said = self._ask(method, path, data, headers)
        if kind == "lost":
            return Said(broken="reset")
        return replace(said, broken="reset", sent=len(said.content) // 2) if kind == "cut" else said

    def _meet(self, method: str, path: str) -> Fault | None:
        with self._lock:
            self.requests.append((method, path))
            for fault in self.faults:
                if fault.times and fault.method == method and re.search(fault.path, path):
                    fault.seen += 1
                    if fault.seen % fault.every == 0:
                        fault.times -= 1
                        self.did.append((fault.kind, method, path))
                        return fault
        return None

    def _ask(self, method: str, path: str, data: bytes, headers: Mapping[str, str]) -> Said:
        upstream = http.client.HTTPConnection(urlsplit(self.server.endpoint).netloc, timeout=300)
        upstream.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            if name.lower() not in _OF_A_CONNECTION:
                upstream.putheader(name, value)
        if "Transfer-Encoding" in headers:
            upstream.putheader("Content-Length", str(len(data)))
        upstream.endheaders(data)
        answer = upstream.getresponse()
        content = answer.read()
        upstream.close()
        kept = {name: value for name, value in answer.getheaders() if name.lower() not in _OF_A_CONNECTION}
        return Said(answer.status, content, kept)


def kind(method: str, path: str) -> str:
    """Returns what a request is, by its method and query."""
    query = parse_qs(urlsplit(path).query, keep_blank_values=True)
    if "list-type" in query:
        return "list"
    if method != "DELETE" and query.keys() & {"uploads", "uploadId"}:
        return "multipart"
    return method.lower()


@contextmanager
def proxied(server: S3Server) -> Iterator[tuple[Proxy, str]]:
    """The proxy, and its address."""
    with Proxy(server) as proxy:
        yield proxy, proxy.url

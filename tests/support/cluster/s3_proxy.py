"""A proxy before the real S3 server that does what a healthy one will not: 503 SlowDown, 409, resets, lost answers.

Requests are passed on byte by byte, signed as they are, so the server checks what our client has signed.
"""

import http.client
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.cluster.s3_server import S3Server, connect

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


@dataclass
class Proxy:
    """`faults` may be changed at any time; `requests` are all that came, as (method, path), `did` those that met a fault."""

    server: S3Server
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    did: list[tuple[str, str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def kinds(self) -> Counter[str]:
        """The requests that came, by what a store charges for."""
        with self.lock:
            return Counter(kind(method, path) for method, path in self.requests)

    def meet(self, method: str, path: str) -> Fault | None:
        with self.lock:
            self.requests.append((method, path))
            for fault in self.faults:
                if fault.times and fault.method == method and re.search(fault.path, path):
                    fault.seen += 1
                    if fault.seen % fault.every == 0:
                        fault.times -= 1
                        self.did.append((fault.kind, method, path))
                        return fault
        return None


def kind(method: str, path: str) -> str:
    """Returns what a request is, by its method and query."""
    query = parse_qs(urlsplit(path).query, keep_blank_values=True)
    if "list-type" in query:
        return "list"
    if method != "DELETE" and query.keys() & {"uploads", "uploadId"}:
        return "multipart"
    return method.lower()


class _Wire(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits 40 ms for the acknowledgement of its headers
    proxy: Proxy

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.proxy.meet(self.command, self.path)
        kind = fault.kind if fault else ""
        if kind in ANSWERS:
            self._error(*ANSWERS[kind])
        elif kind == "reset":
            self._reset()
        elif kind == "unconditional" and self.headers.get("If-None-Match"):
            bucket, _, key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
            connect(self.proxy.server).put_object(Bucket=bucket, Key=key, Body=body)
            self._answer(200, [("ETag", '"0"')], b"")
        else:
            if fault is not None and kind == "slow":
                time.sleep(fault.seconds)
            status, headers, data = self._ask(body)
            if kind == "lost":
                self._reset()
            elif kind == "cut":
                self._answer(status, headers, data[: len(data) // 2], length=len(data))
                self._reset()
            else:
                self._answer(status, headers, data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        upstream = http.client.HTTPConnection(urlsplit(self.proxy.server.endpoint).netloc, timeout=300)
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in ("expect", "connection"):
                upstream.putheader(name, value)
        upstream.endheaders(body)
        answer = upstream.getresponse()
        data = answer.read()
        upstream.close()
        return answer.status, answer.getheaders(), data

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, length: int | None = None) -> None:
        self.send_response_only(status)
        named = {name.lower() for name, _ in headers}
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding"):
                self.send_header(name, value)
        if "content-length" not in named:
            self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _error(self, status: int, words: str) -> None:
        body = (words if status == 200 else f"<?xml version='1.0'?><Error>{words}</Error>").encode()
        self._answer(status, [("Content-Type", "application/xml")], body)

    def _reset(self) -> None:
        """RST instead of FIN: with a linger of 0 s the kernel throws away what is unsent."""
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def finish(self) -> None:
        try:
            super().finish()
        except OSError:  # the connection was reset above
            return

    def log_message(self, *_: Any) -> None:
        return


@contextmanager
def proxied(server: S3Server) -> Iterator[tuple[Proxy, str]]:
    """The proxy, and its address."""
    proxy = Proxy(server)
    listening = ThreadingHTTPServer(("127.0.0.1", 0), type("Wire", (_Wire,), {"proxy": proxy}))
    listening.daemon_threads = True
    listening.handle_error = lambda *_: None  # type: ignore[method-assign]
    threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield proxy, f"http://127.0.0.1:{listening.server_address[1]}"
    finally:
        listening.shutdown()
        listening.server_close()

"""A real HTTP proxy before a real Elasticsearch, for what a healthy server will not do.

    with Proxy(url, meddle) as proxy: ... proxy.url

`meddle` sees each request and says what becomes of it: None (passed on), or a `Fault`. Searches of a msearch and documents
of a bulk are told apart, so single ones can be turned away: the others are passed on, and the answers put together.
"""

from __future__ import annotations

import http.client
import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Request:
    """A request that came: `items` are the line pairs of a bulk or msearch. `number` counts requests of this kind, from 1."""

    method: str
    kind: str  # the last part of the path
    path: str
    items: list[bytes]
    number: int
    body: bytes = b""


@dataclass(frozen=True)
class Fault:
    """A fault that is done to a request.

    items: numbers of items that are answered `status` and `error`, while the others are passed on. failed_shards: of these
    items, in what the server answered. kind: lost (passed on, never answered), reset (not passed on), cut (half the answer),
    html, answer (`status` and `body`, not passed on).
    """

    kind: str = "items"
    items: frozenset[int] = frozenset()
    failed_shards: frozenset[int] = frozenset()
    status: int = 429
    error: str = "es_rejected_execution_exception"
    body: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=lambda: _HEADERS)


_HEADERS = {"Content-Type": "application/json", "X-Elastic-Product": "Elasticsearch"}
Meddle = Callable[[Request], "Fault | None"]


class Proxy:
    """Serves on a thread; `seen` counts requests by kind, `items` their items, `headers` are those that came last."""

    def __init__(self, upstream: str, meddle: Meddle | None = None) -> None:
        self.upstream, self.meddle = urlsplit(upstream), meddle or (lambda request: None)
        self.seen: Counter[str] = Counter()
        self.items: Counter[str] = Counter()
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else a body waits 40 ms for the acknowledgement of its headers

            def log_message(self, *_: object) -> None:
                pass

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:
                    self.close_connection = True

            def answer(self) -> None:
                proxy._handle(self)

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = answer

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="proxy", kwargs={"poll_interval": 0.02}, daemon=True
        )

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        kind = urlsplit(handler.path).path.rsplit("/", 1)[-1]
        lines = body.split(b"\n")[:-1] if kind in ("_bulk", "_msearch") else []
        items = [b"\n".join(lines[i : i + 2]) + b"\n" for i in range(0, len(lines), 2)]
        with self._lock:
            self.seen[kind] += 1
            self.items[kind] += len(items)
            number = self.seen[kind]
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            fault = self.meddle(Request(handler.command, kind, handler.path, items, number, body))
            self._answer(handler, body, kind, items, fault)
        finally:
            with self._lock:
                self.at_once -= 1

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes, kind: str, items: list[bytes], fault: Fault | None) -> None:
        if fault is None:
            return self._reply(handler, *self._forward(handler, body))
        if fault.kind == "reset":
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.connection.close()
            raise ConnectionResetError
        if fault.kind == "html":
            return self._reply(handler, fault.status, b"<html>please log in</html>", {"Content-Type": "text/html"})
        if fault.kind == "answer":
            return self._reply(handler, fault.status, json.dumps(fault.body).encode(), fault.headers)
        kept = [item for number, item in enumerate(items) if number not in fault.items]
        whole: dict[str, Any] = {"items": [], "responses": [], "errors": False}
        headers = _HEADERS
        if kept or not items:
            status, content, headers = self._forward(handler, b"".join(kept) if items else body)
            if fault.kind == "lost":
                handler.connection.close()
                raise ConnectionAbortedError
            if fault.kind == "cut":
                self._reply(handler, status, content, headers, len(content) // 2)
                handler.wfile.flush()
                handler.connection.close()
                raise ConnectionAbortedError
            whole = json.loads(content)
        error = {"type": fault.error, "reason": "rejected execution of a task: queue capacity"}
        for number in sorted(fault.items):
            if kind == "_bulk":
                whole.setdefault("items", []).insert(number, {"create": {"status": fault.status, "error": error}})
                whole["errors"] = True
            else:
                whole["responses"].insert(number, {"status": fault.status, "error": {"root_cause": [error]} | error})
        for number in fault.failed_shards & frozenset(range(len(whole.get("responses", [])))):
            whole["responses"][number]["_shards"] = {"failed": 1, "failures": [{"reason": error}]}
        return self._reply(handler, 200, json.dumps(whole).encode(), headers)

    def _forward(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        upstream = http.client.HTTPConnection(str(self.upstream.hostname), self.upstream.port, timeout=300)
        headers = {name: value for name, value in handler.headers.items() if name.lower() not in ("host", "content-length")}
        path = handler.path
        if "_bulk" in path:  # all items are needed to put answers together
            path = path.split("?")[0]
        upstream.request(handler.command, path, body=body or None, headers=headers)
        answer = upstream.getresponse()
        content = answer.read()
        kept = {name: value for name, value in answer.getheaders() if name.lower() in ("content-type", "x-elastic-product")}
        upstream.close()
        return answer.status, content, kept

    def _reply(
        self, handler: BaseHTTPRequestHandler, status: int, content: bytes, headers: dict[str, str], most: int | None = None
    ) -> None:
        handler.send_response_only(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[:most])


def fake_index(name: str = "docs", fields: tuple[str, ...] = ("text",), **settings: str) -> Meddle:
    """Answers as a server with one index of texts, not built here, in which every search finds the same hits."""
    mappings, hits = {"properties": {field: {"type": "text"} for field in fields}}, ("d1", "d2")
    shown = {"aliases": {}, "mappings": mappings, "settings": {"index": {"uuid": "u", "number_of_shards": "1"} | settings}}
    found = {"hits": {"hits": [{"_id": doc_id, "_score": 9.0 - place} for place, doc_id in enumerate(hits)]}}
    bodies: dict[str, Any] = {"": {"version": {"number": "8.19.0"}}, "_count": {"count": 2}, "_search": found}

    def answer(request: Request) -> Fault:
        body = {"responses": [found] * len(request.items)} if request.kind == "_msearch" else bodies.get(request.kind)
        return Fault(kind="answer", status=200, body={name: shown} if body is None else body)

    return answer

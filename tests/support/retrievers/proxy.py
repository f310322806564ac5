"""A real HTTP proxy before a real Elasticsearch, for what a healthy server will not do.

    with Proxy(url, meddle) as proxy: ... proxy.url

`meddle` sees each request and says what becomes of it: None (passed on), or a `Fault`. Searches of a msearch and documents
of a bulk are told apart, so single ones can be turned away: the others are passed on, and the answers put together.
"""

from __future__ import annotations

import http.client
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from tests.support.wire import Said, Wire


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


class Proxy(Wire):
    """`seen` counts requests by kind, `items` their items."""

    def __init__(self, upstream: str, meddle: Meddle) -> None:
        super().__init__()
        self.upstream, self.meddle = urlsplit(upstream), meddle
        self.seen: Counter[str] = Counter()
        self.items: Counter[str] = Counter()

    def answer(self, method: str, path: str, data: bytes, headers: Mapping[str, str]) -> Said:
        kind = urlsplit(path).path.rsplit("/", 1)[-1]
        lines = data.split(b"\n")[:-1] if kind in ("_bulk", "_msearch") else []
        items = [b"\n".join(lines[i : i + 2]) + b"\n" for i in range(0, len(lines), 2)]
        with self._lock:
            self.seen[kind] += 1
            self.items[kind] += len(items)
            number = self.seen[kind]
        request = Request(method, kind, path, items, number, data)
        fault = self.meddle(request)
        if fault is None:
            return self._forward(request, data, headers)
        if fault.kind == "reset":
            return Said(broken="reset")
        if fault.kind == "html":
            return Said(fault.status, b"<html>please log in</html>", {"Content-Type": "text/html"})
        if fault.kind == "answer":
            return Said(fault.status, json.dumps(fault.body).encode(), fault.headers)
        return self._spoilt(request, headers, fault)

    def _spoilt(self, request: Request, headers: Mapping[str, str], fault: Fault) -> Said:
        """Returns the server's answer to the items that are passed on, with the fault."""
        items = request.items
        kept = [item for number, item in enumerate(items) if number not in fault.items]
        whole: dict[str, Any] = {"items": [], "responses": [], "errors": False}
        said = Said(headers=_HEADERS)
        if kept or not items:
            said = self._forward(request, b"".join(kept) if items else request.body, headers)
            if fault.kind == "lost":
                return Said(broken="closed")
            if fault.kind == "cut":
                return replace(said, broken="closed", sent=len(said.content) // 2)
            whole = json.loads(said.content)
        error = {"type": fault.error, "reason": "rejected execution of a task: queue capacity"}
        for number in sorted(fault.items):
            if request.kind == "_bulk":
                whole.setdefault("items", []).insert(number, {"create": {"status": fault.status, "error": error}})
                whole["errors"] = True
            else:
                whole["responses"].insert(number, {"status": fault.status, "error": {"root_cause": [error]} | error})
        for number in fault.failed_shards & frozenset(range(len(whole.get("responses", [])))):
            whole["responses"][number]["_shards"] = {"failed": 1, "failures": [{"reason": error}]}
        return Said(200, json.dumps(whole).encode(), said.headers)

    def _forward(self, request: Request, data: bytes, headers: Mapping[str, str]) -> Said:
        upstream = http.client.HTTPConnection(str(self.upstream.hostname), self.upstream.port, timeout=300)
        sent = {name: value for name, value in headers.items() if name.lower() not in ("host", "content-length")}
        # all items are needed to put answers together
        path = request.path.split("?")[0] if request.kind == "_bulk" else request.path
        upstream.request(request.method, path, body=data or None, headers=sent)
        answer = upstream.getresponse()
        content = answer.read()
        kept = {name: value for name, value in answer.getheaders() if name.lower() in ("content-type", "x-elastic-product")}
        upstream.close()
        return Said(answer.status, content, kept)


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

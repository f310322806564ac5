"""A collector of OpenTelemetry traces, OTLP over HTTP: decodes what it is sent."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Span:
    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    failed: str | None  # the message of its status; None: OK
    began: int
    ended: int


@dataclass
class Collector:
    address: str
    spans: list[Span] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)  # path, headers
    bodies: bytes = b""
    status: int = 200

    def below(self, parent: str) -> list[Span]:
        """The spans below one, in the order of their times."""
        return sorted((one for one in self.spans if one.parent == parent), key=lambda one: one.began)

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        data = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        self.requests.append((path, headers))
        self.bodies += data
        if self.status != 200:
            return
        for group in ExportTraceServiceRequest.FromString(data).resource_spans:
            self.resources.append(_values(group.resource.attributes))
            for scope in group.scope_spans:
                for span in scope.spans:
                    failed = span.status.message if span.status.code == 2 else None
                    ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
                    times = span.start_time_unix_nano, span.end_time_unix_nano
                    self.spans.append(Span(span.name, *ids, _values(span.attributes), failed, *times))


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

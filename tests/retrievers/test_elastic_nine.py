"""Elasticsearch 9 at the wire: its version, and vectors that its `_source` lacks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from retrievers.elastic.connection import Connection
from retrievers.elastic.passages import PASSAGE, CorpusLoader, text_hash
from retrievers.elastic.settings import ElasticSettings
from tests.support.retrievers.blocks import typed

BLOCK = {"kind": "elastic", "index": "docs", "url_env": "NINE_URL"}
STORED = {"title. the sea": [1.0, 0.0], "title. the moon": [0.0, 1.0]}


class Nine(BaseHTTPRequestHandler):
    """Answers as 9.2 does: vectors are no part of `_source`, and are given where `fields` or `exclude_vectors: false` asks."""

    def do_GET(self) -> None:
        self._answer({"version": {"number": "9.2.1"}})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert "compatible-with=8" in self.headers["Accept"]
        self._answer(self._hits(json.loads(body)) if self.path.split("?")[0].endswith("_search") else self._created(body))

    do_PUT = do_POST

    def _hits(self, asked: dict[str, Any]) -> dict[str, Any]:
        hits = []
        for text, vector in STORED.items():
            whole = {PASSAGE: text_hash(text), "vector": vector}
            source, fields = asked.get("_source", True), asked.get("fields") or []
            given = {name: value if isinstance(value, list) else [value] for name, value in whole.items() if name in fields}
            without = not (isinstance(source, dict) and source.get("exclude_vectors") is False)
            hit: dict[str, Any] = (
                {"_source": {n: v for n, v in whole.items() if not (without and n == "vector")}} if source else {}
            )
            hits.append(hit | ({"fields": given} if given else {}))
        return {"hits": {"hits": hits}}

    def _created(self, body: bytes) -> dict[str, Any]:
        created = [json.loads(line)["create"] for line in body.splitlines()[::2]]
        return {"errors": False, "items": [{"create": {"_id": one["_id"], "status": 201}} for one in created]}

    def _answer(self, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/vnd.elasticsearch+json;compatible-with=8")
        self.send_header("X-Elastic-Product", "Elasticsearch")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def nine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Nine)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    monkeypatch.setenv("NINE_URL", f"http://127.0.0.1:{server.server_address[1]}")
    settings = typed(BLOCK)
    assert isinstance(settings, ElasticSettings)
    yield Connection("here", settings)
    server.shutdown()
    server.server_close()


def test_vectors_that_nine_leaves_out_of_source_are_not_computed_again(nine: Connection) -> None:
    assert nine.check() == "9.2.1"
    encoded: list[str] = []

    def encode(texts: Any) -> np.ndarray:
        encoded.extend(texts)
        return np.tile(np.array([0.6, 0.8], dtype=np.float32), (len(texts), 1))

    settings = {
        "where": "nine", "connection": typed(BLOCK), "index": "new", "in_flight": 2, "text_field": "text",
        "vector_field": "vector", "dim": 2, "vector_sources": [("old", "vector")], "resumed": False,
    }  # fmt: skip
    loader = CorpusLoader(settings, encode)
    batch = pa.record_batch({"doc_id": ["a", "b", "c"], "title": ["title"] * 3, "text": ["the sea", "the moon", "bread"]})
    counts = loader.add(batch)
    loader.drain()
    loader.close()
    assert (counts.reused, counts.encoded, len(encoded)) == (2, 1, 1)

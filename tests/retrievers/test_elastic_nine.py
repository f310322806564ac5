"""Elasticsearch 9 at the wire: its version, and vectors that its `_source` lacks."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from retrievers.elastic.connection import Connection
from retrievers.elastic.passages import PASSAGE, CorpusLoader, text_hash
from tests.support.retrievers.blocks import typed
from tests.support.retrievers.proxy import Fault, Proxy, Request

BLOCK = {"kind": "elastic", "index": "docs", "url_env": "NINE_URL"}
STORED = {"title. the sea": [1.0, 0.0], "title. the moon": [0.0, 1.0]}


def nine(request: Request) -> Fault:
    """Answers as 9.2 does: vectors are no part of `_source`, and are given where `fields` or `exclude_vectors: false` asks."""
    body: dict[str, Any] = {"version": {"number": "9.2.1"}}
    if request.kind == "_bulk":
        created = [json.loads(item.split(b"\n")[0])["create"] for item in request.items]
        body = {"errors": False, "items": [{"create": {"_id": one["_id"], "status": 201}} for one in created]}
    elif request.kind == "_search":
        asked, hits = json.loads(request.body), []
        for text, vector in STORED.items():
            whole, source = {PASSAGE: [text_hash(text)], "vector": vector}, asked.get("_source", True)
            without = not (isinstance(source, dict) and source.get("exclude_vectors") is False)
            shown = {name: value for name, value in whole.items() if not (without and name == "vector")}
            fields = {name: value for name, value in whole.items() if name in asked.get("fields", [])}
            hits.append(({"_source": shown} if source else {}) | ({"fields": fields} if fields else {}))
        body = {"hits": {"hits": hits}}
    return Fault("answer", status=200, body=body)


def test_vectors_that_nine_leaves_out_of_source_are_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []

    def encode(texts: Any) -> np.ndarray:
        encoded.extend(texts)
        return np.tile(np.array([0.6, 0.8], dtype=np.float32), (len(texts), 1))

    settings = {
        "where": "nine", "connection": typed(BLOCK), "index": "new", "in_flight": 2, "text_field": "text",
        "vector_field": "vector", "dim": 2, "vector_sources": [("old", "vector")], "resumed": False,
    }  # fmt: skip
    with Proxy("http://127.0.0.1:9", nine) as proxy:
        monkeypatch.setenv("NINE_URL", proxy.url)
        assert Connection("here", typed(BLOCK)).check() == "9.2.1"  # type: ignore[arg-type]
        loader = CorpusLoader(settings, encode)
        batch = pa.record_batch({"doc_id": ["a", "b", "c"], "title": ["title"] * 3, "text": ["the sea", "the moon", "bread"]})
        counts = loader.add(batch)
        loader.drain()
        loader.close()
        assert (counts.reused, counts.encoded, len(encoded)) == (2, 1, 1)

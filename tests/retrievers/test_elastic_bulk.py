"""Bulk loading over HTTP: what is sent again, what is refused, how many requests are in flight."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from elasticsearch import helpers

from cluster import outages
from cluster.errors import RetrieverError
from retrievers.elastic.bulk import PASSAGE, Documents, create_action, load_documents, text_hash
from retrievers.elastic.connection import Connection
from retrievers.retriever import SearchText
from retrievers.served.server import TextRefused
from tests.support.cluster.clock import Clock
from tests.support.retrievers.blocks import typed
from tests.support.retrievers.proxy import Fault, Proxy, Request
from tests.support.waits import PATIENCE

pytestmark = pytest.mark.usefixtures("short_pauses")
DOCUMENTS = [create_action(f"d{number:04d}", {"text": "sea"}) for number in range(1200)]
IDS = [document["_id"] for document in DOCUMENTS]
Serve = Callable[..., Proxy]


def connected(in_flight: int = 2, **block: Any) -> Connection:
    return Connection("here", typed({"kind": "elastic", "index": "any", "url_env": "PROXY_URL"} | block), in_flight)


def ids(request: Request) -> list[str]:
    return [json.loads(item.split(b"\n")[0])["create"]["_id"] for item in request.items]


def created(doc_ids: list[str], **last: Any) -> Fault:
    """The answer to a bulk request; ``last`` becomes part of its last item."""
    items = [{"create": {"_id": doc_id, "status": 201}} for doc_id in doc_ids]
    items[-1]["create"] |= last
    return Fault(kind="answer", status=200, body={"errors": bool(last), "items": items})


def load(connection: Connection, documents: list[dict[str, Any]] = DOCUMENTS) -> None:
    with closing(connection):
        load_documents(connection, "docs", documents, 2)


@pytest.mark.parametrize(("most", "requests"), [(512, 3), (100, 33)])  # a larger one is answered 413, and halved
def test_each_document_is_loaded_once(serve: Serve, most: int, requests: int) -> None:
    sent: list[str] = []

    def answer(request: Request) -> Fault:
        if len(request.items) > most:
            return Fault(kind="answer", status=413)
        sent.extend(ids(request))
        return created(ids(request))

    proxy = serve(answer)
    load(connected())
    assert sorted(sent) == IDS
    assert proxy.seen["_bulk"] == requests


def documents_of(encode: Any, **more: Any) -> Documents:
    settings = {
        "index": "any", "text_field": "text", "vector_field": "vector", "dim": 2, "vector_sources": [], "resumed": False,
    }  # fmt: skip
    return Documents(settings | more, connected(), encode)


def batch(**texts: str) -> pa.RecordBatch:
    return pa.record_batch({"doc_id": [*texts], "title": pa.nulls(len(texts), pa.string()), "text": [*texts.values()]})


def test_a_blank_document_has_no_vector_and_one_that_the_encoder_refuses_is_named(serve: Serve) -> None:
    sent: list[list[Any]] = []

    def answer(request: Request) -> Fault:
        sent.extend([json.loads(line) for line in item.splitlines()] for item in request.items)
        return created(ids(request))

    def encode(texts: Sequence[str]) -> np.ndarray:
        if "bad" in texts:
            raise TextRefused("encoder m at http://h/v1", "HTTP 500: NaN", item=SearchText("bad", "passage"))
        return np.array([[float(bool(text.strip())), 0.0] for text in texts], dtype=np.float32)

    serve(answer)
    documents = documents_of(encode)
    load(connected(), documents(batch(p=" ", q="sea"))[0])
    assert {action["create"]["_id"]: "vector" in document for action, document in sent} == {"p": False, "q": True}
    with pytest.raises(RetrieverError, match=r"^corpus: document 's' is refused by the encoder m at .*: HTTP 500: NaN; change"):
        documents(batch(r="tide", s="bad", t="bad"))


def test_vectors_that_nine_leaves_out_of_source_are_not_computed_again(serve: Serve) -> None:
    """From 9.2 on vectors are no part of `_source`, and are given where `fields` or `exclude_vectors: false` asks."""
    stored = {"the sea": [1.0, 0.0], "the moon": [0.0, 1.0]}
    encoded: list[str] = []

    def nine(request: Request) -> Fault:
        if request.kind == "_bulk":
            return created(ids(request))
        asked, hits = json.loads(request.body), []
        for text, vector in stored.items():
            whole, source = {PASSAGE: [text_hash(text)], "vector": vector}, asked.get("_source", True)
            without = not (isinstance(source, dict) and source.get("exclude_vectors") is False)
            shown = {name: value for name, value in whole.items() if not (without and name == "vector")}
            fields = {name: value for name, value in whole.items() if name in asked.get("fields", [])}
            hits.append(({"_source": shown} if source else {}) | ({"fields": fields} if fields else {}))
        return Fault("answer", status=200, body={"hits": {"hits": hits}})

    def encode(texts: Sequence[str]) -> np.ndarray:
        encoded.extend(texts)
        return np.tile(np.array([0.6, 0.8], dtype=np.float32), (len(texts), 1))

    serve(nine)
    documents = documents_of(encode, vector_sources=[("old", "vector")])
    _, counts = documents(batch(a="the sea", b="the moon", c="bread"))
    assert (counts["reused"], counts["encoded"], encoded) == (2, 1, ["bread"])


def test_a_document_that_is_there_already_counts_as_loaded(serve: Serve) -> None:
    conflict = {"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": "document already exists"}}
    proxy = serve(lambda request: created(ids(request), **conflict))
    load(connected())
    assert proxy.items["_bulk"] == 1200


def test_documents_that_an_answer_lacks_are_sent_again(serve: Serve) -> None:
    proxy = serve(lambda request: created(ids(request)[: max(1, len(request.items) - 5)]))
    load(connected(), DOCUMENTS[:20])
    assert [proxy.seen["_bulk"], proxy.items["_bulk"]] == [6, 20 + 5 + 4 + 3 + 2 + 1]


def test_a_refused_document_is_named_in_one_line(serve: Serve) -> None:
    error = {"type": "document_parsing_exception", "reason": "failed\nto parse"}
    proxy = serve(lambda request: created(ids(request), status=400, error=error))
    words = r"^index docs at http\S+: document 'd0003' is refused: document_parsing_exception: failed to parse; correct the c"
    with pytest.raises(RetrieverError, match=words):
        load(connected(), DOCUMENTS[:4])
    assert proxy.seen["_bulk"] == 1
    serve(lambda request: Fault(kind="answer", status=413, body={"error": {"type": "too_large", "reason": "1 MB"}}))
    with pytest.raises(RetrieverError, match=r"^index docs at http\S+: too_large: 1 MB; correct the corpus or the config$"):
        load(connected(), DOCUMENTS[:4])


def test_the_library_s_loop_ends_in_the_thread_that_began_it(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its OpenTelemetry span is closed with it; elsewhere that is two stack traces "Failed to detach context"."""
    error, real, begun, closed = {"type": "document_parsing_exception"}, helpers.streaming_bulk, [], []

    def watched(*arguments: Any, **options: Any) -> Iterator[Any]:
        begun.append(threading.current_thread())
        try:
            yield from real(*arguments, **options)
        finally:
            closed.append(threading.current_thread())

    monkeypatch.setattr(helpers, "streaming_bulk", watched)
    serve(lambda request: created(ids(request)[:2], status=400, error=error))
    with pytest.raises(RetrieverError):
        load(connected(), DOCUMENTS[:4])
    assert len(closed) == 1
    assert closed == begun


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(kind="answer", status=503, body={"error": {"type": "no_master"}}), "status 503 no_master"),
        (Fault(kind="reset"), "Connection reset by peer"),
        (Fault(items=frozenset(range(512))), "documents were answered 429 es_rejected_execution_exception"),
    ],
)
def test_patience_is_counted_in_minutes(serve: Serve, monkeypatch: pytest.MonkeyPatch, fault: Fault, words: str) -> None:
    clock = Clock()
    monkeypatch.setattr(outages, "time", clock)
    monkeypatch.setattr(outages, "pause", clock.pause)
    proxy, began = serve(lambda request: fault), clock.now
    with pytest.raises(RetrieverError, match=rf"no valid answer from http\S+: {words}.*; start the server, or correct PROXY"):
        load(connected(patience_minutes=0.02), DOCUMENTS[:512])
    assert 1.2 <= clock.now - began < 1.2 + outages.LONGEST_PAUSE
    assert proxy.seen["_bulk"] > 1.2 / outages.LONGEST_PAUSE


def test_loads_by_one_connection_share_its_bound_on_requests(serve: Serve) -> None:
    two = threading.Barrier(2)  # of the six requests

    def answer(request: Request) -> Fault:
        two.wait(PATIENCE)
        time.sleep(0.02)
        return created(ids(request))

    proxy = serve(answer)
    connection = connected(2)
    threads = [threading.Thread(target=load_documents, args=(connection, "docs", DOCUMENTS, 4)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert proxy.items["_bulk"] == 2400
    assert proxy.most_in_flight == 2


def test_an_error_does_not_wait_for_a_server_that_is_full(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "FIRST_PAUSE", 3600.0)
    monkeypatch.setattr(outages, "LONGEST_PAUSE", 3600.0)
    full = threading.Event()

    def answer(request: Request) -> Fault:
        if "d0000" in ids(request):
            full.set()
            return Fault(kind="answer", status=429)
        full.wait(PATIENCE)
        return Fault(kind="answer", status=400, body={"error": {"type": "too_many", "reason": "fields"}})

    serve(answer)
    began = time.monotonic()
    with pytest.raises(RetrieverError, match="too_many: fields"):
        load(connected())
    assert time.monotonic() - began < PATIENCE

"""Elasticsearch beside bare loops of the client's own (`_msearch`).

BM25 by the retrieving worker in blocks of 500 queries, and dense search with vectors at hand, against the same
bodies, made before, in requests of the same size, as many threads, the same client and serializer, answers read and dropped.
Vectors are random, so that the encoder does not count. The server is the one that ELASTICSEARCH_URL names, or one started from
the shared folder. It works on this machine's cores, too; CPU seconds are those of the client.
"""

import contextlib
import gc
import hashlib
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from elasticsearch import Elasticsearch
from elasticsearch.serializer import OrjsonSerializer
from recorded_sets import ENCODER, shared

from jobs.chain.arms.resources import OpenedBy
from jobs.chain.stages.retrieve import Retrieve
from jobs.chain.worker import WorkerJob
from limits.rounds import Row, Unmeasured, interleaved
from retrievers.corpora.builds import BuildInputs
from retrievers.elastic import search as elastic_search
from retrievers.elastic.build import build_elastic_index, elastic_indexes
from retrievers.elastic.bulk import load_corpus
from retrievers.elastic.retriever import BATCH
from retrievers.retriever import Alive, Retriever, SearchText, open_retriever, retriever_identity
from tests.support.jobs.workers import job as job_work
from tests.support.jobs.workers import rewritten
from tests.support.retrievers.blocks import typed
from tests.support.retrievers.elastic_server import Server, found_serve, remove_indexes

DIM, DEPTH, BLOCK, THREADS = 384, 100, 500, 4


def measure(quick: bool) -> list[Row]:
    """Returns the rows of BM25 and of dense search."""
    searches, rounds, rows = 500 if quick else 3000, 1 if quick else 5, []
    try:
        found_serve()
        with server():
            for what, ours, bare in contests(searches):
                gc.freeze()  # as after the start of a worker; the bare loop has it, too
                spent = interleaved({"ours": ours, "bare": bare}, rounds)
                rows.append(Row(f"Elasticsearch, {what}", "bare msearch", ours(), "searches", spent["ours"], spent["bare"]))
    except pytest.skip.Exception as skipped:
        raise Unmeasured(str(skipped)) from None
    return rows


def client() -> Elasticsearch:
    return Elasticsearch(
        os.environ["ELASTICSEARCH_URL"], serializer=OrjsonSerializer(), request_timeout=120, connections_per_node=8
    )


def random_vectors(texts: Sequence[str]) -> np.ndarray:
    """The same text, the same vector; as quick as nothing beside an encoder."""
    seeds = [int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") for text in texts]
    vectors = np.array([np.random.default_rng(seed).standard_normal(DIM, dtype=np.float32) for seed in seeds]).reshape(-1, DIM)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def captured(retriever: Retriever, texts: Sequence[SearchText]) -> tuple[list[bytes], str, str]:
    """The bodies that a retriever sends, its index and its filter_path."""
    bodies: list[bytes] = []
    kept = elastic_search.MultiSearch.run

    def keep(self: Any, searches: Sequence[bytes], alive: Alive) -> Any:
        bodies.extend(searches)
        return kept(self, searches, alive)

    elastic_search.MultiSearch.run = keep  # type: ignore[method-assign]
    try:
        retriever.search(texts, DEPTH)
    finally:
        elastic_search.MultiSearch.run = kept  # type: ignore[method-assign]
    searches = retriever._multi_search  # type: ignore[attr-defined]
    return bodies, searches._index, searches._filter


def bare_loop(bodies: list[bytes], index: str, filter_path: str, batch: int, threads: int) -> Callable[[], int]:
    es = client()
    headers = {"accept": "application/json", "content-type": "application/x-ndjson"}
    parts = [b"".join(bodies[i : i + batch]) for i in range(0, len(bodies), batch)]

    def send(part: bytes) -> int:
        params = {"filter_path": filter_path}
        answer = es.perform_request("POST", f"/{index}/_msearch", params=params, headers=headers, body=part)
        return len(answer.body["responses"])

    def loop() -> int:
        with ThreadPoolExecutor(threads) as pool:
            return sum(pool.map(send, parts))

    return loop


def query_blocks(texts: list[str]) -> list[pa.Table]:
    numbered = enumerate(texts)
    rows = [{"shard": i // BLOCK, "query_id": f"{i:032x}", "query": text, "costs": [], "rewrites": []} for i, text in numbered]
    table = rewritten(*rows)
    return [table.slice(start, BLOCK) for start in range(0, len(rows), BLOCK)]


class Contest(NamedTuple):
    """Work that is done, by ours and by the bare loop; both return how many searches they made."""

    what: str
    ours: Callable[[], int]
    bare: Callable[[], int]


def contests(searches: int) -> list[Contest]:
    """BM25 by the retrieving worker, and dense search with vectors at hand."""
    corpus = shared() / "data" / "scifact" / "corpus.parquet"
    texts = list(dict.fromkeys(pq.read_table(corpus).column("title").to_pylist()))[:searches]
    blocks = sizes("search", {"type": "int8_hnsw"})
    (fields,) = elastic_indexes({name: typed(one) for name, one in (blocks).items()}).values()
    build_elastic_index(fields, BuildInputs([corpus], load=lambda *a: load_corpus(*a, random_vectors)))
    block = {"bm25": blocks["bm25"] | {"max_in_flight": THREADS}}
    settings = typed(block["bm25"])
    opened = {"bm25": OpenedBy("bm25", settings, retriever_identity("bm25", settings), DEPTH)}
    stage = Retrieve(WorkerJob(replace(job_work(block), retrievers=opened, keep_lists=False), "none"))
    tables = query_blocks(texts)
    bodies, index, filter_path = captured(stage.retrieval.opened["bm25"], [SearchText(text) for text in texts])
    bare = bare_loop(bodies, index, filter_path, BATCH, THREADS)
    by_bm25 = Contest("BM25 stage", lambda: sum(stage(table).num_rows for table in tables), bare)

    dense = open_retriever("dense", typed(blocks["dense"] | {"max_in_flight": THREADS}))
    dense._vectors._encoder.encode = lambda texts: random_vectors([t.text for t in texts])  # type: ignore[attr-defined]
    asked = [SearchText(text) for text in texts]
    bodies, index, filter_path = captured(dense, asked)
    bare = bare_loop(bodies, index, filter_path, BATCH // 2, THREADS)
    dense.embed(asked)  # type: ignore[attr-defined]
    return [by_bm25, Contest("dense search", lambda: len(dense.search(asked, DEPTH).offsets) - 1, bare)]


def sizes(what: str, vector: dict[str, Any]) -> dict[str, dict[str, Any]]:
    same = {"kind": "elastic", "index": f"dmqr-rate-{what}-{uuid.uuid4().hex[:8]}"}
    return {"bm25": same, "dense": same | {"encoder": ENCODER, "vector": vector}}


@contextlib.contextmanager
def server() -> Iterator[None]:
    """The one that ELASTICSEARCH_URL names, whose indexes of ours are removed at the end, or one of our own for this time."""
    if os.environ.get("ELASTICSEARCH_URL"):
        try:
            yield
        finally:
            remove_indexes("dmqr-rate-")
        return
    own = Server(shared() / "elasticsearch" / "serve").start()
    os.environ["ELASTICSEARCH_URL"] = own.url
    try:
        yield
    finally:
        own.remove()

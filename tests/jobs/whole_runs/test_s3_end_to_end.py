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
    ROOT,
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
IMPATIENT = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from cluster.storage import s3_client
s3_client.RETRY_SECONDS = s3_client.SHORT_RETRY_SECONDS = 3.0
"""


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
        assert built.out.startswith(f"{night.url('index/')}: 331 documents, built; analyzer english: ")

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

    (went_on,) = re.findall(rf"going on: (\d+) of {SHARDS} shards are committed", done.err)
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


@pytest.mark.parametrize(
    ("kind", "path", "words"),
    [
        ("expired", "", "the credentials have expired (ExpiredToken); renew them"),
        ("slow_down", "/results/", "answers 503 SlowDown for "),
    ],
)
def test_what_the_store_does_in_the_middle_of_a_run_is_told_and_can_be_gone_on_from(
    s3: S3Server, sample_place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, path: str, words: str
) -> None:
    """Not as a refusal, not in the words of a library, and not as what failed last while the run was ended."""
    (tmp_path / "sitecustomize.py").write_text(IMPATIENT)  # of every process that is started
    output = open_storage(s3.fresh("out"))
    settings = flags(sample_place, **{"cluster.shard_size": 20, "output": output.root})
    with proxied(s3) as (proxy, address):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        running = start([sys.executable, "-m", "jobs", "run", "configs/quickstart.yaml", *settings])
        wait_until(running, lambda: committed(output, ""))
        proxy.faults = [Fault(kind, method=method, path=path, times=10**6) for method in ("GET", "PUT", "HEAD", "DELETE")]
        ended = finish(running)
    assert ended.code == 1, ended.err
    last = ended.err.splitlines()[-1]
    assert words in last
    assert "go on with: " in last
    assert "botocore" not in last
    assert "An error occurred" not in last


def test_the_report_may_be_put_on_s3(s3: S3Server, sample_place: Path, tmp_path: Path) -> None:
    settings = flags(sample_place, **{"cluster.shard_size": 200, "output": tmp_path / "runs"})
    run = finish(start([sys.executable, "-m", "jobs", "run", "configs/quickstart.yaml", *settings])).folder
    there = open_storage(s3.fresh("page"))
    for out, key in ((there.url("page.html"), "page.html"), (there.url(""), "report.html")):
        done = finish(start([sys.executable, "-m", "jobs", "report", str(run), "--out", out]))
        assert (done.code, done.out) == (0, f"{out}\n"), done.err
        assert (there.get(key) or b"").startswith(b"<!doctype html>")


def test_what_is_wrong_with_the_store_is_one_line_before_any_work(night: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    built = finish(start(command("index", night, "--corpus", night.url("in/corpus.parquet"))))
    assert built.code == 0, built.err
    for change, words in (
        (("output", "s3://no-such-bucket-here/runs"), "there is no bucket s3://no-such-bucket-here"),
        (("log.path", night.url("in/date=2026-02-01/")), "*.tsv) in this folder, it is empty"),
        (
            ("retrieve.retrievers.bm25.index", night.url("nowhere")),
            "there is no index; build it with: dmqr index configs/",
        ),
    ):
        refused = finish(start([*command("run", night), "--set", "corpus.path=null", "--set", "=".join(change)]))
        assert (refused.code, refused.out, len(refused.err.splitlines())) == (2, "", 1), refused.err
        assert words in refused.err
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret")
    refused = finish(start(command("run", night)))
    assert (refused.code, len(refused.err.splitlines())) == (2, 1), refused.err
    assert "does not take these credentials (SignatureDoesNotMatch)" in refused.err
    assert "wrong-secret" not in refused.err
    for verb in (["evaluate", "s3://no-such-bucket-here/runs", "qrels.tsv"], ["report", "s3://no-such-bucket-here/runs"]):
        refused = finish(start([sys.executable, "-m", "jobs", *verb]))
        assert (refused.code, len(refused.err.splitlines())) == (2, 1), refused.err

"""Whole runs with Elasticsearch: security on, a tenth of its answers bad, a restart in the middle."""

import base64
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.jobs.whole_runs import SAMPLE, check_files, check_same_rows, finish, start, wait_for_commits
from tests.support.retrievers.elastic_server import PASSWORD, Server
from tests.support.retrievers.proxy import Fault, Proxy, Request

pytestmark = pytest.mark.slow

ROWS = 60  # of the sample's log: some 40 queries


def dmqr(verb: str, *more: str, **settings: object) -> subprocess.Popen[str]:
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    return start([sys.executable, "-m", "jobs", verb, "configs/elastic.yaml", *more, *words])


@pytest.fixture
def job(
    secured_server: Server, tmp_path: Path, new_name: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> dict[str, object]:
    """The settings of a small job whose index is built, by a user; what it runs with is a key that may only read."""
    name = new_name()
    monkeypatch.setenv("ELASTICSEARCH_URL", secured_server.url.replace("//", f"//elastic:{PASSWORD}@"))
    both = [f"retrieve.retrievers.{retriever}" for retriever in ("bm25", "dense")]
    index: dict[str, object] = {f"{retriever}.index": name for retriever in both}
    built = finish(dmqr("index", "--corpus", str(SAMPLE / "corpus.parquet"), **index))
    assert built.code == 0, built.err
    assert built.out.startswith(f"{name} ({name}-")
    assert built.out.endswith("): 331 documents, built\n")
    monkeypatch.setenv("ELASTICSEARCH_URL", secured_server.url)
    monkeypatch.setenv("ES_KEY", secured_server.key(name))
    pq.write_table(pq.read_table(SAMPLE / "log.parquet").slice(0, ROWS), tmp_path / "log.parquet")
    return index | {f"{one}.api_key_env": "ES_KEY" for one in both} | {
        "log.path": tmp_path / "log.parquet", "evaluate.qrels": "null", "cluster.shard_size": 4, "limits.error_rate": 1,
    }  # fmt: skip


def test_bad_answers_and_a_restart_change_nothing(
    job: dict[str, object], secured_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = finish(dmqr("run", output=tmp_path / "calm", **job)).folder
    chance, lock = random.Random(7), threading.Lock()
    refused = [0]

    def meddle(request: Request) -> Fault | None:
        if request.kind != "_msearch":
            return None
        with lock:
            if chance.random() < 0.05:
                return Fault(kind=chance.choice(["reset", "lost", "cut"]))
            items = frozenset(i for i in range(len(request.items)) if chance.random() < 0.05)
            refused[0] += len(items)
        return Fault(items=items) if items else None

    with Proxy(secured_server.url, meddle) as proxy:
        monkeypatch.setenv("ELASTICSEARCH_URL", proxy.url)
        process = dmqr("run", output=tmp_path / "rough", **job)
        wait_for_commits(process, tmp_path / "rough", 1)
        secured_server.stop()
        secured_server.start()
        rough = finish(process).folder
    assert refused[0] > 5
    check_same_rows(rough, calm)
    check_files(rough, len(list((calm / "commits").iterdir())))
    record = json.loads((rough / "run.json").read_text())
    index = record["indexes"]["dense"]
    assert index["documents"] == 331
    assert index["index"].startswith(f"{index['named']}-")
    assert "documents" not in record["identity"]["indexes"]["dense"]
    whole = b"".join(path.read_bytes() for path in (tmp_path / "rough").rglob("*") if path.is_file())
    key = os.environ["ES_KEY"]
    for secret in (key.encode(), base64.b64decode(key).split(b":")[1], PASSWORD.encode()):
        assert secret not in whole

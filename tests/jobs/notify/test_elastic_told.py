"""An Elasticsearch and an S3 that are away for a while, told, and that they are back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.storage import copies
from jobs.__main__ import main
from tests.support.cluster.s3_proxy import Fault as S3Fault
from tests.support.cluster.s3_proxy import proxied
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.in_process_runs import job_in_process
from tests.support.jobs.webhook import Webhook
from tests.support.retrievers.proxy import Fault, Proxy, Request, fake_index

pytestmark = pytest.mark.slow


@pytest.fixture
def job(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    """The config of a small job, with outages of a third of a second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(copies.FOLDER, str(tmp_path / "cache"))
    monkeypatch.setattr("jobs.notify.notifications.LOOK_SECONDS", 0.05)
    monkeypatch.setattr("cluster.outages.SHORTEST", 0.1)
    told = {"webhook_env": "HOOK", "outage_minutes": 0.005}
    return job_in_process(tmp_path, values | {"notify": [told]}, bm25, config_file)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    with Webhook() as server:
        monkeypatch.setenv("HOOK", server.address)
        yield server


def test_elasticsearch(job: str, hook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = fake_index()

    def meddle(request: Request) -> Fault | None:
        away = request.kind == "_msearch" and "outage" not in hook.events
        return Fault("answer", status=503) if away else answer(request)

    with Proxy("http://127.0.0.1:9", meddle) as proxy:
        monkeypatch.setenv("BEHIND", proxy.url)
        retriever = {"kind": "elastic", "url_env": "BEHIND", "index": "docs", "field": "text", "patience_minutes": 5}
        assert main(["run", job, "--set", f"retrieve.retrievers.bm25={json.dumps(retriever)}"]) == 0
    outage, recovery, _ = hook.wait_for("outage", "recovery", "end")
    assert outage["outage"]["service"] == recovery["outage"]["service"]
    assert proxy.url.partition("://")[2] in outage["line"]
    assert "the job gives up after 5 min" in outage["line"]


def test_s3(job: str, hook: Webhook, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxied(s3) as (proxy, address):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
        proxy.faults = [S3Fault("slow_down", path="/runs/shard", times=8)]
        assert main(["run", job, "--set", f"output={s3.fresh('told')}"]) == 0
        assert len(proxy.did) == 8
    outage, recovery, *_, end = hook.wait_for("outage", "recovery")  # and perhaps once more
    assert end["event"] == "end"
    assert outage["outage"]["service"] == recovery["outage"]["service"] == f"S3 at {address.partition('://')[2]}"
    assert "the job gives up after 2 min" in outage["line"]
    assert end["folder"].startswith("s3://")

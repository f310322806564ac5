"""Limits of an index of Elasticsearch are checked before anything is paid for; an outage is waited for once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cluster import outages
from cluster.errors import DmqrError
from jobs.config.load import load_config
from jobs.job.prepare import prepare
from jobs.run.ablation import prepare_ablation
from retrievers.elastic import connection
from retrievers.retriever import SearchText, open_documents, open_retriever
from tests.support.cluster.clock import Clock
from tests.support.jobs.in_process_runs import job_in_process, prepared_job, run_in_process
from tests.support.jobs.whole_runs import ROOT
from tests.support.retrievers.blocks import typed
from tests.support.retrievers.proxy import Fault, Meddle, Proxy, Request, fake_index

BM25 = {"kind": "elastic", "index": "docs", "url_env": "PROXY_URL"}


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Meddle], Proxy]]:
    """Starts a server that answers as a function says."""
    monkeypatch.setattr(connection, "_OPENING_PATIENCE", 0.1)
    with ExitStack() as stack:

        def started(answer: Meddle) -> Proxy:
            proxy = stack.enter_context(Proxy("http://127.0.0.1:9", answer))
            monkeypatch.setenv("PROXY_URL", proxy.url)
            return proxy

        yield started


@pytest.fixture
def job(tmp_path: Path, values: dict[str, Any], config_file: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return job_in_process(tmp_path, values, BM25, config_file)


def refusal(path: str, *settings: str, prepared: Callable[..., object] = prepare) -> str:
    with pytest.raises(DmqrError) as refused:
        prepared(load_config(path, settings), path)
    return str(refused.value)


def test_an_index_that_gives_fewer_hits_than_are_asked_for_is_refused(serve: Any, job: str) -> None:
    proxy = serve(fake_index(max_result_window="50"))
    gives, remedy = "index docs gives at most 50 hits (index.max_result_window), and", "or raise the setting of the index"
    assert refusal(job) == f"retrieve.retrievers.bm25: {gives} retrieve.depth is 100; lower retrieve.depth, {remedy}"
    hybrid = {"both": {"kind": "hybrid", "of": {"a": BM25, "b": BM25 | {"query": {"fields": {"text": 9}}}}, "depth": 51}}
    key = "retrieve.retrievers.both.depth"
    line = refusal(job, f"retrieve.retrievers={json.dumps(hybrid)}", "retrieve.depth=500")
    assert line == f"retrieve.retrievers.both.of.a: {gives} {key} is 51; lower {key}, {remedy}"
    line = refusal(job, "retrieve.depth=50", "ablate.arms={deep: {retrieve.depth: 51}}", prepared=prepare_ablation)
    assert line.startswith(f"ablate: arm 'deep': retrieve.retrievers.bm25: {gives} retrieve.depth is 51; ")
    assert not proxy.seen["_msearch"]
    prepare(load_config(job, ["retrieve.depth=50"]), job)
    serve(fake_index())
    assert "gives at most 10,000 hits (" in refusal(job, "retrieve.depth=10001")


def test_no_search_and_no_look_up_asks_for_more_hits_than_the_index_gives(serve: Any) -> None:
    sizes, answer = [], fake_index(max_result_window="50")

    def noted(request: Request) -> Fault | None:
        sizes.extend(json.loads(item.split(b"\n")[1])["size"] for item in request.items)
        return answer(request)

    proxy = serve(noted)
    for depth in (40, 45, 50):
        open_retriever("bm25", typed(BM25)).search([SearchText("sea")], depth)
    assert sizes == [48, 50, 50]
    documents, before = open_documents("bm25", typed(BM25 | {"filter": {"match_all": {}}})), proxy.seen["_search"]
    assert documents.known([f"d{n}" for n in range(120)])
    assert proxy.seen["_search"] - before == 3


def test_a_filter_that_the_index_refuses_is_named(serve: Any, job: str) -> None:
    answer, error = fake_index(), {"error": {"type": "parsing_exception", "reason": "unknown query [trem]"}}
    proxy = serve(lambda one: Fault("answer", status=400, body=error) if one.kind == "_search" else answer(one))
    for key, settings in (("query", []), ("filter", ["retrieve.retrievers.bm25.filter={trem: {public: true}}"])):
        words = f"index docs: {proxy.url} refuses the {key}: parsing_exception: unknown query [trem]; correct {key}"
        assert refusal(job, *settings) == f"retrieve.retrievers.bm25: {words}"


def test_an_outage_is_waited_for_once(serve: Any, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, clock, away = fake_index(), Clock(), {"_msearch"}
    proxy = serve(lambda request: Fault(kind="reset") if request.kind in away else answer(request))
    prepared = prepared_job(job, "retrieve.retrievers.bm25.patience_minutes=1")
    monkeypatch.setattr(outages, "time", clock)
    monkeypatch.setattr(outages, "pause", clock.pause)
    began = clock.now
    with pytest.raises(DmqrError, match="no good answer from"):
        run_in_process(prepared)
    assert 60 < clock.now - began <= 60 + outages.LONGEST_PAUSE
    away.add("_search")
    before = proxy.seen["_search"]
    documents = open_documents("bm25", typed(BM25 | {"patience_minutes": 1e-9, "max_in_flight": 2}))
    with pytest.raises(DmqrError, match="no good answer from"):
        documents.texts([f"d{number}" for number in range(5000)])  # 10 requests
    assert proxy.seen["_search"] - before <= 4  # each of two threads asks once more


def test_the_documented_config_of_an_index_of_others_works(serve: Any, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "engines-and-indexes.md").read_text()
    (block,) = re.findall(r"```yaml\n(# existing.yaml.*?)```", page, re.DOTALL)
    Path("existing.yaml").write_text(block)
    Path("queries.csv").write_text("query\nwhy does bread rise\n")
    monkeypatch.setenv("ELASTICSEARCH_URL", serve(fake_index("articles", ("title", "body"))).url)
    assert prepare(load_config("existing.yaml"), "existing.yaml").facts["bm25"]["documents"] == 2

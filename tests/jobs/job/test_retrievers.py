"""From the config's words to retrievers: openings of workers, limits of Elasticsearch, indexes told apart."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster import outages
from cluster.errors import ConfigError, DmqrError
from cluster.run.pool_sizes import NodeGroup, Pool, size_pools
from jobs.chain.arms.resources import OpenedBy
from jobs.config.config import Config
from jobs.config.load import load_config
from jobs.config.settings import RetrieveSettings
from jobs.job import indexes
from jobs.job.corpora import searched_indexes
from jobs.job.indexes import check_documents, read_states
from jobs.job.pools import check_shares, requested_pools, shared_limits, sharing_workers
from jobs.job.prepare import prepare
from jobs.log.judgements import Judgements
from jobs.measure import missing_documents
from jobs.run.ablation import prepare_ablation
from retrievers.elastic import connection
from retrievers.elastic.settings import ElasticSettings
from retrievers.retriever import SearchText, open_documents, open_retriever
from retrievers.settings import OpenaiEncoderSettings
from tests.support.cluster.clock import Clock
from tests.support.jobs.in_process_runs import job_in_process, prepared_job, run_in_process
from tests.support.jobs.whole_runs import ROOT
from tests.support.retrievers.blocks import typed
from tests.support.retrievers.proxy import Fault, Meddle, Proxy, Request, fake_index

Values = dict[str, Any]


def test_every_worker_has_its_share_and_the_concrete_index() -> None:
    retriever = ElasticSettings(kind="elastic", index="docs", max_in_flight=9)
    settings = retriever.at({"index": "docs-0a1b"}).for_worker({None: 4})
    assert (settings.index, settings.max_in_flight) == ("docs-0a1b", 2)
    assert retriever.at({}).for_worker({}).max_in_flight == 9
    assert retriever.at({}).for_worker({None: 10}).max_in_flight == 1


def a_config(values: Values, **more: Any) -> Config:
    values["retrieve"]["retrievers"] = {"bm25": {"kind": "elastic", "index": "docs"} | more}
    return Config.model_validate(values)


LOCAL, ELASTIC = {"kind": "local", "index": "i"}, {"kind": "elastic", "index": "docs"}

RERANKED = {"kind": "cross_encoder"}


@pytest.mark.parametrize(
    ("retrievers", "more", "limits"),
    [
        ({"bm25": ELASTIC}, {"rerank": RERANKED}, {None: (8, ["retrieve", "rerank"])}),
        ({"bm25": ELASTIC}, {}, {None: (8, ["retrieve"])}),
        (
            {"bm25": LOCAL, "far": ELASTIC},
            {"rerank": RERANKED},
            {None: (8, ["retrieve"])},
        ),  # texts are of the first index
        ({"bm25": LOCAL}, {"rerank": RERANKED}, {}),
        ({"bm25": ELASTIC}, {"gate": "bm25"}, {None: (8, ["retrieve", "gate"])}),
        ({"bm25": LOCAL, "far": ELASTIC}, {"gate": "bm25"}, {None: (8, ["retrieve"])}),
    ],
)
def test_who_asks_elasticsearch(values: Values, retrievers: Values, more: Values, limits: dict[None, Any]) -> None:
    if "gate" in more:
        values["rewrite"]["gate"] = {"by": more["gate"], "below": 1}
    values |= {"retrieve": {"retrievers": retrievers}, "rerank": more.get("rerank", {"kind": "none"})}
    assert shared_limits(Config.model_validate(values)) == limits


def with_servers(values: Values, kind: str = "server", **more: Any) -> Config:
    """An encoder and a reranker at two servers; the encoder of a bi_encoder is the retriever's."""
    encoder = {"kind": "openai", "model": "e", "base_url": "http://encoder/v1", "max_in_flight": 6}
    values["retrieve"]["retrievers"] = {
        "bm25": {"kind": "local", "index": "i"}, "dense": {"kind": "local", "index": "i", "encoder": encoder},
    }  # fmt: skip
    reranker = {"kind": kind, "model": "r", "base_url": "http://reranker/v1", "max_in_flight": 4}
    return Config.model_validate(values | {"rerank": reranker} | more)


def test_workers_with_models_at_servers_share_their_requests_and_need_no_gpu(values: Values) -> None:
    config = with_servers(values, cluster={"retrieve": {"workers": 3}})
    pools = size_pools(requested_pools(config), [NodeGroup(49, 16, 0), NodeGroup(1, 16, 8)], local=False)
    assert pools["retrieve"] == Pool(3, 1, 0)
    assert pools["rerank"] == Pool(1, 1, 0)
    assert shared_limits(config) == {"http://encoder/v1": (6, ["retrieve"]), "http://reranker/v1": (4, ["rerank"])}
    workers = sharing_workers(pools, config)
    opened = config.retrieve.retrievers["dense"].for_worker(workers)
    assert isinstance(opened.encoder, OpenaiEncoderSettings)
    assert opened.encoder.max_in_flight == 2
    assert config.reranking.for_worker(workers).max_in_flight == 4
    with pytest.raises(ConfigError, match=r"5 workers cannot share 4 .* raise max_in_flight of the model at http://reranker"):
        check_shares(pools | {"rerank": Pool(5, 1, 0)}, config)


def test_an_encoder_that_retrieves_and_reranks_is_shared_by_both_pools(values: Values) -> None:
    config = with_servers(values, "bi_encoder")
    pools = size_pools(requested_pools(config), [NodeGroup(49, 16, 0), NodeGroup(1, 16, 8)], local=False)
    assert (pools["retrieve"].workers, pools["rerank"]) == (5, Pool(1, 1, 0))
    assert shared_limits(config) == {"http://encoder/v1": (6, ["retrieve", "rerank"])}
    check_shares(pools, config)


def test_more_workers_than_requests_are_refused_of_a_pool_that_grows_the_most(values: Values) -> None:
    values["cluster"] = {"rewrite": {"workers": {"min": 1, "max": 3}}, "retrieve": {"workers": {"max": 6}}}
    config = a_config(values, max_in_flight=8)
    pools = size_pools(requested_pools(config), [NodeGroup(50, 16, 0)], local=False)
    assert [(pool.workers, pool.most) for pool in pools.values()] == [(1, 3), (1, 6), (2, None)]
    check_shares(pools, config)
    with pytest.raises(ConfigError, match=r"9 workers cannot share 8 requests in flight \(retrieve 6, rerank 3\); take fewer"):
        check_shares(pools | {"rerank": Pool(3, 1, 0)}, config)


@pytest.mark.parametrize(("workers", "counts"), [((None, None), (4, 4)), ((6, None), (6, 2)), ((None, 1), (7, 1))])
def test_pools_that_are_sized_to_a_large_cluster_share_what_there_is(
    values: Values, workers: tuple[int | None, int | None], counts: tuple[int, int]
) -> None:
    values["cluster"] = {"retrieve": {"workers": workers[0]}, "rerank": {"workers": workers[1]}}
    config = a_config(values, max_in_flight=8)
    pools = size_pools(requested_pools(config), [NodeGroup(50, 16, 0)], local=False)
    assert (pools["retrieve"].workers, pools["rerank"].workers) == counts
    assert pools["rewrite"].workers == 50
    check_shares(pools, config)


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
    with pytest.raises(DmqrError, match="no valid answer from"):
        run_in_process(prepared)
    assert 60 < clock.now - began <= 60 + outages.LONGEST_PAUSE
    away.add("_search")
    before = proxy.seen["_search"]
    documents = open_documents("bm25", typed(BM25 | {"patience_minutes": 1e-9, "max_in_flight": 2}))
    with pytest.raises(DmqrError, match="no valid answer from"):
        documents.texts([f"d{number}" for number in range(5000)])  # 10 requests
    assert proxy.seen["_search"] - before <= 4  # each of two threads asks once more


def test_the_documented_config_of_an_index_of_others_works(serve: Any, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "engines-and-indexes.md").read_text()
    (block,) = re.findall(r"```yaml\n(# existing.yaml.*?)```", page, re.DOTALL)
    Path("existing.yaml").write_text(block)
    Path("queries.csv").write_text("query\nwhy does bread rise\n")
    monkeypatch.setenv("ELASTICSEARCH_URL", serve(fake_index("articles", ("title", "body"))).url)
    assert prepare(load_config("existing.yaml"), "existing.yaml").facts["bm25"]["documents"] == 2


PUBLIC = {"term": {"public": True}}

HERE = typed({"kind": "elastic", "index": "docs"})

THERE = typed({"kind": "elastic", "index": "docs", "url_env": "OTHER_URL"})

INDEX = {"kind": "elastic", "index": "docs-1", "corpus": "sha256:one"}

BOTH = {"here": HERE, "there": THERE}


def test_states_of_two_servers_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "retriever_facts", lambda name, settings, identity: {"state": {"documents": len(name)}})
    found = read_states(searched_indexes(BOTH, {"here": INDEX, "there": INDEX}))
    assert found == {"docs-1": {"documents": 4}, "docs-1 of OTHER_URL": {"documents": 5}}


@pytest.mark.parametrize("other", [(THERE, INDEX), (HERE, INDEX | {"filter": PUBLIC})])
def test_judged_documents_are_looked_up_in_each(other: tuple[Any, Mapping[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    class Store:
        entry = INDEX

        def __init__(self, name: str) -> None:
            self.name = name

        def known(self, doc_ids: list[str]) -> list[bool]:
            return [doc_id.startswith(self.name) for doc_id in doc_ids]

    monkeypatch.setattr(missing_documents, "open_documents", lambda name, settings, cached_only: Store(name))
    settings, index = other
    retrieve = RetrieveSettings(retrievers={"here": HERE, "there": settings})
    run: Any = SimpleNamespace(config=SimpleNamespace(retrieve=retrieve), record={"indexes": {"here": INDEX, "there": index}})
    assert missing_documents.unknown_documents(run, Judgements("", {"q": {"here-1": 1, "there-1": 1}}, "query")) is None
    found = missing_documents.unknown_documents(run, Judgements("", {"q": {"here-1": 1, "nowhere": 1}}, "query"))
    assert found is not None
    assert (found.unknown, "'nowhere'" in found.note) == (1, True)


def test_texts_that_are_read_with_a_filter_are_an_arms_own() -> None:
    whole, public = (OpenedBy("r", HERE, INDEX | more, 10) for more in ({}, {"filter": PUBLIC}))
    assert whole.texts != public.texts  # an arm without the filter finds documents that it leaves out
    assert whole.texts == OpenedBy("other", THERE, INDEX | {"index": "copy"}, 5).texts


def test_texts_behind_a_filter_that_another_retriever_passes_by_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reranker would meet a document that has no text, in the middle of the night."""
    monkeypatch.setattr(indexes, "open_documents", lambda *_: None)
    public = INDEX | {"filter": PUBLIC}
    config: Any = SimpleNamespace(retrieve=RetrieveSettings(retrievers=BOTH))
    check_documents(config, {"here": public, "there": public})
    check_documents(config, {"here": INDEX, "there": public})  # the first one has all
    with pytest.raises(ConfigError, match=r"retrievers\.here: texts are taken from it, .* put there first") as refused:
        check_documents(config, {"here": public, "there": INDEX})
    assert refused.value.code == "index-other"

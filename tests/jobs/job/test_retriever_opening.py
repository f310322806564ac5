"""From the config's words about a retriever to what workers open it with."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.errors import ConfigError
from cluster.run.pool_sizes import NodeGroup, Pool, size_pools
from jobs.config.config import Config
from jobs.job.pools import check_shares, requested_pools, shared_limits, sharing_workers
from retrievers.elastic.settings import ElasticSettings
from retrievers.settings import OpenaiEncoderSettings

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
        ),  # texts are of the first one's index
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
    workers = sharing_workers(config, pools)
    opened = config.retrieve.retrievers["dense"].for_worker(workers)
    assert isinstance(opened.encoder, OpenaiEncoderSettings)
    assert opened.encoder.max_in_flight == 2
    assert config.reranking.for_worker(workers).max_in_flight == 4
    with pytest.raises(ConfigError, match=r"5 workers cannot share 4 .* raise max_in_flight of the model at http://reranker"):
        check_shares(config, pools | {"rerank": Pool(5, 1, 0)})


def test_an_encoder_that_retrieves_and_reranks_is_shared_by_both_pools(values: Values) -> None:
    config = with_servers(values, "bi_encoder")
    pools = size_pools(requested_pools(config), [NodeGroup(49, 16, 0), NodeGroup(1, 16, 8)], local=False)
    assert (pools["retrieve"].workers, pools["rerank"]) == (5, Pool(1, 1, 0))
    assert shared_limits(config) == {"http://encoder/v1": (6, ["retrieve", "rerank"])}
    check_shares(config, pools)


def test_more_workers_than_requests_are_refused_of_a_pool_that_grows_the_most(values: Values) -> None:
    values["cluster"] = {"rewrite": {"workers": {"min": 1, "max": 3}}, "retrieve": {"workers": {"max": 6}}}
    config = a_config(values, max_in_flight=8)
    pools = size_pools(requested_pools(config), [NodeGroup(50, 16, 0)], local=False)
    assert [(pool.workers, pool.most) for pool in pools.values()] == [(1, 3), (1, 6), (2, None)]
    check_shares(config, pools)
    with pytest.raises(ConfigError, match=r"9 workers cannot share 8 requests in flight \(retrieve 6, rerank 3\); take fewer"):
        check_shares(config, pools | {"rerank": Pool(3, 1, 0)})


@pytest.mark.parametrize(("workers", "counts"), [((None, None), (4, 4)), ((6, None), (6, 2)), ((None, 1), (7, 1))])
def test_pools_that_are_sized_to_a_large_cluster_share_what_there_is(
    values: Values, workers: tuple[int | None, int | None], counts: tuple[int, int]
) -> None:
    values["cluster"] = {"retrieve": {"workers": workers[0]}, "rerank": {"workers": workers[1]}}
    config = a_config(values, max_in_flight=8)
    pools = size_pools(requested_pools(config), [NodeGroup(50, 16, 0)], local=False)
    assert (pools["retrieve"].workers, pools["rerank"].workers) == counts
    assert pools["rewrite"].workers == 50
    check_shares(config, pools)

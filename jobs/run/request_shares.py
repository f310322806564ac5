"""The settings with which workers open a retriever, and their shares of the job's requests in flight.

``max_in_flight`` limits the requests that the whole job sends to Elasticsearch at a time. All workers that search it share
this limit: those that retrieve, and those that rerank if the documents' texts are stored there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cluster.errors import ConfigError
from cluster.run.pools import AUTO, Pool, PoolRequest
from jobs.config.config import Config
from retrievers.elastic.settings import ElasticSettings
from retrievers.retriever import RetrieverSettings


def worker_settings(retriever: RetrieverSettings, index: Mapping[str, Any], workers: int) -> RetrieverSettings:
    """Returns a retriever's settings for one worker.

    An alias is resolved once per run: all workers, late ones included, search the same concrete index.

    Args:
        retriever: the config's settings.
        index: the identity of the index at planning; empty: not resolved yet.
        workers: number of workers that share the requests in flight.
    """
    if not isinstance(retriever, ElasticSettings):
        return retriever
    share = max(1, retriever.max_in_flight // workers)
    return retriever.model_copy(update={"index": index.get("index", retriever.index), "max_in_flight": share})


def searching_pools(config: Config) -> list[str]:
    """Returns the pools whose workers send requests to Elasticsearch; the first retriever's index has the texts to rerank."""
    elastic = [isinstance(retriever, ElasticSettings) for retriever in config.retrieve.retrievers.values()]
    return ["retrieve"] * any(elastic) + ["rerank"] * (elastic[0] and config.rerank.kind != "none")


def limit_workers(config: Config, pools: Mapping[str, PoolRequest]) -> dict[str, PoolRequest]:
    """Returns the requested pools, with automatically sized ones limited to one worker per request in flight."""
    names = searching_pools(config)
    unset = [name for name in names if pools[name].workers in (None, AUTO)]
    left = _max_in_flight(config) - sum(_max_workers(pools[name]) for name in names)
    return {**pools, **{name: replace(pools[name], max_workers=max(1, left // len(unset))) for name in unset}}


def check_shares(config: Config, pools: Mapping[str, Pool]) -> None:
    """Checks that every worker has a request in flight of its own.

    Raises:
        ConfigError: there are more workers than requests in flight.
    """
    names = searching_pools(config)
    most = {name: pools[name].max_workers for name in names}
    if (workers := sum(most.values())) > _max_in_flight(config):
        raise ConfigError(
            "cluster-small",
            f"cluster: {workers} workers cannot share {_max_in_flight(config)} requests in flight "
            f"({', '.join(f'{name} {n}' for name, n in most.items())}); "
            "take fewer workers, or raise max_in_flight of the retrievers",
        )


def _max_workers(request: PoolRequest) -> int:
    if isinstance(request.workers, tuple):
        return request.workers[1]
    return request.workers if isinstance(request.workers, int) else 0


def _max_in_flight(config: Config) -> int:
    """Returns the lowest limit of requests in flight among the Elasticsearch retrievers; 0 without any."""
    found = [one.max_in_flight for one in config.retrieve.retrievers.values() if isinstance(one, ElasticSettings)]
    return min(found, default=0)

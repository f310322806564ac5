"""The settings with which workers open a retriever or reranker, and their shares of the job's requests in flight.

``max_in_flight`` limits the requests that the whole job sends to Elasticsearch, or to the server of a model, at a time. All
workers that send to it share this limit: those that retrieve, and those that rerank if the documents' texts are stored in
Elasticsearch, or if the reranker or its encoder is at that server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from cluster.errors import ConfigError
from cluster.run.pools import AUTO, Pool, PoolRequest
from jobs.config.config import Config
from retrievers.elastic.settings import ElasticSettings
from retrievers.hybrid.settings import Indexed, all_indexed, indexed_identities, with_indexed
from retrievers.retriever import RetrieverSettings
from retrievers.settings import OpenaiEncoderSettings, RerankSettings, ServerSettings

Served = TypeVar("Served", bound=ServerSettings)
Workers = Mapping[str | None, int]
"""base_url -> the number of workers that share its requests in flight; None: those that share Elasticsearch's."""


class SharedLimit(NamedTuple):
    """The requests in flight of one server, and the pools whose workers share them."""

    max_in_flight: int
    pools: list[str]


def worker_settings(retriever: RetrieverSettings, index: Mapping[str, Any], workers: Workers) -> RetrieverSettings:
    """Returns a retriever's settings for one worker.

    An alias is resolved once per run: all workers, late ones included, search the same concrete index, with the alias's filter.

    Args:
        retriever: the config's settings.
        index: the identity of the index at planning; empty: not resolved yet.
        workers: number of workers that share the requests in flight.
    """
    of = indexed_identities({"": index})
    return with_indexed("", retriever, lambda key, one: indexed_settings(one, of.get(key, {}), workers))


def indexed_settings(retriever: Indexed, index: Mapping[str, Any], workers: Workers) -> Indexed:
    """Returns `worker_settings` of a retriever with an index of its own."""
    if isinstance(retriever.encoder, OpenaiEncoderSettings):
        retriever = retriever.model_copy(update={"encoder": shared(retriever.encoder, workers)})
    if not isinstance(retriever, ElasticSettings):
        return retriever
    share = max(1, retriever.max_in_flight // workers.get(None, 1))
    planned = {"index": index["index"], "filter": index.get("filter")} if "index" in index else {}
    return retriever.model_copy(update={"max_in_flight": share} | planned)


def reranker_settings(reranker: RerankSettings, workers: Workers) -> RerankSettings:
    """Returns a reranker's settings for one worker."""
    if isinstance(reranker.encoder, OpenaiEncoderSettings):
        reranker = reranker.model_copy(update={"encoder": shared(reranker.encoder, workers)})
    return shared(reranker, workers)


def shared(server: Served, workers: Workers) -> Served:
    """Returns the settings of a model at a server with one worker's share of the requests in flight."""
    return server.model_copy(update={"max_in_flight": max(1, server.max_in_flight // workers.get(server.base_url, 1))})


def rerankers_of(config: Config) -> list[RerankSettings]:
    """Returns the reranker of a run, if it has one."""
    return [config.reranking] if config.rerank.kind != "none" else []


def sharing_workers(
    config: Config, pools: Mapping[str, Pool], rerankers: Sequence[RerankSettings] | None = None
) -> dict[str | None, int]:
    """Returns the number of workers that share the requests in flight of each server.

    Args:
        config: of the job.
        pools: sized.
        rerankers: that each reranking worker has; None: the config's own.
    """
    limits = shared_limits(config, rerankers)
    return {server: sum(pools[name].max_workers for name in limit.pools) for server, limit in limits.items()}


def shared_limits(config: Config, rerankers: Sequence[RerankSettings] | None = None) -> dict[str | None, SharedLimit]:
    """Returns the limit of each server's requests in flight, the lowest that is set; of Elasticsearch under None."""
    found: dict[str | None, SharedLimit] = {}
    for server, pool, limit in _senders(config, rerankers_of(config) if rerankers is None else rerankers):
        most, pools = found.get(server, SharedLimit(limit, []))
        found[server] = SharedLimit(min(most, limit), pools if pool in pools else [*pools, pool])
    return found


def _senders(config: Config, rerankers: Sequence[RerankSettings]) -> Iterator[tuple[str | None, str, int]]:
    """Every server with a pool whose workers send to it, and the limit of its requests in flight."""
    retrievers = list(all_indexed(config.retrieve.retrievers).values())
    for one in retrievers:
        if isinstance(one, ElasticSettings):
            yield None, "retrieve", one.max_in_flight
        if isinstance(one.encoder, OpenaiEncoderSettings):
            yield one.encoder.base_url, "retrieve", one.encoder.max_in_flight
    if rerankers and isinstance(retrievers[0], ElasticSettings):  # its index has the texts to rerank
        yield None, "rerank", retrievers[0].max_in_flight
    for reranker in rerankers:
        if reranker.kind == "server":
            yield reranker.base_url, "rerank", reranker.max_in_flight
        elif isinstance(reranker.encoder, OpenaiEncoderSettings):
            yield reranker.encoder.base_url, "rerank", reranker.encoder.max_in_flight


def limit_workers(
    config: Config, pools: Mapping[str, PoolRequest], rerankers: Sequence[RerankSettings] | None = None
) -> dict[str, PoolRequest]:
    """Returns the requested pools, with automatically sized ones limited to one worker per request in flight."""
    limited = dict(pools)
    for limit in shared_limits(config, rerankers).values():
        unset = [name for name in limit.pools if pools[name].workers in (None, AUTO)]
        left = limit.max_in_flight - sum(_max_workers(pools[name]) for name in limit.pools)
        for name in unset:
            share = max(1, left // len(unset))
            limited[name] = replace(limited[name], max_workers=min(share, limited[name].max_workers or share))
    return limited


def check_shares(config: Config, pools: Mapping[str, Pool], rerankers: Sequence[RerankSettings] | None = None) -> None:
    """Checks that every worker has a request in flight of its own.

    Raises:
        ConfigError: there are more workers than requests in flight.
    """
    for server, limit in shared_limits(config, rerankers).items():
        most = {name: pools[name].max_workers for name in limit.pools}
        if (workers := sum(most.values())) > limit.max_in_flight:
            raise ConfigError(
                "cluster-small",
                f"cluster: {workers} workers cannot share {limit.max_in_flight} requests in flight "
                f"({', '.join(f'{name} {n}' for name, n in most.items())}); "
                f"take fewer workers, or raise max_in_flight of {f'the model at {server}' if server else 'the retrievers'}",
            )


def _max_workers(request: PoolRequest) -> int:
    if isinstance(request.workers, tuple):
        return request.workers[1]
    return request.workers if isinstance(request.workers, int) else 0

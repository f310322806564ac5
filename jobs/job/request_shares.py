"""Workers' shares of the job's requests in flight.

``max_in_flight`` limits the requests that the whole job sends to Elasticsearch, or to the server of a model, at a time. All
workers that send to it share this limit: those that retrieve, and those that rerank if the documents' texts are stored in
Elasticsearch, or if the reranker or its encoder is at that server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from cluster.errors import ConfigError
from cluster.run.pools import AUTO, Pool, PoolRequest
from jobs.config.config import Config
from retrievers.settings import RerankSettings, all_indexed

Workers = Mapping[str | None, int]
"""base_url -> the number of workers that share its requests in flight; None: those that share Elasticsearch's."""


class SharedLimit(NamedTuple):
    """The requests in flight of one server, and the pools whose workers share them."""

    max_in_flight: int
    pools: list[str]


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
    rerankers = rerankers_of(config) if rerankers is None else rerankers
    retrievers = list(config.retrieve.retrievers.values())
    sent = [("retrieve", one.server_limits()) for one in retrievers]
    if rerankers:  # the first index has the texts to rerank
        sent.append(("rerank", next(iter(all_indexed(config.retrieve.retrievers).values())).own_limits()))
    for pool, limits in sent + [("rerank", one.server_limits()) for one in rerankers]:
        for server, limit in limits:
            most, pools = found.get(server, SharedLimit(limit, []))
            found[server] = SharedLimit(min(most, limit), pools if pool in pools else [*pools, pool])
    return found


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

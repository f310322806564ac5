"""The worker pools that a job requests, the devices of their workers, and their shares of the job's requests in flight.

``max_in_flight`` limits the requests that the whole job sends to Elasticsearch, or to the server of a model, at a time. All
workers that send to it share this limit: those that retrieve, and those that rerank if the documents' texts are stored in
Elasticsearch, or if the reranker or its encoder is at that server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from cluster.errors import ConfigError
from cluster.run.pool_sizes import Pool, PoolRequest, in_process_pools, local_pools
from cluster.run.session import IN_PROCESS, usable_gpus
from cluster.settings import Settings
from jobs.config.config import Config
from jobs.job.devices import distinct, placed
from jobs.job.indexes import text_settings
from jobs.job.strategies import readable, searched_first
from retrievers.kinds import RetrieverSettings, all_indexed
from retrievers.models import resolved_dtype
from retrievers.rerankers.settings import RerankerSettings
from rewriters.calls import asked_engines
from rewriters.engines.settings import VLLM_MEMORY, EngineSettings
from rewriters.strategy import Strategy

Workers = Mapping[str | None, int]
"""base_url -> the number of workers that share its requests in flight; None: those that share Elasticsearch's."""


class SharedLimit(NamedTuple):
    """The requests in flight of one server, and the pools whose workers share them."""

    max_in_flight: int
    pools: list[str]


def rerankers_of(config: Config) -> list[RerankerSettings]:
    """Returns the reranker of a run, if it has one."""
    return [config.reranking] if config.rerank.kind != "none" else []


def sharing_workers(
    config: Config, pools: Mapping[str, Pool], rerankers: Sequence[RerankerSettings] | None = None
) -> dict[str | None, int]:
    """Returns the number of workers that share the requests in flight of each server; as `shared_limits`, by sized pools."""
    limits = shared_limits(config, rerankers)
    return {server: sum(pools[name].max_workers for name in limit.pools) for server, limit in limits.items()}


def shared_limits(config: Config, rerankers: Sequence[RerankerSettings] | None = None) -> dict[str | None, SharedLimit]:
    """Returns the limit of each server's requests in flight, the lowest that is set; of Elasticsearch under None."""
    found: dict[str | None, SharedLimit] = {}
    rerankers = rerankers_of(config) if rerankers is None else rerankers
    retrievers = list(config.retrieve.retrievers.values())
    sent = [("retrieve", one.server_limits()) for one in retrievers]
    texts = [one.own_limits() for one in text_settings(config)]
    if rerankers:
        sent += [("rerank", limits) for limits in texts]
    sent += [("rerank", one.server_limits()) for one in rerankers]
    if config.iterate is not None:  # its workers search and rerank, too
        sent += [("iterate", limits) for _, limits in sent]
    sent += [(step, limits) for step in config.asking if step not in ("iterate", "web") for limits in texts]
    if config.web is not None:
        sent.append(("web", config.web.search.own_limits()))
    sent += [("gate", one.server_limits()) for one in searched_first(config)]
    for pool, limits in sent:
        for server, limit in limits:
            most, pools = found.get(server, SharedLimit(limit, []))
            found[server] = SharedLimit(min(most, limit), pools if pool in pools else [*pools, pool])
    return found


def limit_workers(
    config: Config, pools: Mapping[str, PoolRequest], rerankers: Sequence[RerankerSettings] | None = None
) -> dict[str, PoolRequest]:
    """Returns the requested pools, with automatically sized ones limited to one worker per request in flight."""
    limited = dict(pools)
    for limit in shared_limits(config, rerankers).values():
        unset = [name for name in limit.pools if pools[name].workers is None]
        left = limit.max_in_flight - sum(_max_workers(pools[name]) for name in limit.pools)
        for name in unset:
            share = max(1, left // len(unset))
            limited[name] = replace(limited[name], max_workers=min(share, limited[name].max_workers or share))
    return limited


def check_shares(config: Config, pools: Mapping[str, Pool], rerankers: Sequence[RerankerSettings] | None = None) -> None:
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
                f"take fewer workers, or raise max_in_flight of {_what_is_at(config, server)}",
            )


def _what_is_at(config: Config, server: str | None) -> str:
    if server is None:
        return "the retrievers"
    asked = [name for name, one in config.retrieve.retrievers.items() if server in dict(one.own_limits())]
    return f"retrieve.retrievers.{asked[0]}" if asked else f"the model at {server}"


def _max_workers(request: PoolRequest) -> int:
    if isinstance(request.workers, tuple):
        return request.workers[1]
    return request.workers if isinstance(request.workers, int) else 0


Model = TypeVar("Model", bound=Settings)


def requested_pools(
    config: Config,
    rerankers: Sequence[RerankerSettings] | None = None,
    asking: Mapping[str, Sequence[EngineSettings]] | None = None,
    engines: Sequence[EngineSettings] | None = None,
    gating: Sequence[RetrieverSettings] | None = None,
) -> dict[str, PoolRequest]:
    """Returns the pools that the job requests, by key of the config's `cluster`.

    `rerankers`: those that each reranking worker has; `asking`: step -> the engines that each of its workers has; None: the
    config's own. `engines`: those that each rewriting worker opens; None: those of the config, as far as the files of its
    strategies can be read from here. `gating`: the retrievers that are searched before rewriting; None: the config's own.

    Raises:
        ConfigError: a worker has fewer GPUs than its engines need.
    """
    rerankers = rerankers_of(config) if rerankers is None else rerankers
    encodes = _encodes(config.retrieve.retrievers)
    pools = {"retrieve": config.cluster.retrieve.pool_request(can_use_gpu=encodes)}
    if config.rewrite.planned:
        opened = opened_engines(config) if engines is None else engines
        pools = {"rewrite": _asking("rewrite", config.cluster.rewrite.pool_request(), opened)} | pools
    if gating := searched_first(config) if gating is None else gating:
        request = config.cluster.gate.pool_request(can_use_gpu=_encodes({str(n): one for n, one in enumerate(gating)}))
        pools = {"gate": request if request.can_use_gpu else replace(request, workers=request.workers or 1)} | pools
    if rerankers:
        request = config.cluster.rerank.pool_request(can_use_gpu=any(one.loads for one in rerankers))
        pools["rerank"] = request if request.can_use_gpu else replace(request, workers=request.workers or 1)
    for step, of_step in (step_engines(config) if asking is None else asking).items():
        pools[step] = _asking(step, getattr(config.cluster, step).pool_request(), of_step)
    if "iterate" in pools and (encodes or any(one.loads for one in rerankers)):  # its workers have what these stages have
        pools["iterate"] = replace(pools["iterate"], can_use_gpu=True)
    return limit_workers(config, pools, rerankers)


def _encodes(retrievers: Mapping[str, RetrieverSettings]) -> bool:
    """Returns whether a worker with these retrievers loads an encoder."""
    return any(one.encoder and one.encoder.loaded for one in all_indexed(retrievers).values())


def device(pool: Pool | PoolRequest) -> str:
    """Returns the torch device of the pool's workers; Ray shows each worker its own accelerator as the first."""
    return "cuda:0" if pool.gpus else "cpu"


def with_precisions(config: Config, requested: Mapping[str, PoolRequest] | None = None) -> Config:
    """Returns the config with every `dtype: auto` resolved, since the precision changes results.

    On a remote cluster `cluster.<stage>.gpus` decides whether workers have GPUs; if it is null, float32 is taken.

    Args:
        config: of a run, or of an arm.
        requested: the pools of the job that does it: of an ablation those of all arms; None: those of the config.
    """
    requested = requested_pools(config) if requested is None else requested
    if config.cluster.joined is None:
        sized = in_process_pools if config.cluster.address == IN_PROCESS else local_pools
        devices = {name: device(pool) for name, pool in sized(requested, usable_gpus(requested)).items()}
    else:
        devices = {name: device(pool) for name, pool in requested.items()}

    def with_precision(_: str, one: RetrieverSettings) -> RetrieverSettings:
        return one.model_copy(update={"encoder": _resolved(one.encoder, devices["retrieve"])}) if one.encoder else one

    retrievers = {name: one.with_indexed(name, with_precision) for name, one in config.retrieve.retrievers.items()}
    rerank = config.rerank
    if rerank.kind == "cross_encoder":
        rerank = _resolved(rerank, devices["rerank"])
    elif rerank.encoder is not None and "rerank" in devices:
        rerank = rerank.model_copy(update={"encoder": _resolved(rerank.encoder, devices["rerank"])})
    retrieve = config.retrieve.model_copy(update={"retrievers": retrievers})
    return config.model_copy(update={"retrieve": retrieve, "rerank": rerank})


def _resolved(settings: Model, device: str) -> Model:
    """Returns the settings of a model with its precision on the device; a server's is its own."""
    dtype = getattr(settings, "dtype", None)
    return settings if dtype is None else settings.model_copy(update={"dtype": resolved_dtype(dtype, device)})


def step_engines(config: Config) -> dict[str, list[EngineSettings]]:
    """Returns stage -> the engines that its LLMs are, each once."""
    return {
        stage: list(distinct(engine for one in of if (engine := one.engine or config.rewrite.engine) is not None).values())
        for stage, of in config.asking.items()
    }


def opened_engines(config: Config, pool: Sequence[Strategy] | None = None) -> list[EngineSettings]:
    """Returns the engines that a rewriting worker opens, each once: the common one, if any request goes to it, comes first.

    `pool`: the strategies as they were read; None: those of the config whose files can be read from here. One that cannot may
    go to the common engine.
    """
    entries = config.rewrite.strategies if config.rewrite.planned else []
    read = [readable(entry) for entry in entries] if pool is None else list(pool)
    known = [one for one in read if one is not None]
    own = {one.name: one.engine for one in known}
    names = asked_engines(known, config.rewrite.select)
    if len(known) < len(read) and "" not in names:
        names = ["", *names]
    found = [config.rewrite.engine if not name else own[name] for name in names]
    return list(distinct(one for one in found if one is not None).values())


def _asking(pool: str, request: PoolRequest, engines: Sequence[EngineSettings]) -> PoolRequest:
    """Returns the pool of a stage that asks LLMs, whose workers open these engines.

    A vLLM engine runs on as many accelerators as its arguments set, and a worker has those of all its engines; for servers one
    worker is enough.

    Raises:
        ConfigError: a worker has fewer GPUs than one of its engines spans, or than all of them find memory on.
    """
    spanning = [one for one in distinct(engines).values() if one.gpus]
    if spanning:
        if request.gpus:  # 0: vLLM's build for CPUs
            _check_gpus(pool, spanning, request.gpus)
        gpus = float(sum(one.gpus for one in spanning)) if request.gpus is None else request.gpus
        return replace(request, gpus=gpus, can_use_gpu=True, takes_spare_gpus=True)
    if any(one.at_server for one in engines):
        return replace(request, workers=request.workers or 1)
    return request


def _check_gpus(pool: str, engines: Sequence[EngineSettings], gpus: float) -> None:
    largest = max(one.gpus for one in engines)
    if 1 < largest > gpus:
        raise ConfigError(
            "cluster-small",
            f"cluster.{pool}.gpus: a worker has {gpus:g}, but its engine spans {largest} (tensor_parallel_size x "
            f"pipeline_parallel_size of {pool}.engine.args, or of a strategy's engine); leave it out",
        )
    if placed(engines, gpus) is None:
        wanted = ", ".join(f"{one.shown} {one.memory:g} of {one.gpus}" for one in engines)
        raise ConfigError(
            "cluster-small",
            f"cluster.{pool}.gpus: a worker has {gpus:g}, whose memory cannot hold all its engines ({wanted}; "
            f"gpu_memory_utilization of their args, {VLLM_MEMORY:g} where it is not set); leave it out, which gives each its "
            "own, or lower gpu_memory_utilization",
        )

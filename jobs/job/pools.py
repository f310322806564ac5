"""The worker pools that a job requests, the devices of their workers, and their shares of the job's requests in flight.

``max_in_flight`` limits the requests that the whole job sends to Elasticsearch, or to the server of a model, at a time. All
workers that send to it share this limit: those that retrieve, and those that rerank if the documents' texts are stored in
Elasticsearch, or if the reranker or its encoder is at that server.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, TypeVar

from cluster.errors import ConfigError, RewriterError
from cluster.run.pool_sizes import Pool, PoolRequest, in_process_pools, local_pools
from cluster.run.session import IN_PROCESS, usable_gpus
from cluster.settings import Settings
from jobs.config.config import Config
from jobs.job.engine import distinct, placed
from jobs.job.indexes import text_settings
from retrievers.kinds import RetrieverSettings, all_indexed
from retrievers.models import resolved_dtype
from retrievers.rerankers.settings import RerankerSettings
from rewriters.calls import asked_engines
from rewriters.engines.settings import VLLM_MEMORY, EngineSettings
from rewriters.pool import load
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


def searched_first(config: Config) -> list[RetrieverSettings]:
    """Returns the retrievers that are searched before rewriting, by the gate.

    Where retrievers have other names than the config says, as in that of an ablation's pools, it may be any of them.
    """
    gate, retrievers = config.rewrite.gated, config.retrieve.retrievers
    if gate is None:
        return []
    return [retrievers[gate.by]] if gate.by in retrievers else list(retrievers.values())


def sharing_workers(
    config: Config, pools: Mapping[str, Pool], rerankers: Sequence[RerankerSettings] | None = None
) -> dict[str | None, int]:
    """Returns the number of workers that share the requests in flight of each server; as `shared_limits`, by sized pools."""
    limits = shared_limits(config, rerankers)
    return {server: sum(pools[name].max_workers for name in limit.pools) for server, limit in limits.items()}


def shared_limits(config: Config, rerankers: Sequence[RerankerSettings] | None = None) -> dict[str | None, SharedLimit]:
    """Returns the limit of each server's requests in flight, the lowest that is set; of Elasticsearch under None."""
    rerankers = rerankers_of(config) if rerankers is None else rerankers
    sent = [("retrieve", retriever.server_limits()) for retriever in config.retrieve.retrievers.values()]
    texts = [index.own_limits() for index in text_settings(config)]
    if rerankers:
        sent += [("rerank", limits) for limits in texts]
    sent += [("rerank", reranker.server_limits()) for reranker in rerankers]
    if config.iterate is not None:  # its workers search and rerank, too
        sent += [("iterate", limits) for _, limits in sent]
    sent += [(step, limits) for step in config.asking if step not in ("iterate", "web") for limits in texts]
    if config.web is not None:
        sent.append(("web", config.web.search.own_limits()))
    sent += [("gate", retriever.server_limits()) for retriever in searched_first(config)]
    shared: dict[str | None, SharedLimit] = {}
    for pool, limits in sent:
        for server, limit in limits:
            most, pools = shared.get(server, SharedLimit(limit, []))
            shared[server] = SharedLimit(min(most, limit), pools if pool in pools else [*pools, pool])
    return shared


def check_shares(config: Config, pools: Mapping[str, Pool], rerankers: Sequence[RerankerSettings] | None = None) -> None:
    """Checks that every worker has a request in flight of its own."""
    for server, limit in shared_limits(config, rerankers).items():
        most = {name: pools[name].max_workers for name in limit.pools}
        if (workers := sum(most.values())) <= limit.max_in_flight:
            continue
        asking = [name for name, one in config.retrieve.retrievers.items() if server in dict(one.own_limits())]
        asker = f"retrieve.retrievers.{asking[0]}" if asking else f"the model at {server}"
        raise ConfigError(
            "cluster-small",
            f"cluster: {workers} workers cannot share {limit.max_in_flight} requests in flight "
            f"({', '.join(f'{name} {n}' for name, n in most.items())}); "
            f"take fewer workers, or raise max_in_flight of {'the retrievers' if server is None else asker}",
        )


def requested_pools(
    config: Config,
    rerankers: Sequence[RerankerSettings] | None = None,
    asking: Mapping[str, Sequence[EngineSettings]] | None = None,
    engines: Sequence[EngineSettings] | None = None,
    gating: Sequence[RetrieverSettings] | None = None,
) -> dict[str, PoolRequest]:
    """Returns the pools that the job requests, by key of the config's `cluster`.

    Args:
        config: of a run, or that of an ablation's pools.
        rerankers: that each reranking worker has; None, also below: the config's own.
        asking: step -> the engines that each of its workers has.
        engines: that each rewriting worker opens; None: as far as the files of strategies can be read from here.
        gating: retrievers that are searched before rewriting.
    """
    rerankers = rerankers_of(config) if rerankers is None else rerankers
    encodes = _encodes(config.retrieve.retrievers)
    pools = {"retrieve": config.cluster.retrieve.pool_request(can_use_gpu=encodes)}
    if config.rewrite.planned:
        opened = opened_engines(config) if engines is None else engines
        pools = {"rewrite": _asking("rewrite", config.cluster.rewrite.pool_request(), opened)} | pools
    if gating := searched_first(config) if gating is None else gating:
        encoding = _encodes({str(number): retriever for number, retriever in enumerate(gating)})
        pools = {"gate": _one_without_gpu(config.cluster.gate.pool_request(can_use_gpu=encoding))} | pools
    loads = any(reranker.loads for reranker in rerankers)
    if rerankers:
        pools["rerank"] = _one_without_gpu(config.cluster.rerank.pool_request(can_use_gpu=loads))
    for step, opened in (step_engines(config) if asking is None else asking).items():
        pools[step] = _asking(step, getattr(config.cluster, step).pool_request(), opened)
    if "iterate" in pools and (encodes or loads):  # its workers have what these stages have
        pools["iterate"] = replace(pools["iterate"], can_use_gpu=True)
    for limit in shared_limits(config, rerankers).values():  # automatically sized pools: one worker per request in flight
        unset = [name for name in limit.pools if pools[name].workers is None]
        left = limit.max_in_flight - sum(_max_workers(pools[name]) for name in limit.pools)
        for name in unset:
            share = max(1, left // len(unset))
            pools[name] = replace(pools[name], max_workers=min(share, pools[name].max_workers or share))
    return pools


def _max_workers(request: PoolRequest) -> int:
    return request.workers[1] if isinstance(request.workers, tuple) else request.workers or 0


def _one_without_gpu(request: PoolRequest) -> PoolRequest:
    return request if request.can_use_gpu else replace(request, workers=request.workers or 1)


def _encodes(retrievers: Mapping[str, RetrieverSettings]) -> bool:
    return any(one.encoder and one.encoder.loaded for one in all_indexed(retrievers).values())


def device(pool: Pool | PoolRequest) -> str:
    """Returns the torch device of the pool's workers; Ray shows each worker its own accelerator as the first."""
    return "cuda:0" if pool.gpus else "cpu"


Model = TypeVar("Model", bound=Settings)


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

    def with_precision(_: str, retriever: RetrieverSettings) -> RetrieverSettings:
        return (
            retriever.model_copy(update={"encoder": _resolved(retriever.encoder, devices["retrieve"])})
            if retriever.encoder
            else retriever
        )

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
        stage: list(distinct(engine for one in steps if (engine := one.engine or config.rewrite.engine) is not None).values())
        for stage, steps in config.asking.items()
    }


def opened_engines(config: Config, pool: Sequence[Strategy] | None = None) -> list[EngineSettings]:
    """Returns the engines that a rewriting worker opens, each once: the common one, if any request goes to it, comes first.

    `pool`: the strategies as they were read; None: those of the config whose files can be read from here. One that cannot may
    go to the common engine.
    """
    entries = config.rewrite.strategies if config.rewrite.planned else []
    known = [] if pool is None else list(pool)
    for entry in entries if pool is None else ():
        with suppress(RewriterError):  # cannot be read from here
            known.append(load(entry, context=True))
    own = {strategy.name: strategy.engine for strategy in known}
    names = asked_engines(known, config.rewrite.select)
    if pool is None and len(known) < len(entries) and "" not in names:
        names = ["", *names]
    engines = [config.rewrite.engine if not name else own[name] for name in names]
    return list(distinct(engine for engine in engines if engine is not None).values())


def _asking(pool: str, request: PoolRequest, engines: Sequence[EngineSettings]) -> PoolRequest:
    """Returns the pool of a stage that asks LLMs, whose workers open these engines.

    A vLLM engine runs on as many accelerators as its arguments set, and a worker has those of all its engines; for servers one
    worker is enough.
    """
    spanning = [engine for engine in distinct(engines).values() if engine.gpus]
    if not spanning:
        at_server = any(engine.at_server for engine in engines)
        return replace(request, workers=request.workers or 1) if at_server else request
    gpus, largest = request.gpus, max(engine.gpus for engine in spanning)
    where = f"cluster.{pool}.gpus: a worker has {gpus or 0:g}"
    if gpus and 1 < largest > gpus:  # 0: vLLM's build for CPUs
        raise ConfigError(
            "cluster-small",
            f"{where}, but its engine spans {largest} (tensor_parallel_size x pipeline_parallel_size of {pool}.engine.args, or "
            "of a strategy's engine); leave it out",
        )
    if gpus and placed(spanning, gpus) is None:
        wanted = ", ".join(f"{engine.shown} {engine.memory:g} of {engine.gpus}" for engine in spanning)
        raise ConfigError(
            "cluster-small",
            f"{where}, whose memory cannot hold all its engines ({wanted}; gpu_memory_utilization of their args, "
            f"{VLLM_MEMORY:g} where it is not set); leave it out, which gives each its own, or lower gpu_memory_utilization",
        )
    gpus = float(sum(engine.gpus for engine in spanning)) if gpus is None else gpus
    return replace(request, gpus=gpus, can_use_gpu=True, takes_spare_gpus=True)

"""The worker pools that a job requests, the devices of their workers, and their shares of the job's requests in flight.

``max_in_flight`` limits the requests that the whole job sends to Elasticsearch, or to the server of a model, at a time. All
workers that send to it share this limit: those that retrieve, and those that rerank if the documents' texts are stored in
Elasticsearch, or if the reranker or its encoder is at that server.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from cluster.errors import ConfigError, RewriterError
from cluster.run.pool_sizes import Pool, PoolRequest, in_process_pools, local_pools
from cluster.run.session import IN_PROCESS, usable_gpus
from jobs.config.config import Config
from jobs.job.engine import distinct, placed
from jobs.job.paths import Model
from retrievers.kinds import RetrieverSettings, all_indexed
from retrievers.models import resolved_dtype
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


def searched_first(config: Config) -> list[RetrieverSettings]:
    """Returns the retrievers that are searched before rewriting, by the gate."""
    gate = config.rewrite.gated
    return [] if gate is None else [config.retrieve.retrievers[gate.by]]


def sharing_workers(pools: Mapping[str, Pool], *configs: Config) -> dict[str | None, int]:
    """Returns the number of workers that share the requests in flight of each server; as `shared_limits`, by sized pools."""
    limits = shared_limits(*configs)
    return {server: sum(pools[name].max_workers for name in limit.pools) for server, limit in limits.items()}


def shared_limits(*configs: Config) -> dict[str | None, SharedLimit]:
    """Returns the limit of each server's requests in flight, the lowest that is set; of Elasticsearch under None."""
    shared: dict[str | None, SharedLimit] = {}
    for pool, limits in (one for config in configs for one in _limits(config)):
        for server, limit in limits:
            most, pools = shared.get(server, SharedLimit(limit, []))
            shared[server] = SharedLimit(min(most, limit), pools if pool in pools else [*pools, pool])
    return shared


def _limits(config: Config) -> list[tuple[str, Iterable[tuple[str | None, int]]]]:
    sent = [("retrieve", retriever.server_limits()) for retriever in config.retrieve.retrievers.values()]
    name = config.retrieve.text_retriever
    settings = config.retrieve.retrievers[name]
    first = {settings.member(key): index for key, index in reversed(settings.indexed(name).items())}  # they have the texts
    texts = [index.own_limits() for index in first.values()]
    if config.rerank.kind != "none":
        sent += [("rerank", limits) for limits in (*texts, config.reranking.server_limits())]
    if config.iterate is not None:  # its workers search and rerank, too
        sent += [("iterate", limits) for _, limits in sent]
    sent += [(step, limits) for step in config.asking if step not in ("iterate", "web") for limits in texts]
    if config.web is not None:
        sent.append(("web", config.web.search.own_limits()))
    return [*sent, *(("gate", retriever.server_limits()) for retriever in searched_first(config))]


def check_shares(pools: Mapping[str, Pool], *configs: Config) -> None:
    """Checks that every worker has a request in flight of its own."""
    retrievers = [pair for config in configs for pair in config.retrieve.retrievers.items()]
    for server, limit in shared_limits(*configs).items():
        most = {name: pools[name].max_workers for name in limit.pools}
        if (workers := sum(most.values())) <= limit.max_in_flight:
            continue
        asking = [name for name, one in retrievers if server in dict(one.own_limits())]
        asker = f"retrieve.retrievers.{asking[0]}" if asking else f"the model at {server}"
        raise ConfigError(
            "cluster-small",
            f"cluster: {workers} workers cannot share {limit.max_in_flight} requests in flight "
            f"({', '.join(f'{name} {n}' for name, n in most.items())}); "
            f"take fewer workers, or raise max_in_flight of {'the retrievers' if server is None else asker}",
        )


def requested_pools(*configs: Config, engines: Sequence[Sequence[EngineSettings]] | None = None) -> dict[str, PoolRequest]:
    """Returns the pools that a job requests, by key of the config's `cluster`, and one for each further common engine.

    Args:
        configs: of a run, or of the arms of an ablation: a worker has what any of them needs.
        engines: of each common engine, those that its workers open; None: as far as the files of strategies can be read here.
    """
    cluster, rerankers = configs[0].cluster, [config.reranking for config in configs if config.rerank.kind != "none"]
    encodes = any(_loads_encoder(retriever) for config in configs for retriever in config.retrieve.retrievers.values())
    loads = any(reranker.loads for reranker in rerankers)
    pools = {"retrieve": cluster.retrieve.pool_request(can_use_gpu=encodes)}
    opened = [_asking("rewrite", cluster.rewrite.pool_request(), of) for of in _common_engines(configs, engines)]
    if opened:
        pools = {"rewrite": opened[0]} | pools
    if gating := [retriever for config in configs for retriever in searched_first(config)]:
        encoding = any(map(_loads_encoder, gating))
        pools = {"gate": _one_without_gpu(cluster.gate.pool_request(can_use_gpu=encoding))} | pools
    if rerankers:
        pools["rerank"] = _one_without_gpu(cluster.rerank.pool_request(can_use_gpu=loads))
    of_steps = [step_engines(config) for config in configs]
    for step in (name for name in ("iterate", "grade", "web", "answer", "judge") if any(name in of for of in of_steps)):
        asked = [engine for of in of_steps for engine in of.get(step, ())]
        pools[step] = _asking(step, getattr(cluster, step).pool_request(), asked)
    if "iterate" in pools and (encodes or loads):  # its workers have what these stages have
        pools["iterate"] = replace(pools["iterate"], can_use_gpu=True)
    for limit in shared_limits(*configs).values():  # automatically sized pools: one worker per request in flight
        unset = [name for name in limit.pools if pools[name].workers is None]
        left = limit.max_in_flight - sum(pools[name].most or pools[name].workers or 0 for name in limit.pools)
        for name in unset:
            share = max(1, left // len(unset))
            pools[name] = replace(pools[name], max_workers=min(share, pools[name].max_workers or share))
    return pools | {rewriting_pool(number): request for number, request in enumerate(opened[1:], start=2)}


def rewriting_pool(number: int) -> str:
    """Returns the name of the pool, and of the stage, of a common engine, counted from 1."""
    return "rewrite" if number == 1 else f"rewrite_{number}"


def _common_engines(
    configs: Sequence[Config], engines: Sequence[Sequence[EngineSettings]] | None
) -> Sequence[Sequence[EngineSettings]]:
    """Returns for each common engine of the configs those that its workers open, by default as the configs name them."""
    planned = [config for config in configs if config.rewrite.planned]
    if engines is not None:
        return (engines or [()]) if planned else []
    opened: dict[str, list[EngineSettings]] = {}
    for config in planned:
        common = config.rewrite.engine
        opened.setdefault("" if common is None else common.model_dump_json(), []).extend(opened_engines(config))
    return list(opened.values())


def _one_without_gpu(request: PoolRequest) -> PoolRequest:
    return request if request.can_use_gpu else replace(request, workers=request.workers or 1)


def _loads_encoder(retriever: RetrieverSettings) -> bool:
    return any(one.encoder and one.encoder.loaded for one in all_indexed({"": retriever}).values())


def device(pool: Pool | PoolRequest) -> str:
    """Returns the torch device of the pool's workers; Ray shows each worker its own accelerator as the first."""
    return "cuda:0" if pool.gpus else "cpu"


def with_precisions(config: Config, requested: Mapping[str, PoolRequest]) -> Config:
    """Returns the config with every `dtype: auto` resolved, since the precision changes results.

    On a remote cluster `cluster.<stage>.gpus` decides whether workers have GPUs; if it is null, float32 is taken.

    `requested` are the pools of the job that does it: of an ablation those of all arms.
    """
    pools: Mapping[str, Pool | PoolRequest] = requested
    if config.cluster.joined is None:
        sized = in_process_pools if config.cluster.address == IN_PROCESS else local_pools
        pools = sized(requested, usable_gpus(requested))
    devices = {name: device(pool) for name, pool in pools.items()}

    def with_precision(_: str, retriever: RetrieverSettings) -> RetrieverSettings:
        if retriever.encoder is None:
            return retriever
        return retriever.model_copy(update={"encoder": _resolved(retriever.encoder, devices["retrieve"])})

    retrievers = {name: one.with_indexed(name, with_precision) for name, one in config.retrieve.retrievers.items()}
    rerank = config.rerank
    if rerank.kind == "cross_encoder":
        rerank = _resolved(rerank, devices["rerank"])
    elif (encoder := getattr(rerank, "encoder", None)) is not None and "rerank" in devices:
        rerank = rerank.model_copy(update={"encoder": _resolved(encoder, devices["rerank"])})
    retrieve = config.retrieve.model_copy(update={"retrievers": retrievers})
    return config.model_copy(update={"retrieve": retrieve, "rerank": rerank})


def _resolved(settings: Model, device: str) -> Model:
    """Returns the settings of a model with its precision on the device; a server's is its own."""
    dtype = getattr(settings, "dtype", None)
    return settings if dtype is None else settings.model_copy(update={"dtype": resolved_dtype(dtype, device)})


def step_engines(config: Config) -> dict[str, list[EngineSettings]]:
    """Returns stage -> the engines that its LLMs are, each once."""
    return {
        stage: distinct(engine for one in steps if (engine := one.engine or config.rewrite.engine) is not None)
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
    return distinct(engine for engine in engines if engine is not None)


def _asking(pool: str, request: PoolRequest, engines: Sequence[EngineSettings]) -> PoolRequest:
    """Returns the pool of a stage that asks LLMs, whose workers open these engines.

    A vLLM engine runs on as many accelerators as its arguments set, and a worker has those of all its engines; for servers one
    worker is enough.
    """
    spanning = [engine for engine in distinct(engines) if engine.gpus]
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

"""A Ray to run on: our own on this machine, or one that is there; and pools that fit it.

Ray Data waits silently for ever when pools want more than the cluster has (ray#44687), so the pools are added up before
any worker starts, and a plan that does not fit is refused with what it wants and what is there.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cluster import ClusterError

# Ray Data's own tasks, beside the pools: they carry blocks from worker to worker and mostly wait.
CARRIERS = 2
_MOST_LOCAL_GPUS = 16
WORKER_ENVIRONMENT = {
    "OMP_WAIT_POLICY": "PASSIVE",  # stages share cores: a waiting OpenMP thread must not spin
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
}


class Pool(NamedTuple):
    """Workers of one stage, each with `cpus` and `gpus`."""

    workers: int
    cpus: float
    gpus: float


@dataclass(frozen=True)
class PoolWish:
    """What the config says of a pool; None: sized to what is there. `device`: can the worker use an accelerator? `fills`: it
    has as many workers as the accelerators hold that the other pools leave. `most`: workers, where they are not said."""

    workers: int | None = None
    cpus: float | None = None
    gpus: float | None = None
    device: bool = False
    fills: bool = False
    most: int | None = None


class Resources(NamedTuple):
    """What the cluster has."""

    nodes: int
    cpus: float
    gpus: float
    largest_node_cpus: float
    largest_node_gpus: float


class Session:
    """A connection to Ray; `close` stops a Ray that we started, and only that.

    Args:
        address: local, auto, or an address.
        wishes: the pools that are wanted, in the order of the stages.
        modules: folders of the packages that workers import; a Ray that is not ours gets a copy of them.
    """

    def __init__(self, address: str, wishes: Mapping[str, PoolWish], modules: Sequence[str] = ()) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere but to the engines named
        os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
        import ray

        self.local = address == "local"
        quiet = {"log_to_driver": False, "logging_level": logging.WARNING, "configure_logging": True}
        environment: dict[str, Any] = {"env_vars": WORKER_ENVIRONMENT}
        try:
            if self.local:
                ray.init(
                    "local",
                    num_cpus=_logical_cpus(wishes) + CARRIERS,
                    include_dashboard=False,
                    runtime_env=environment,
                    **quiet,
                )
            else:
                ray.init(address, runtime_env=environment | {"py_modules": list(modules)}, **quiet)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            why = "" if isinstance(error, ConnectionError) else f" ({str(error).splitlines()[0]})"
            raise ClusterError(
                f"cluster.address: no Ray answers at {address!r}{why}; start one (ray start --head), set RAY_ADDRESS, "
                "or use cluster.address: local"
            ) from error
        self.resources = _resources(ray.nodes())
        try:
            self.pools = fit(wishes, self.resources, self.local)
        except ClusterError:
            self.close()
            raise

    def close(self) -> None:
        """Disconnect; stop Ray if it is ours."""
        import ray

        ray.shutdown()


def local_pools(wishes: Mapping[str, PoolWish], gpus: float) -> dict[str, Pool]:
    """Pools for one machine: one worker a stage, with the machine's cores for those that compute."""
    cores = os.cpu_count() or 1
    return _size(wishes, workers=1, compute_cpus=cores, gpus=gpus)


def _logical_cpus(wishes: Mapping[str, PoolWish]) -> int:
    """As many as the pools could want on this machine: which accelerators it has is for Ray to find out."""
    guesses = (0, _MOST_LOCAL_GPUS) if any(wish.fills for wish in wishes.values()) else (0,)
    return max(math.ceil(sum(p.workers * p.cpus for p in local_pools(wishes, gpus).values())) for gpus in guesses)


def fit(wishes: Mapping[str, PoolWish], there: Resources, local: bool) -> dict[str, Pool]:
    """The pools, sized to what is there; ClusterError if what the config wants is not."""
    if local:
        pools = local_pools(wishes, there.gpus)
    else:
        share = max(1, (there.largest_node_cpus - CARRIERS - 1) // 2)
        pools = _size(wishes, workers=max(1, there.nodes), compute_cpus=share, gpus=there.gpus)
    wanted_cpus = sum(pool.workers * pool.cpus for pool in pools.values()) + CARRIERS
    wanted_gpus = sum(pool.workers * pool.gpus for pool in pools.values())
    most_gpus = max((pool.gpus for pool in pools.values()), default=0)
    most_cpus = max((pool.cpus for pool in pools.values()), default=0)
    described = "; ".join(f"{name} {p.workers} x ({p.cpus:g} CPU, {p.gpus:g} GPU)" for name, p in pools.items())
    for what, wanted, found in (("GPUs", wanted_gpus, there.gpus), ("CPUs", wanted_cpus, there.cpus)):
        if wanted > found:
            raise ClusterError(
                f"cluster: the pools want {wanted:g} {what}, the cluster has {found:g} ({described}); "
                f"lower cluster.<stage>.workers or .{what[:-1].lower()}s, or add nodes"
            )
    for name, pool in pools.items():
        places = there.nodes * min(
            int(found // each) if each else pool.workers
            for each, found in ((pool.cpus, there.largest_node_cpus), (pool.gpus, there.largest_node_gpus))
        )
        if 0 < places < pool.workers:
            raise ClusterError(
                f"cluster: {pool.workers} workers of {name}, each {pool.cpus:g} CPU and {pool.gpus:g} GPU, do not fit: "
                f"{there.nodes} nodes of at most {there.largest_node_cpus:g} CPUs and {there.largest_node_gpus:g} GPUs hold "
                f"{places}; lower cluster.{name}.workers or what each wants"
            )
    if most_gpus > there.largest_node_gpus or most_cpus > there.largest_node_cpus:
        raise ClusterError(f"cluster: no node can hold one of the workers ({described}); the largest has "
                           f"{there.largest_node_cpus:g} CPUs and {there.largest_node_gpus:g} GPUs; "
                           "lower what each wants")  # fmt: skip
    return pools


def _size(wishes: Mapping[str, PoolWish], workers: int, compute_cpus: float, gpus: float) -> dict[str, Pool]:
    """Fill in what the config leaves open. Accelerators go to the pools that name them; what is left to the last stages
    first (reranking needs them most), one each; and what is left then to the pool that takes all."""
    counts = {name: wish.workers or (1 if wish.fills else min(workers, wish.most or workers)) for name, wish in wishes.items()}
    left = gpus - sum(counts[name] * (wish.gpus or 0) for name, wish in wishes.items())
    pools: dict[str, Pool] = {}
    for name, wish in reversed(list(wishes.items())):
        count, devices = counts[name], wish.gpus
        if devices is None:
            devices = 1.0 if wish.device and left >= count else 0.0
            left -= count * devices
        cpus = wish.cpus
        if cpus is None:
            cpus = compute_cpus if wish.device and not devices else 1
        pools[name] = Pool(count, cpus, devices)
    for name, wish in wishes.items():
        if wish.fills and wish.workers is None and pools[name].gpus:
            more = max(0, int(left // pools[name].gpus))
            left -= more * pools[name].gpus
            pools[name] = pools[name]._replace(workers=pools[name].workers + more)
    return {name: pools[name] for name in wishes}


def _resources(nodes: list[dict[str, object]]) -> Resources:
    alive: list[dict[str, float]] = [dict(node["Resources"]) for node in nodes if node["Alive"]]  # type: ignore[call-overload]
    cpus, gpus = ([node.get(kind, 0.0) for node in alive] for kind in ("CPU", "GPU"))
    return Resources(len(alive), sum(cpus), sum(gpus), max(cpus, default=0), max(gpus, default=0))

"""Worker pools: the stages' requests, and their sizes for a cluster's resources.

Ray Data waits for ever, without a message, if the pools request more than the cluster has (ray-project/ray issue 44687).
So the requests are summed before any worker starts, and too large ones are refused. Nodes that an autoscaler may add count.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cluster.errors import ClusterError

TASK_CPUS = 2  # CPUs of the stages without a pool, in addition to the pools'


class Pool(NamedTuple):
    """Workers of one stage, each with `cpus` and `gpus`. With `most` the pool grows under load from `workers` to `most`."""

    workers: int
    cpus: float
    gpus: float
    most: int | None = None

    @property
    def max_workers(self) -> int:
        """Returns the most workers that the pool may have."""
        return self.most or self.workers


@dataclass(frozen=True)
class PoolRequest:
    """A pool as the config requests it; None: sized to the cluster.

    Attributes:
        workers: Their number, or (minimum, maximum) of a pool that grows.
        cpus: Of each worker.
        gpus: Of each worker.
        can_use_gpu: Whether a worker can use a GPU.
        takes_spare_gpus: Whether the pool has workers on all GPUs that no other pool takes.
        max_workers: Upper bound if `workers` is None.
    """

    workers: int | tuple[int, int] | None = None
    cpus: float | None = None
    gpus: float | None = None
    can_use_gpu: bool = False
    takes_spare_gpus: bool = False
    max_workers: int | None = None


class Resources(NamedTuple):
    """Resources of a cluster: the current ones, or the most that it may scale to."""

    nodes: int
    cpus: float
    gpus: float
    largest_node_cpus: float
    largest_node_gpus: float


class NodeGroup(NamedTuple):
    """Nodes of one kind that an autoscaler may add: at most `nodes`, each with `cpus` and `gpus`."""

    nodes: int
    cpus: float
    gpus: float


def local_pools(requests: Mapping[str, PoolRequest], gpus: float) -> dict[str, Pool]:
    """Returns pools for one machine: one worker per stage; one that computes without a GPU has all cores."""
    cores = os.cpu_count() or 1
    return _size(requests, workers=1, compute_cpus=cores, gpus=gpus)


def in_process_pools(requests: Mapping[str, PoolRequest], gpus: float) -> dict[str, Pool]:
    """Returns pools of one worker each, used one after the other: each may have all GPUs and cores of the machine."""
    pools = {name: local_pools({name: request}, gpus)[name] for name, request in requests.items()}
    return {name: pool._replace(workers=1, most=None) for name, pool in pools.items()}


def size_pools(
    requests: Mapping[str, PoolRequest], available: Resources, local: bool, maximum: Resources | None = None
) -> dict[str, Pool]:
    """Returns the pools, sized to the cluster.

    Args:
        requests: Stage -> requested pool.
        available: The cluster's resources.
        local: Whether Ray was started on this machine by the session.
        maximum: Resources that the cluster may scale to; None: it does not scale.

    Raises:
        ClusterError: The pools request more than the cluster has and may scale to.
    """
    if local:
        pools = local_pools(requests, available.gpus)
    else:
        share = max(1, (available.largest_node_cpus - TASK_CPUS - 1) // 2)
        pools = _size(requests, workers=max(1, available.nodes), compute_cpus=share, gpus=available.gpus)
    limit = maximum or available
    has = "has" if maximum is None or maximum == available else "may scale to"
    wanted_cpus = sum(pool.workers * pool.cpus for pool in pools.values()) + TASK_CPUS
    wanted_gpus = sum(pool.workers * pool.gpus for pool in pools.values())
    most_gpus = max((pool.gpus for pool in pools.values()), default=0)
    most_cpus = max((pool.cpus for pool in pools.values()), default=0)
    described = "; ".join(f"{name} {p.workers} x ({p.cpus:g} CPU, {p.gpus:g} GPU)" for name, p in pools.items())
    for what, wanted, number in (("GPUs", wanted_gpus, limit.gpus), ("CPUs", wanted_cpus, limit.cpus)):
        if wanted > number:
            raise ClusterError(
                "cluster-small",
                f"cluster: the pools want {wanted:g} {what}, the cluster {has} {number:g} ({described}); "
                f"lower cluster.<stage>.workers or .{what[:-1].lower()}s, or add nodes",
            )
    for name, pool in pools.items():
        places = limit.nodes * min(
            int(size // each) if each else pool.workers
            for each, size in ((pool.cpus, limit.largest_node_cpus), (pool.gpus, limit.largest_node_gpus))
        )
        if 0 < places < pool.workers:
            raise ClusterError(
                "cluster-small",
                f"cluster: {pool.workers} workers of {name}, each {pool.cpus:g} CPU and {pool.gpus:g} GPU, do not fit: "
                f"{limit.nodes:g} nodes of at most {limit.largest_node_cpus:g} CPUs and {limit.largest_node_gpus:g} GPUs hold "
                f"{places}; lower cluster.{name}.workers, .cpus or .gpus",
            )
    if most_gpus > limit.largest_node_gpus or most_cpus > limit.largest_node_cpus:
        raise ClusterError("cluster-small", f"cluster: no node can hold one of the workers ({described}); the largest has "
                           f"{limit.largest_node_cpus:g} CPUs and {limit.largest_node_gpus:g} GPUs; "
                           "lower cluster.<stage>.cpus or .gpus")  # fmt: skip
    return pools


def _size(requests: Mapping[str, PoolRequest], workers: int, compute_cpus: float, gpus: float) -> dict[str, Pool]:
    """Returns the pools, with defaults for what the requests leave open.

    GPUs go to the pools that request a number; then, one per worker, to those that can use them, the last stage first
    (reranking gains most); and the rest to the pool that takes spare GPUs.
    """
    least = {name: one.workers[0] if isinstance(one.workers, tuple) else one.workers for name, one in requests.items()}
    most = {name: one.workers[1] if isinstance(one.workers, tuple) else None for name, one in requests.items()}
    counts = {
        name: least[name] or (1 if request.takes_spare_gpus else min(workers, request.max_workers or workers))
        for name, request in requests.items()
    }
    left = gpus - sum(counts[name] * (request.gpus or 0) for name, request in requests.items())
    pools: dict[str, Pool] = {}
    for name, request in reversed(list(requests.items())):
        count, devices = counts[name], request.gpus
        if devices is None:
            devices = 1.0 if request.can_use_gpu and left >= count else 0.0
            left -= count * devices
        cpus = request.cpus
        if cpus is None:
            cpus = compute_cpus if request.can_use_gpu and not devices else 1
        pools[name] = Pool(count, cpus, devices, most[name])
    for name, request in requests.items():
        if request.takes_spare_gpus and request.workers is None and pools[name].gpus:
            more = max(0, int(left // pools[name].gpus))
            left -= more * pools[name].gpus
            pools[name] = pools[name]._replace(workers=pools[name].workers + more)
    return {name: pools[name] for name in requests}


def scaled_resources(available: Resources, groups: Sequence[NodeGroup]) -> Resources | None:
    """Returns the resources that a cluster may scale to; None if it does not scale.

    Args:
        available: Its current resources.
        groups: Nodes that its autoscaler may add.
    """
    groups = [group for group in groups if group.nodes]
    if not groups:
        return None
    return Resources(
        max(available.nodes, sum(group.nodes for group in groups)),
        max(available.cpus, sum(group.nodes * group.cpus for group in groups)),
        max(available.gpus, sum(group.nodes * group.gpus for group in groups)),
        max(available.largest_node_cpus, *(group.cpus for group in groups)),
        max(available.largest_node_gpus, *(group.gpus for group in groups)),
    )

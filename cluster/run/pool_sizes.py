"""Worker pools: the stages' requests, and their sizes for a cluster's resources.

Ray Data waits for ever, without a message, if the pools request more than the cluster has (ray-project/ray issue 44687).
So the requests are placed on the nodes before any worker starts, and what cannot be placed is refused. Nodes that an
autoscaler may add count.
"""

from __future__ import annotations

import bisect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from cluster.errors import ClusterError
from cluster.placement import Demand, NodeGroup, can_hold, reachable

TASK_CPUS = 2  # CPUs of the stages without a pool, in addition to the pools'
AUTO: Literal["auto"] = "auto"
_NUMBERED = re.compile(r"_\d+$")  # an ablation has a pool per engine: rewrite, rewrite_2
_MOST_WORKERS = 4096  # of all pools with `auto`, where neither the nodes nor the work set a limit


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
        workers: Their number, (minimum, maximum) of a pool that grows, or AUTO: as many as its stage's work calls for.
        cpus: Of each worker.
        gpus: Of each worker.
        can_use_gpu: Whether a worker can use a GPU.
        takes_spare_gpus: Whether the pool has workers on all GPUs that no other pool takes.
        max_workers: Upper bound if `workers` is None or AUTO.
        seconds: Work of one worker per query, in seconds, by which pools with AUTO are sized; None: unknown, so they have one
            worker each.
    """

    workers: int | tuple[int, int] | Literal["auto"] | None = None
    cpus: float | None = None
    gpus: float | None = None
    can_use_gpu: bool = False
    takes_spare_gpus: bool = False
    max_workers: int | None = None
    seconds: float | None = None


class Resources(NamedTuple):
    """Resources of a cluster in sum, and the largest CPUs and GPUs of a node."""

    nodes: int
    cpus: float
    gpus: float
    largest_node_cpus: float
    largest_node_gpus: float


def resources(nodes: Sequence[NodeGroup]) -> Resources:
    """Returns the resources of nodes."""
    return Resources(
        sum(group.nodes for group in nodes),
        sum(group.nodes * group.cpus for group in nodes),
        sum(group.nodes * group.gpus for group in nodes),
        max((group.cpus for group in nodes), default=0),
        max((group.gpus for group in nodes), default=0),
    )


def stage_of_pool(pool: str) -> str:
    """Returns the stage, as `costs.stage` and the config's `cluster` have it, that a pool's workers do."""
    return _NUMBERED.sub("", pool)


def local_pools(requests: Mapping[str, PoolRequest], gpus: float) -> dict[str, Pool]:
    """Returns pools for one machine: one worker per stage; one that computes without a GPU has all cores.

    Pools with AUTO divide the cores and GPUs as if the other pools took no core: a Ray of this machine is given as many
    logical CPUs as all may need.
    """
    cores = os.cpu_count() or 1
    pools = _size(requests, workers=1, compute_cpus=cores, gpus=gpus)
    machine = [NodeGroup(1, cores, gpus)]
    others = {name: pool._replace(cpus=0) for name, pool in pools.items() if requests[name].workers != AUTO}
    grown = _grown(requests, pools | others, machine, 0)
    return {name: pool._replace(workers=grown[name]) for name, pool in pools.items()}


def in_process_pools(requests: Mapping[str, PoolRequest], gpus: float) -> dict[str, Pool]:
    """Returns pools of one worker each, in one process: each may have all GPUs and cores of the machine."""
    pools = {name: local_pools({name: request}, gpus)[name] for name, request in requests.items()}
    return {name: pool._replace(workers=1, most=None) for name, pool in pools.items()}


def size_pools(
    requests: Mapping[str, PoolRequest], nodes: Sequence[NodeGroup], local: bool, added: Sequence[NodeGroup] = ()
) -> dict[str, Pool]:
    """Returns the pools, sized to the cluster; `local`: whether Ray was started on this machine by the session.

    A pool with AUTO has as many workers as the nodes hold, and may grow to what the cluster may scale to: `added` are kinds of
    nodes that its autoscaler may have, each at its largest number.

    Raises:
        ClusterError: The pools request more than the cluster can hold at once, whatever it scales to.
    """
    limit = reachable(nodes, added)
    if local:
        pools = local_pools(requests, resources(nodes).gpus)
    else:
        available = resources(nodes)
        share = max(1, (available.largest_node_cpus - TASK_CPUS - 1) // 2)
        pools = _size(requests, workers=max(1, available.nodes), compute_cpus=share, gpus=available.gpus)
        now, later = (_grown(requests, pools, where, TASK_CPUS) for where in (nodes, limit))
        for name, request in requests.items():
            if request.workers == AUTO:
                pools[name] = pools[name]._replace(workers=now[name], most=later[name] if later[name] > now[name] else None)
    check_room(pools, limit, "has" if limit == reachable(nodes, ()) else "may scale to")
    return pools


def check_room(pools: Mapping[str, Pool], nodes: Sequence[NodeGroup], has: str) -> None:
    """Checks that nodes can hold all workers at once, of a pool that grows its minimum.

    In the message a cluster `has` these nodes, or does otherwise with them.

    Raises:
        ClusterError: They surely cannot.
    """
    limit = resources(nodes)
    described = "; ".join(f"{name} {p.workers} x ({p.cpus:g} CPU, {p.gpus:g} GPU)" for name, p in pools.items())
    wanted_cpus = sum(pool.workers * pool.cpus for pool in pools.values()) + TASK_CPUS
    wanted_gpus = sum(pool.workers * pool.gpus for pool in pools.values())
    for what, wanted, number in (("GPUs", wanted_gpus, limit.gpus), ("CPUs", wanted_cpus, limit.cpus)):
        if wanted > number:
            raise ClusterError(
                "cluster-small",
                f"cluster: the pools want {wanted:g} {what}, the cluster {has} {number:g} ({described}"
                f"{f'; {TASK_CPUS} CPUs for the other stages' if what == 'CPUs' else ''}); "
                f"lower cluster.<stage>.workers or .{what[:-1].lower()}s, or add nodes",
            )
    kinds = ", ".join(map(str, nodes))
    for name, pool in pools.items():
        if not can_hold([group._replace(nodes=1) for group in nodes], [Demand(pool.cpus, pool.gpus)]):
            raise ClusterError(
                "cluster-small",
                f"cluster: no node can hold one of the workers of {name}, each {pool.cpus:g} CPU and {pool.gpus:g} GPU; "
                f"the cluster {has} {kinds}; lower cluster.{name}.cpus or .gpus, or add larger nodes",
            )
    if can_hold(nodes, _demands(pools, {name: pool.workers for name, pool in pools.items()}, TASK_CPUS)) is False:
        raise ClusterError(
            "cluster-small",
            f"cluster: the workers fit in sum, but not on the nodes all at once ({described}; {TASK_CPUS} CPUs for the other "
            f"stages): no worker spans two nodes, and the cluster {has} {kinds}; lower cluster.<stage>.workers, .cpus or .gpus",
        )


def apportion(
    seconds: Mapping[str, float], holds: Callable[[Mapping[str, int]], bool], most: Mapping[str, int]
) -> dict[str, int]:
    """Returns the workers of each stage for the largest throughput of the slowest stage, no more than that takes.

    Workers are added one by one to the slowest stage, until it may not grow. The first allocation on this path with some
    throughput is the smallest that has it, so the best one that fits is optimal if `holds` is true of all smaller ones, too.

    Args:
        seconds: Stage -> work of one worker per query, in seconds.
        holds: Returns whether there is room for the allocation.
        most: Stage -> largest number of workers.

    Returns:
        At least one worker each, even if there is no room for that.
    """
    workers = dict.fromkeys(seconds, 1)
    path, throughputs = [], []
    while True:
        speeds = {stage: count / max(seconds[stage], 1e-12) for stage, count in workers.items()}
        slowest = min(speeds, key=speeds.__getitem__)
        path.append(dict(workers))
        throughputs.append(speeds[slowest])
        if workers[slowest] >= most[slowest] or len(path) == _MOST_WORKERS:
            break
        workers[slowest] += 1
    fitting = bisect.bisect_left(path, True, key=lambda allocation: not holds(allocation))
    return path[bisect.bisect_left(throughputs, throughputs[max(0, fitting - 1)])]


def _grown(
    requests: Mapping[str, PoolRequest], pools: Mapping[str, Pool], nodes: Sequence[NodeGroup], task_cpus: int
) -> dict[str, int]:
    """Returns the workers of each pool, those with AUTO as many as the work calls for and the nodes surely hold.

    No pool grows beyond what makes its stage as fast as one that cannot grow.
    """
    workers = {name: pool.workers for name, pool in pools.items()}
    known = {name: request.seconds for name, request in requests.items() if request.seconds is not None}
    auto = [name for name, request in requests.items() if request.workers == AUTO and name in known]
    if not auto:
        return workers
    # a pool of a fixed size counts as one worker with that many times the speed
    seconds = {name: value / (1 if name in auto else pools[name].max_workers) for name, value in known.items()}
    most = {name: (requests[name].max_workers or _MOST_WORKERS) if name in auto else 1 for name in known}

    def holds(chosen: Mapping[str, int]) -> bool:
        demands = _demands(pools, workers | {name: chosen[name] for name in auto}, task_cpus)
        return can_hold(nodes, demands, trials=100) is True  # for sure, and soon

    found = apportion(seconds, holds, most)
    return workers | {name: found[name] for name in auto}


def _demands(pools: Mapping[str, Pool], workers: Mapping[str, int], task_cpus: int) -> list[Demand]:
    demands = [Demand(pool.cpus, pool.gpus) for name, pool in pools.items() for _ in range(workers[name])]
    return demands + [Demand(1, 0)] * task_cpus


def _size(requests: Mapping[str, PoolRequest], workers: int, compute_cpus: float, gpus: float) -> dict[str, Pool]:
    """Returns the pools, with defaults for what the requests leave open.

    GPUs go to the pools that request a number; then, one per worker, to those that can use them, the last stage first
    (reranking gains most); and the rest to the pool that takes spare GPUs, unless pools with AUTO divide it.
    """
    divided = any(request.workers == AUTO for request in requests.values())
    most = {name: one.workers[1] if isinstance(one.workers, tuple) else None for name, one in requests.items()}
    counts = {name: _least(request, workers) for name, request in requests.items()}
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
        if request.takes_spare_gpus and request.workers is None and pools[name].gpus and not divided:
            more = max(0, int(left // pools[name].gpus))
            left -= more * pools[name].gpus
            pools[name] = pools[name]._replace(workers=pools[name].workers + more)
    return {name: pools[name] for name in requests}


def _least(request: PoolRequest, workers: int) -> int:
    """Returns the number of workers to begin with; `workers` where the request leaves it open."""
    if isinstance(request.workers, tuple):
        return request.workers[0]
    if isinstance(request.workers, int):
        return request.workers
    if request.workers == AUTO or request.takes_spare_gpus:
        return 1
    return min(workers, request.max_workers or workers)

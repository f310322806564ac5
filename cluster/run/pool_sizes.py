"""Worker pools: the stages' requests, and their sizes for a cluster's resources.

Ray Data waits for ever, without a message, if the pools request more than the cluster has (ray-project/ray issue 44687).
So the requests are compared with the nodes before any worker starts. Nodes that an autoscaler may add count.
"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from cluster.errors import ClusterError

_NUMBERED = re.compile(r"_\d+$")  # an ablation has a pool per engine: rewrite, rewrite_2
UNLIMITED_NODES = 1_000_000  # of a node group without an upper limit
_ROUNDING = 1e-9  # 1 / 0.1 workers of a tenth of a GPU must be 10
_MOST_PLACED, _MOST_TRIES = 200, 2_000  # workers that are placed one by one, and tries: more are not refused for their nodes


class Pool(NamedTuple):
    """Workers of one stage, each with `cpus` and `gpus`. With `most` the pool grows under load from `workers` to `most`."""

    workers: int
    cpus: float
    gpus: float
    most: int | None = None

    @property
    def max_workers(self) -> int:
        return self.most or self.workers

    @property
    def sharing(self) -> int:
        """Returns the number of workers that share the GPUs of one; 0: they have none."""
        return int(math.ceil(self.gpus) / self.gpus + _ROUNDING) if self.gpus else 0


class NodeGroup(NamedTuple):
    """Nodes of one kind: their number, and the `cpus` and `gpus` of each."""

    nodes: int
    cpus: float
    gpus: float

    def __str__(self) -> str:
        number = "any number of" if self.nodes >= UNLIMITED_NODES else f"{self.nodes} x"
        return f"{number} ({self.cpus:g} CPU, {self.gpus:g} GPU)"

    def workers(self, pool: Pool) -> int:
        """Returns the number of workers of a pool that the empty nodes hold; a part of a GPU lies within one GPU."""
        whole = int(self.cpus / pool.cpus + _ROUNDING)
        if pool.gpus:
            whole = min(whole, int(self.gpus // math.ceil(pool.gpus)) * pool.sharing)
        return self.nodes * whole


@dataclass(frozen=True)
class PoolRequest:
    """A pool as the config requests it; None: sized to the cluster."""

    workers: int | None = None
    cpus: float | None = None  # of each worker, as the GPUs
    gpus: float | None = None
    can_use_gpu: bool = False
    takes_spare_gpus: bool = False  # has workers on all GPUs that no other pool takes
    max_workers: int | None = None  # where `workers` is None
    most: int | None = None  # it grows from `workers` to so many


class Resources(NamedTuple):
    """Resources of a cluster in sum, and the most CPUs of a node."""

    nodes: int
    cpus: float
    gpus: float
    largest_node_cpus: float


def resources(nodes: Sequence[NodeGroup]) -> Resources:
    """Returns the resources of nodes."""
    return Resources(
        sum(group.nodes for group in nodes),
        sum(group.nodes * group.cpus for group in nodes),
        sum(group.nodes * group.gpus for group in nodes),
        max((group.cpus for group in nodes), default=0),
    )


def stage_of_pool(pool: str) -> str:
    """Returns the stage, as `costs.stage` and the config's `cluster` have it, that a pool's workers do."""
    return _NUMBERED.sub("", pool)


def local_pools(requests: Mapping[str, PoolRequest], gpus: float, cpus: int | None = None) -> dict[str, Pool]:
    """Returns pools for one machine: one worker per stage; one that computes without a GPU has all `cpus`, or cores."""
    return _size(requests, workers=1, compute_cpus=cpus or os.cpu_count() or 1, gpus=gpus)


def in_process_pools(requests: Mapping[str, PoolRequest], gpus: float) -> dict[str, Pool]:
    """Returns pools of one worker each, in one process: each may have all GPUs and cores of the machine."""
    return {name: local_pools({name: one}, gpus)[name]._replace(workers=1, most=None) for name, one in requests.items()}


def size_pools(
    requests: Mapping[str, PoolRequest], nodes: Sequence[NodeGroup], local: bool, added: Sequence[NodeGroup] = ()
) -> dict[str, Pool]:
    """Returns the pools, sized to the cluster; raises ClusterError if it cannot hold them at once, whatever it scales to.

    `local`: whether the session started Ray on this machine. `added`: kinds of nodes that the autoscaler may have, each at its
    largest number.
    """
    limit, available = _reachable(nodes, added), resources(nodes)
    if local:
        pools = local_pools(requests, available.gpus)
    else:
        share = max(1, (available.largest_node_cpus - 1) // 2)
        pools = _size(requests, workers=max(1, available.nodes), compute_cpus=share, gpus=available.gpus)
    _check_room(pools, limit, "has" if limit == _reachable(nodes, ()) else "may scale to")
    return pools


def _check_room(pools: Mapping[str, Pool], nodes: Sequence[NodeGroup], has: str) -> None:
    """Raises ClusterError if nodes surely lack CPUs, GPUs or room for the workers; a pool that grows counts with its minimum.

    In the message a cluster `has` these nodes, or does otherwise with them.
    """
    limit = resources(nodes)
    described = "; ".join(f"{name} {p.workers} x ({p.cpus:g} CPU, {p.gpus:g} GPU)" for name, p in pools.items())
    wanted_cpus = sum(pool.workers * pool.cpus for pool in pools.values())
    wanted_gpus = sum(pool.workers * pool.gpus for pool in pools.values())
    for what, wanted, number in (("GPUs", wanted_gpus, limit.gpus), ("CPUs", wanted_cpus, limit.cpus)):
        if wanted > number:
            problem = f"the pools need {wanted:g} {what}, the cluster {has} {number:g} ({described})"
            remedy = f"lower cluster.<stage>.workers or .{what.lower()}, or add nodes"
            raise ClusterError("cluster-small", f"cluster: {problem}; {remedy}")
    kinds = ", ".join(map(str, nodes))
    for name, pool in pools.items():
        room = sum(group.workers(pool) for group in nodes)
        if room < pool.workers:
            some = f"one of the workers of {name}" if room == 0 else f"more than {room} of the {pool.workers} workers of {name}"
            problem = f"no node can hold {some}, each {pool.cpus:g} CPU and {pool.gpus:g} GPU; the cluster {has} {kinds}"
            remedy = f"lower cluster.{name}.workers, .cpus or .gpus, or add larger nodes"
            raise ClusterError("cluster-small", f"cluster: {problem}; {remedy}")
    if not _fit_together(pools, nodes):
        problem = f"the workers of all pools do not fit together on the nodes ({described}); the cluster {has} {kinds}"
        remedy = "lower cluster.<stage>.workers, .cpus or .gpus, or add larger nodes"
        raise ClusterError("cluster-small", f"cluster: {problem}; {remedy}")


def _fit_together(pools: Mapping[str, Pool], nodes: Sequence[NodeGroup]) -> bool:
    """Returns False where no way to place all workers on nodes exists; True, too, where looking for one takes too long."""
    workers = sorted(((pool.gpus, pool.cpus) for pool in pools.values() for _ in range(pool.workers)), reverse=True)
    tries = count()

    def placed(number: int, free: list[tuple[float, float]]) -> bool:
        if number == len(workers) or next(tries) > _MOST_TRIES:
            return True
        gpus, cpus = workers[number]
        for node in dict.fromkeys(free):  # of equal nodes one is tried
            left = (node[0] - gpus, node[1] - cpus)
            if min(left) >= -_ROUNDING:
                others = list(free)
                others.remove(node)
                if placed(number + 1, [left, *others]):
                    return True
        return False

    free = [(group.gpus, group.cpus) for group in nodes for _ in range(min(group.nodes, len(workers)))]
    return len(workers) > _MOST_PLACED or placed(0, free)


def _reachable(nodes: Sequence[NodeGroup], added: Sequence[NodeGroup]) -> list[NodeGroup]:
    """Returns the nodes to which a cluster may scale, its present nodes included."""
    most: dict[tuple[float, float], int] = {}
    for group in nodes:
        most[group[1:]] = most.get(group[1:], 0) + group.nodes
    for group in added:
        most[group[1:]] = max(most.get(group[1:], 0), group.nodes)
    return [NodeGroup(count, *kind) for kind, count in most.items() if count]


def _size(requests: Mapping[str, PoolRequest], workers: int, compute_cpus: float, gpus: float) -> dict[str, Pool]:
    """Returns the pools, with defaults for what the requests leave open.

    GPUs go to the pools that request a number; then, one per worker, to those that can use them, the last stage first
    (reranking gains most); the rest to the pool that takes spare GPUs.
    """
    least = {name: 1 if one.takes_spare_gpus else min(workers, one.max_workers or workers) for name, one in requests.items()}
    counts = {name: request.workers or least[name] for name, request in requests.items()}
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
        pools[name] = Pool(count, cpus, devices, request.most)
    for name, request in requests.items():
        if request.takes_spare_gpus and request.workers is None and pools[name].gpus:
            more = max(0, int(left // pools[name].gpus))
            left -= more * pools[name].gpus
            pools[name] = pools[name]._replace(workers=pools[name].workers + more)
    return {name: pools[name] for name in requests}

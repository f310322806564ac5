"""Worker groups of a Ray cluster on Kubernetes, from the pools that a job requests.

Pods of a group are alike; Ray places a worker wherever it fits. So there is one group without GPUs, which also has the room of
the stages without a pool, and one for each number of GPUs that a pod needs: small pods, so that a spot node that is taken away
costs few workers. By construction the groups at their largest hold every pool at its largest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from cluster.errors import ConfigError
from cluster.kuberay.settings import KubernetesSettings
from cluster.placement import NodeGroup
from cluster.run.pool_sizes import AUTO, TASK_CPUS, Pool, PoolRequest, stage_of_pool

_ROUNDING = 1e-9  # 1 / 0.1 workers of a tenth of a GPU must be 10


class WorkerGroup(NamedTuple):
    """Pods with `cpus` and `gpus` each: `least` where every pool has its minimum, `most` where it has its maximum."""

    name: str
    cpus: int
    gpus: int
    least: int
    most: int


def explicit_pools(requests: Mapping[str, PoolRequest], settings: KubernetesSettings) -> dict[str, Pool]:
    """Returns the pools with a number in place of everything that is open, since no cluster is there to size them by.

    One worker where the number is open; a worker that computes without a GPU has all CPUs of its pod. Pools that one key sizes
    (`rewrite`, and `rewrite_2` of an ablation) have the CPUs of the one that has most, since the key gives them all as many.

    Raises:
        ConfigError: A pool is to be sized by the work: the cluster that it would divide is made to fit the pools.
    """
    pools = {}
    for name, request in requests.items():
        if request.workers == AUTO:
            raise ConfigError(
                "manifest",
                f"cluster.{stage_of_pool(name)}.workers: auto divides a cluster that is there, but this one is made to fit "
                "the pools; give a number, or {min, max}",
            )
        least, most = request.workers if isinstance(request.workers, tuple) else (request.workers or 1, None)
        gpus = request.gpus or 0.0
        cpus = request.cpus or (float(settings.cpu_workers.cpus) if request.can_use_gpu and not gpus else 1.0)
        pools[name] = Pool(least, cpus, gpus, most)
    return {
        name: pool._replace(cpus=max(other.cpus for key, other in pools.items() if stage_of_pool(key) == stage_of_pool(name)))
        for name, pool in pools.items()
    }


def worker_groups(pools: Mapping[str, Pool], settings: KubernetesSettings) -> list[WorkerGroup]:
    """Returns the groups that hold the pools, the one without GPUs first.

    Args:
        pools: Stage -> pool.
        settings: With the sizes of pods.
    """
    by_gpus: dict[int, list[Pool]] = {0: []}
    for pool in pools.values():
        by_gpus.setdefault(math.ceil(pool.gpus), []).append(pool)
    groups = []
    for gpus, members in sorted(by_gpus.items()):
        pod = settings.gpu_workers.cpus * gpus or settings.cpu_workers.cpus
        cpus = max([pod, *(math.ceil(pool.cpus * (_sharing_gpus(pool) or 1)) for pool in members)])
        beside = [_sharing_gpus(pool) or int(cpus // pool.cpus) for pool in members]
        tasks = 0 if gpus else math.ceil(TASK_CPUS / cpus)
        least, most = (
            tasks + sum(math.ceil(workers / workers_of_pod) for workers, workers_of_pod in zip(counts, beside, strict=True))
            for counts in ([pool.workers for pool in members], [pool.max_workers for pool in members])
        )
        groups.append(WorkerGroup(f"gpu-{gpus}" if gpus else "cpu", cpus, gpus, least, most))
    return groups


def reach(groups: list[WorkerGroup]) -> NodeGroup:
    """Returns the nodes that the cluster may scale to, as one kind of node: KubeRay's autoscaler reports none."""
    return NodeGroup(
        sum(group.most for group in groups), max(group.cpus for group in groups), max(group.gpus for group in groups)
    )


def _sharing_gpus(pool: Pool) -> int:
    """Returns how many workers the GPUs of one pod serve; 0: they have none."""
    return int(math.ceil(pool.gpus) / pool.gpus + _ROUNDING) if pool.gpus else 0

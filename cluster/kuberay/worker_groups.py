"""Worker groups of a Ray cluster on Kubernetes, from the pools that a job requests.

Pods of a group are alike. There is one group without GPUs, where the log is read, too, and one for each number of GPUs that a
worker needs.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from cluster.run.pool_sizes import Pool, PoolRequest, local_pools, stage_of_pool

CPUS = 4  # of a pod without GPUs
CPUS_PER_GPU = 8
_GIB_PER_CPU, _GIB_PER_GPU = 4, 64


class WorkerGroup(NamedTuple):
    """A number of pods with `cpus` and `gpus` each."""

    name: str
    cpus: int
    gpus: int
    pods: int

    @property
    def memory_gib(self) -> int:
        return _GIB_PER_GPU * self.gpus or _GIB_PER_CPU * self.cpus


def fixed_pools(requests: Mapping[str, PoolRequest]) -> dict[str, Pool]:
    """Returns the pools with a number in place of everything that is open, since the cluster is made to fit them.

    A pool has one worker where the number is open; a worker that computes without a GPU has all CPUs of its pod. Pools that one
    key sizes (`rewrite`, and `rewrite_2` of an ablation) have the CPUs of the one that has most.
    """
    pools = local_pools(requests, gpus=0, cpus=CPUS)
    return {
        name: pool._replace(cpus=max(other.cpus for key, other in pools.items() if stage_of_pool(key) == stage_of_pool(name)))
        for name, pool in pools.items()
    }


def worker_groups(pools: Mapping[str, Pool]) -> list[WorkerGroup]:
    """Returns the groups that hold the pools at their largest, the one without GPUs first."""
    by_gpus: dict[int, list[Pool]] = {0: []}
    for pool in pools.values():
        by_gpus.setdefault(math.ceil(pool.gpus), []).append(pool)
    groups = []
    for gpus, members in sorted(by_gpus.items()):
        cpus = max([CPUS_PER_GPU * gpus or CPUS, *(math.ceil(pool.cpus * (pool.sharing or 1)) for pool in members)])
        pods = 0 if gpus else 1  # for the tasks that read the log
        pods += sum(math.ceil(pool.max_workers / (pool.sharing or int(cpus // pool.cpus))) for pool in members)
        groups.append(WorkerGroup(f"gpu-{gpus}" if gpus else "cpu", cpus, gpus, pods))
    return groups

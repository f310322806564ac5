"""Worker groups hold the pools that they are made from, whatever those want."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import ConfigError
from cluster.kuberay.settings import CpuResources, KubernetesSettings
from cluster.kuberay.worker_groups import WorkerGroup, explicit_pools, reach, worker_groups
from cluster.placement import NodeGroup
from cluster.run.pool_sizes import TASK_CPUS, Pool, PoolRequest, size_pools

SETTINGS = KubernetesSettings()
REQUESTS = st.builds(
    PoolRequest,
    workers=st.none() | st.integers(1, 9) | st.tuples(st.integers(1, 4), st.integers(4, 9)),
    cpus=st.none() | st.sampled_from([0.5, 1.0, 2.0, 3.0, 7.0]),
    gpus=st.none() | st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.5, 1.0, 2.0, 4.0]),
    can_use_gpu=st.booleans(),
)


def test_the_night_has_a_pod_for_each_gpu() -> None:
    requests = {"rewrite": PoolRequest(8, None, 1.0, True), "retrieve": PoolRequest(2, None, 1.0, True),
                "rerank": PoolRequest((2, 6), None, 1.0, True)}  # fmt: skip
    groups = worker_groups(explicit_pools(requests, SETTINGS), SETTINGS)
    assert groups == [WorkerGroup("cpu", 4, 0, 1, 1), WorkerGroup("gpu-1", 8, 1, 12, 16)]
    assert reach(groups) == (17, 8, 1)


def test_parts_of_a_gpu_share_one_and_several_stand_in_one_pod() -> None:
    pools = {"rewrite": Pool(2, 1, 2.0), "retrieve": Pool(5, 1, 0.5), "rerank": Pool(3, 6, 0.0)}
    assert worker_groups(pools, SETTINGS) == [
        WorkerGroup("cpu", 6, 0, 4, 4), WorkerGroup("gpu-1", 8, 1, 3, 3), WorkerGroup("gpu-2", 16, 2, 2, 2)
    ]  # fmt: skip


def test_a_worker_that_computes_without_a_gpu_has_its_pod() -> None:
    settings = KubernetesSettings(cpu_workers=CpuResources(cpus=16))
    pools = explicit_pools({"rerank": PoolRequest(3, can_use_gpu=True), "rewrite": PoolRequest(2)}, settings)
    assert pools == {"rerank": Pool(3, 16, 0), "rewrite": Pool(2, 1, 0)}


def test_pools_that_divide_a_cluster_have_none_here() -> None:
    with pytest.raises(ConfigError, match=r"cluster.rerank.workers: auto divides a cluster that is there"):
        explicit_pools({"rerank": PoolRequest("auto", gpus=1)}, SETTINGS)


@given(st.dictionaries(st.sampled_from(["rewrite", "retrieve", "rerank"]), REQUESTS, min_size=1))
def test_the_groups_hold_the_pools(requests: dict[str, PoolRequest]) -> None:
    pools = explicit_pools(requests, SETTINGS)
    groups = {group.gpus: group for group in worker_groups(pools, SETTINGS)}
    for count in ("least", "most"):
        for gpus, group in groups.items():
            pods = getattr(group, count)
            members = [pool for pool in pools.values() if -(-pool.gpus // 1) == gpus]
            for pool in members:  # each in pods of its own, so that their sum is enough for all
                beside = min(int(group.cpus / pool.cpus + 1e-9), int(gpus / pool.gpus + 1e-9) if pool.gpus else 10**9)
                workers = pool.workers if count == "least" else pool.max_workers
                pods -= -(-workers // beside)
            assert pods >= (0 if gpus else TASK_CPUS / group.cpus)
    empty = [NodeGroup(1, 0, 0)]  # the head alone, without work
    explicit = {name: PoolRequest(pool.workers, pool.cpus, pool.gpus) for name, pool in pools.items()}
    assert size_pools(explicit, empty, local=False, added=[reach(list(groups.values()))])

"""Pools on clusters that change: a node joins, a node dies, GPUs come only when they are asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ClusterError
from cluster.run.pool_sizes import Pool, PoolRequest
from cluster.run.runner_ray import RayRunner
from cluster.run.session import Session
from tests.support.cluster import few_stages
from tests.support.cluster.few_stages import begin, stages

pytestmark = pytest.mark.slow


@pytest.fixture
def nodes() -> Iterator[Any]:
    """A cluster of several raylets on this machine; its head has room for the tasks only."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 3})
    ray.cloudpickle.register_pickle_by_value(few_stages)
    try:
        yield cluster
    finally:
        ray.cloudpickle.unregister_pickle_by_value(few_stages)
        ray.shutdown()
        cluster.shutdown()


def until(true: Any, seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_pool_grows_onto_a_node_that_joins(nodes: Any, tmp_path: Path) -> None:
    session = Session(nodes.address, {"slow": PoolRequest(workers=(1, 3), cpus=1)})
    assert session.pools["slow"] == Pool(1, 1, 0, most=3)
    runner = RayRunner(stages(tmp_path, session.pools["slow"]), start=1)
    reader, found = begin(runner, 9, committing=True)
    until(lambda: runner.tracker.progress().stages and runner.tracker.progress().stages["slow"].in_flight > 0)
    assert runner.tracker.progress().stages["slow"].ready_workers == 1
    nodes.add_node(num_cpus=2)
    until(lambda: runner.tracker.progress().stages["slow"].ready_workers == 3)
    (tmp_path / "gate").touch()
    reader.join(180)
    assert sorted(found) == list(range(9))
    session.close()


def test_a_worker_whose_node_dies_comes_back_elsewhere(nodes: Any, tmp_path: Path) -> None:
    lost = nodes.add_node(num_cpus=1, resources={"here": 1})
    session = Session(nodes.address, {"slow": PoolRequest(workers=2, cpus=1)})
    runner = RayRunner(stages(tmp_path, session.pools["slow"]), start=1)
    reader, found = begin(runner, 8, committing=True)
    until(lambda: runner.tracker.progress().stages and runner.tracker.progress().stages["slow"].ready_workers == 2)
    nodes.add_node(num_cpus=1)
    nodes.remove_node(lost)
    until(lambda: len(list(tmp_path.glob("worker-*"))) >= 3)  # one more was built
    (tmp_path / "gate").touch()
    reader.join(240)
    assert sorted(set(found)) == list(range(8))
    assert len(found) == 8
    session.close()


def test_a_cluster_that_may_scale_to_a_gpu_is_not_refused_and_runs_once_it_has_one(nodes: Any, tmp_path: Path) -> None:
    import grpc
    from ray.core.generated import autoscaler_pb2, autoscaler_pb2_grpc

    requests = {"slow": PoolRequest(workers=1, cpus=1, gpus=1)}
    with pytest.raises(ClusterError, match="the pools want 1 GPUs, the cluster has 0"):
        Session(nodes.address, requests)
    group = autoscaler_pb2.NodeGroupConfig(name="gpu", min_count=0, max_count=2, resources={"CPU": 2, "GPU": 1})
    report = autoscaler_pb2.ClusterConfig(node_group_configs=[group])
    stub = autoscaler_pb2_grpc.AutoscalerStateServiceStub(grpc.insecure_channel(nodes.address))
    stub.ReportClusterConfig(autoscaler_pb2.ReportClusterConfigRequest(cluster_config=report))
    with pytest.raises(ClusterError, match="the pools want 3 GPUs, the cluster may scale to 2"):
        Session(nodes.address, {"slow": PoolRequest(workers=3, cpus=1, gpus=1)})
    session = Session(nodes.address, requests)
    assert session.resources.gpus == 0
    runner = RayRunner(stages(tmp_path, session.pools["slow"]), start=1)
    (tmp_path / "gate").touch()
    reader, found = begin(runner, 3, committing=True)
    time.sleep(3)
    assert found == []
    nodes.add_node(num_cpus=2, num_gpus=1)
    reader.join(180)
    assert sorted(found) == [0, 1, 2]
    session.close()

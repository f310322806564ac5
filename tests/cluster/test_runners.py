"""Both runners: blocks under way, deaths of workers and of nodes, a closed gate; and the same in one process."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray

from cluster.errors import ClusterError
from cluster.run.pool_sizes import Pool, PoolRequest
from cluster.run.runner_local import LocalRunner
from cluster.run.runner_ray import RayRunner, node_alive, tracker_options
from cluster.run.session import Session
from cluster.run.snapshot import StageProgress
from cluster.run.spread import map_on_actors
from cluster.run.stage import Stage, link
from tests.support.cluster import few_stages
from tests.support.cluster.few_stages import EACH, POISON, Doubled, begin, places, stages
from tests.support.waits import until

SHARDS = 4
POOL = Pool(1, 1, 0)


@pytest.fixture(scope="module", autouse=True)
def sent() -> Iterator[None]:
    """Workers are sent the stages, which they cannot import."""
    ray.cloudpickle.register_pickle_by_value(few_stages)
    yield
    ray.cloudpickle.unregister_pickle_by_value(few_stages)


@pytest.fixture(scope="module")
def ray_session() -> Iterator[None]:
    session = Session("local", {"slow": PoolRequest(workers=2, cpus=1)})
    yield
    session.close()


def pages(runner: RayRunner | LocalRunner) -> dict[str, StageProgress]:
    return runner.tracker.progress().stages


@pytest.mark.slow
def test_actors_get_each_table_once_no_more_ahead_than_they_take_and_errors_are_as_they_are(ray_session: None) -> None:
    made: list[int] = []

    def tables(most: int) -> Iterator[pa.Table]:
        for n in range(most):
            made.append(n)
            yield pa.table({"n": [n]})

    found, ahead = [], []
    for result in map_on_actors(Doubled, {"refused": 99}, Pool(1, 1, 0), tables(9), 2):
        found.append(result)
        ahead.append(len(made) - len(found))
    assert sorted(found) == [2 * n for n in range(9)]
    assert max(ahead) <= 2, "a table is taken only when an actor can be called with it"
    with pytest.raises(ValueError, match=r"^no 3$"):
        list(map_on_actors(Doubled, {"refused": 3}, Pool(1, 1, 0), tables(5), 2))


@pytest.mark.slow
@pytest.mark.parametrize("first", [None, POOL], ids=["in its pool", "in that of the stage before"])
def test_a_block_that_kills_every_worker_is_given_up(ray_session: None, tmp_path: Path, first: Pool | None) -> None:
    runner = RayRunner(stages(tmp_path, None if first else POOL, deaths=100, retries=1, first=first), start=1)
    with pytest.raises(Exception, match="slow: 2 workers died one after the other under shard") as failed:
        list(runner.run(places(1)))
    assert "ClusterError" in str(failed.value)
    assert len(list(tmp_path.glob("died-*"))) == 2


@pytest.mark.slow
def test_a_worker_that_is_started_again_is_not_granted_the_money_of_the_one_before(ray_session: None, tmp_path: Path) -> None:
    (tmp_path / "gate").touch()
    list(RayRunner(stages(tmp_path, POOL, deaths=1), start=1, budget_usd=10.0).run(places(1)))
    assert [path.read_text() for path in tmp_path.glob("worker-*")] == ["4.0", "4.0"]


@pytest.mark.slow
def test_behind_a_closed_gate_no_shard_begins(ray_session: None, tmp_path: Path) -> None:
    runner = RayRunner(stages(tmp_path, POOL), start=1)
    reader, found = begin(runner, 40)
    until(lambda: pages(runner) and pages(runner)["slow"].in_flight > 0)
    runner.tracker.close()
    (tmp_path / "gate").touch()
    reader.join(400)
    assert not reader.is_alive()
    assert 0 < len(found) <= 3
    assert runner.tracker.in_flight() == len(found)


@pytest.mark.slow
@pytest.mark.parametrize("fallback", [few_stages.left_out, None])
def test_the_row_that_kills_is_left_out_or_named(ray_session: None, tmp_path: Path, fallback: Any) -> None:
    own = {"folder": str(tmp_path)}
    poisoned = Stage("poisoned", few_stages.Poisoned, own, pool=POOL, concurrent_blocks=4, fallback=fallback)
    runner = RayRunner(few_stages.chain(poisoned), start=1)
    found: dict[int, list[str]] = {}

    def run() -> None:
        for row in runner.run(places(SHARDS)):
            found[row["shard"]] = row["left_out"]
            runner.tracker.mark_committed(row["shard"])

    if fallback is None:
        with pytest.raises(Exception, match=f"workers died .* under query {POISON} of shard 2 alone"):
            run()
    else:
        run()
        assert found == {0: [], 1: [], 2: [POISON], 3: []}
    assert 1 + poisoned.retries <= len(list(tmp_path.glob("died-*"))) <= 2 + poisoned.retries


@pytest.mark.slow
def test_the_tracker_lives_on_the_drivers_node(ray_session: None) -> None:
    node = ray.get_runtime_context().get_node_id()
    where = tracker_options(node)["scheduling_strategy"]
    assert (where.node_id, where.soft) == (node, False)
    assert node_alive(node)


def test_the_same_stages_in_one_process(tmp_path: Path) -> None:
    runner = LocalRunner(stages(tmp_path, POOL), start=1)
    reader, found = begin(runner, SHARDS)
    until(lambda: pages(runner)["slow"].done > 0 and pages(runner)["slow"].waiting > 0)
    assert pages(runner)["grow"][:3] == (2 * EACH, 0, 0)
    assert pages(runner)["slow"][:3] == (EACH // 4, EACH - EACH // 4, EACH)
    assert runner.tracker.in_flight() == 2  # no third shard before a commit
    (tmp_path / "gate").touch()
    for shard in range(SHARDS):
        there = min(SHARDS, shard + 2)
        until(lambda there=there: len(found) == there)  # type: ignore[misc]
        assert there == SHARDS or not (tmp_path / "closed").exists()
        runner.tracker.mark_committed(shard)
    reader.join(400)
    assert found == list(range(SHARDS))
    assert (tmp_path / "closed").exists()
    assert len(list(tmp_path.glob("worker-*"))) == 1


def test_a_stage_whose_needs_nobody_adds_is_refused() -> None:
    with pytest.raises(ClusterError, match=r"stage fold needs \['seen'\], which no stage before it adds"):
        link([Stage("grow", few_stages.Grow, {}), Stage("fold", few_stages.Fold, {})], few_stages.PLACE)


@pytest.fixture(scope="module")
def head() -> Iterator[Any]:
    """A cluster on this machine; its head has room for one worker."""
    from ray.cluster_utils import Cluster

    ray.shutdown()  # the Ray of `ray_session`
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    yield cluster
    cluster.shutdown()


@pytest.fixture
def nodes(head: Any) -> Iterator[Any]:
    """Yields the cluster; nodes that a test adds to it are raylets on this machine, too."""
    yield head
    ray.shutdown()
    for node in list(head.worker_nodes):
        head.remove_node(node)
    head.wait_for_nodes()


@pytest.mark.slow
def test_a_pool_grows_onto_a_node_that_joins(nodes: Any, tmp_path: Path) -> None:
    session = Session(nodes.address, {"slow": PoolRequest(workers=1, most=3, cpus=1)})
    assert session.pools["slow"] == Pool(1, 1, 0, most=3)
    runner = RayRunner(stages(tmp_path, session.pools["slow"]), start=1)
    reader, found = begin(runner, 9, committing=True)
    until(lambda: pages(runner) and pages(runner)["slow"].in_flight > 0)
    assert pages(runner)["slow"].ready_workers == 1
    nodes.add_node(num_cpus=2)
    until(lambda: pages(runner)["slow"].ready_workers == 3)
    (tmp_path / "gate").touch()
    reader.join(180)
    assert sorted(found) == list(range(9))
    session.close()


@pytest.mark.slow
def test_a_worker_whose_node_dies_comes_back_elsewhere(nodes: Any, tmp_path: Path) -> None:
    lost = nodes.add_node(num_cpus=1, resources={"here": 1})
    session = Session(nodes.address, {"slow": PoolRequest(workers=2, cpus=1)})
    runner = RayRunner(stages(tmp_path, session.pools["slow"]), start=1)
    reader, found = begin(runner, 8, committing=True)
    until(lambda: pages(runner) and pages(runner)["slow"].ready_workers == 2)
    nodes.add_node(num_cpus=1)
    nodes.remove_node(lost)
    until(lambda: len(list(tmp_path.glob("worker-*"))) >= 3)  # one more was built
    (tmp_path / "gate").touch()
    reader.join(240)
    assert sorted(set(found)) == list(range(8))
    assert len(found) == 8
    session.close()


@pytest.mark.slow
def test_a_cluster_that_may_scale_to_a_gpu_is_not_refused_and_runs_once_it_has_one(nodes: Any, tmp_path: Path) -> None:
    import grpc
    from ray.core.generated import autoscaler_pb2, autoscaler_pb2_grpc

    requests = {"slow": PoolRequest(workers=1, cpus=1, gpus=1)}
    with pytest.raises(ClusterError, match="the pools need 1 GPUs, the cluster has 0"):
        Session(nodes.address, requests)
    group = autoscaler_pb2.NodeGroupConfig(name="gpu", min_count=0, max_count=2, resources={"CPU": 2, "GPU": 1})
    report = autoscaler_pb2.ClusterConfig(node_group_configs=[group])
    stub = autoscaler_pb2_grpc.AutoscalerStateServiceStub(grpc.insecure_channel(nodes.address))
    stub.ReportClusterConfig(autoscaler_pb2.ReportClusterConfigRequest(cluster_config=report))
    with pytest.raises(ClusterError, match="the pools need 3 GPUs, the cluster may scale to 2"):
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


@pytest.mark.slow
def test_a_worker_has_what_a_package_keeps_out_of_git(nodes: Any, tmp_path: Path) -> None:
    """Such as the module of its version, which its build generates."""
    package = tmp_path / "packages" / "generated_in"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from generated_in._version import VERSION\n")
    (package / "_version.py").write_text("VERSION = '1.2.3'\n")
    (package / ".gitignore").write_text("_version.py\n")
    session = Session(nodes.address, {}, [str(package)])

    @ray.remote  # type: ignore[untyped-decorator]
    def read() -> tuple[str, str]:
        import generated_in

        return generated_in.VERSION, generated_in.__file__

    version, place = ray.get(read.remote())
    assert version == "1.2.3"
    assert not place.startswith(str(package)), "it is a copy that was sent"
    session.close()

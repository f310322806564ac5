"""Pools fitted to what is there: pure arithmetic, refusals that name both sides."""

from __future__ import annotations

import os

import pytest

from cluster import ClusterError
from cluster.session import CARRIERS, Pool, PoolWish, Resources, fit, local_pools

CORES = os.cpu_count() or 1
WISHES = {"rewrite": PoolWish(), "retrieve": PoolWish(device=True), "rerank": PoolWish(device=True)}


def machine(cpus: float, gpus: float = 0) -> Resources:
    return Resources(1, cpus, gpus, cpus, gpus)


def cluster(nodes: int, cpus: float, gpus: float = 0) -> Resources:
    """`nodes` machines of `cpus` and `gpus` each."""
    return Resources(nodes, nodes * cpus, nodes * gpus, cpus, gpus)


def own(gpus: float = 0) -> Resources:
    """The Ray that Session starts here: as many CPUs as the pools need."""
    needed = sum(pool.workers * pool.cpus for pool in local_pools(WISHES, gpus=0).values())
    return machine(needed + CARRIERS, gpus)


# ---------------------------------------------------------------- one machine


def test_on_one_machine_each_stage_has_a_worker_and_those_that_compute_have_the_cores() -> None:
    assert fit(WISHES, own(), local=True) == {
        "rewrite": Pool(1, 1, 0.0),
        "retrieve": Pool(1, CORES, 0.0),
        "rerank": Pool(1, CORES, 0.0),
    }


def test_the_order_of_the_stages_is_kept() -> None:
    assert list(fit(WISHES, own(), local=True)) == list(WISHES)


def test_what_the_config_says_is_taken() -> None:
    wishes = {"rewrite": PoolWish(workers=3, cpus=0.5), "retrieve": PoolWish(workers=2, cpus=2, gpus=0, device=True)}
    assert fit(wishes, machine(16, 4), local=True) == {"rewrite": Pool(3, 0.5, 0.0), "retrieve": Pool(2, 2, 0)}


def test_no_pools_want_nothing() -> None:
    assert fit({}, machine(CARRIERS), local=True) == {}


@pytest.mark.parametrize(
    ("gpus", "retrieve", "rerank"),
    [(0, 0.0, 0.0), (1, 0.0, 1.0), (2, 1.0, 1.0), (8, 1.0, 1.0)],
)
def test_accelerators_go_to_the_last_stage_first_one_each_and_never_to_one_that_cannot_use_them(
    gpus: float, retrieve: float, rerank: float
) -> None:
    pools = fit(WISHES, own(gpus), local=True)
    assert [pools[name].gpus for name in WISHES] == [0.0, retrieve, rerank]
    assert [pools[name].cpus for name in WISHES] == [1, 1 if retrieve else CORES, 1 if rerank else CORES]


def test_a_pool_gets_accelerators_for_all_its_workers_or_none() -> None:
    wishes = {"retrieve": PoolWish(device=True), "rerank": PoolWish(workers=3, cpus=1, device=True)}
    pools = fit(wishes, machine(CORES + 3 + CARRIERS, 2), local=True)
    assert (pools["rerank"].gpus, pools["retrieve"].gpus) == (0.0, 1.0)


def test_accelerators_that_the_config_names_leave_fewer_for_the_others() -> None:
    wishes = {"retrieve": PoolWish(device=True), "rerank": PoolWish(gpus=0.5, workers=2, cpus=1, device=True)}
    pools = fit(wishes, machine(CORES + 2 + CARRIERS, 1), local=True)
    assert (pools["rerank"].gpus, pools["retrieve"].gpus) == (0.5, 0.0)


VLLM = {
    "rewrite": PoolWish(gpus=1, device=True, fills=True),
    "retrieve": PoolWish(device=True),
    "rerank": PoolWish(device=True),
}


@pytest.mark.parametrize(
    ("gpus", "engines", "retrieve", "rerank"),
    [(1, 1, 0.0, 0.0), (2, 1, 0.0, 1.0), (3, 1, 1.0, 1.0), (8, 6, 1.0, 1.0), (8.5, 6, 1.0, 1.0)],
)
def test_engines_come_before_the_others_and_take_what_these_leave(
    gpus: float, engines: int, retrieve: float, rerank: float
) -> None:
    pools = fit(VLLM, machine(100, gpus), local=True)
    assert pools["rewrite"] == Pool(engines, 1, 1)
    assert (pools["retrieve"].gpus, pools["rerank"].gpus) == (retrieve, rerank)


def test_engines_that_span_several_accelerators() -> None:
    wishes = VLLM | {"rewrite": PoolWish(gpus=4, device=True, fills=True)}
    assert fit(wishes, machine(100, 8), local=True)["rewrite"] == Pool(1, 1, 4)
    assert fit(wishes, machine(100, 10), local=True)["rewrite"] == Pool(2, 1, 4)


def test_an_engine_without_its_accelerator_is_refused() -> None:
    with pytest.raises(ClusterError, match="the pools want 1 GPUs, the cluster has 0"):
        fit(VLLM, machine(100), local=True)


# ---------------------------------------------------------------- a cluster


def test_on_a_cluster_each_node_has_a_worker_of_each_stage() -> None:
    pools = fit(WISHES, cluster(4, 17), local=False)
    assert pools == {"rewrite": Pool(4, 1, 0.0), "retrieve": Pool(4, 7, 0.0), "rerank": Pool(4, 7, 0.0)}


@pytest.mark.parametrize("cpus", [3, 4, 5, 6, 8, 9, 64, 65])
@pytest.mark.parametrize("nodes", [1, 2, 7])
@pytest.mark.parametrize("gpus", [0, 1, 2])
def test_the_default_sizes_always_fit_where_a_node_has_a_core_for_each_worker(nodes: int, cpus: float, gpus: float) -> None:
    there = cluster(nodes, cpus + CARRIERS, gpus)
    pools = fit(WISHES, there, local=False)
    assert sum(pool.workers * pool.cpus for pool in pools.values()) + CARRIERS <= there.cpus
    assert sum(pool.workers * pool.gpus for pool in pools.values()) <= there.gpus


# ---------------------------------------------------------------- refusals


def test_accelerators_that_are_not_there_are_refused_with_both_numbers() -> None:
    with pytest.raises(ClusterError) as refused:
        fit({"rewrite": PoolWish(workers=8, gpus=1), "rerank": PoolWish(device=True, cpus=1)}, machine(64), local=True)
    text = str(refused.value)
    assert "the pools want 8 GPUs, the cluster has 0" in text
    assert "rewrite 8 x (1 CPU, 1 GPU)" in text
    assert "rerank 1 x (1 CPU, 0 GPU)" in text
    assert "cluster.<stage>.workers or .gpus" in text
    assert "\n" not in text


def test_cores_that_are_not_there_are_refused_with_both_numbers() -> None:
    wanted = 3 * 4 + CARRIERS
    with pytest.raises(ClusterError, match=f"want {wanted} CPUs, the cluster has {wanted - 1} .retrieve 3 x .4 CPU, 0 GPU"):
        fit({"retrieve": PoolWish(workers=3, cpus=4)}, machine(wanted - 1), local=False)
    assert fit({"retrieve": PoolWish(workers=3, cpus=4)}, machine(wanted), local=False)


@pytest.mark.parametrize(("cpus", "gpus"), [(6, 0), (1, 2)])
def test_a_worker_that_no_single_node_can_hold_is_refused(cpus: float, gpus: float) -> None:
    with pytest.raises(ClusterError, match=r"no node can hold one of the workers .*the largest has 4 CPUs and 1 GPUs"):
        fit({"rerank": PoolWish(workers=1, cpus=cpus, gpus=gpus)}, cluster(4, 4, 1), local=False)


def test_workers_that_fit_in_sum_but_not_on_the_nodes_are_refused() -> None:
    """Three nodes of 5 CPUs have 15 and hold three workers of 3; four workers and the carriers want 14."""
    with pytest.raises(ClusterError):
        fit({"rerank": PoolWish(workers=4, cpus=3)}, cluster(3, 5), local=False)

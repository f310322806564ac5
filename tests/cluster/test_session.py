"""Pools fitted to what is there: pure arithmetic, refusals that name both sides."""

import os
import socket

import pytest

from cluster.errors import ClusterError, DmqrError
from cluster.run.pool_sizes import NodeGroup, Pool, PoolRequest, local_pools, resources, size_pools
from cluster.run.session import InProcessSession, Session, chosen_address
from cluster.run.settings import ClusterSettings

CORES = os.cpu_count() or 1
REQUESTS = {"rewrite": PoolRequest(), "retrieve": PoolRequest(can_use_gpu=True), "rerank": PoolRequest(can_use_gpu=True)}


Nodes = list[NodeGroup]


def machine(cpus: float, gpus: float = 0) -> Nodes:
    return cluster(1, cpus, gpus)


def cluster(nodes: int, cpus: float, gpus: float = 0) -> Nodes:
    """`nodes` machines of `cpus` and `gpus` each."""
    return [NodeGroup(nodes, cpus, gpus)]


def own(gpus: float = 0) -> Nodes:
    """The Ray that Session starts here: as many CPUs as the pools need."""
    needed = sum(pool.workers * pool.cpus for pool in local_pools(REQUESTS, gpus=0).values())
    return machine(needed, gpus)


# ---------------------------------------------------------------- sizes


VLLM = {
    "rewrite": PoolRequest(gpus=1, can_use_gpu=True, takes_spare_gpus=True),
    "retrieve": PoolRequest(can_use_gpu=True),
    "rerank": PoolRequest(can_use_gpu=True),
}


@pytest.mark.parametrize(
    ("local", "requests", "there", "pools"),
    [
        (True, REQUESTS, own(), {"rewrite": Pool(1, 1, 0.0), "retrieve": Pool(1, CORES, 0.0), "rerank": Pool(1, CORES, 0.0)}),
        (  # what the config says is taken
            True,
            {"rewrite": PoolRequest(workers=3, cpus=0.5), "retrieve": PoolRequest(workers=2, cpus=2, gpus=0, can_use_gpu=True)},
            machine(16, 4), {"rewrite": Pool(3, 0.5, 0.0), "retrieve": Pool(2, 2, 0)},
        ),
        (True, {}, machine(1), {}),
        (  # accelerators for all workers of a pool, or none
            True,
            {"retrieve": PoolRequest(can_use_gpu=True), "rerank": PoolRequest(workers=3, cpus=1, can_use_gpu=True)},
            machine(CORES + 3, 2), {"retrieve": Pool(1, 1, 1.0), "rerank": Pool(3, 1, 0.0)},
        ),
        (  # those that the config names leave fewer for the others
            True,
            {"retrieve": PoolRequest(can_use_gpu=True), "rerank": PoolRequest(gpus=0.5, workers=2, cpus=1, can_use_gpu=True)},
            machine(CORES + 2, 1), {"retrieve": Pool(1, CORES, 0.0), "rerank": Pool(2, 1, 0.5)},
        ),
        (  # a pool that grows does not fill what is left
            True, {"rewrite": PoolRequest(workers=1, most=4, gpus=1, can_use_gpu=True, takes_spare_gpus=True)}, machine(100, 8),
            {"rewrite": Pool(1, 1, 1, 4)},
        ),
        (  # it begins with the least, and is fitted by it: there is no room for nine
            False, {"rewrite": PoolRequest(workers=1, most=9, cpus=2), "retrieve": PoolRequest(workers=2, cpus=1)},
            machine(2 + 2), {"rewrite": Pool(1, 2, 0.0, 9), "retrieve": Pool(2, 1, 0.0, None)},
        ),
        (  # on a cluster each node has a worker of each stage
            False, REQUESTS, cluster(4, 15),
            {"rewrite": Pool(4, 1, 0.0), "retrieve": Pool(4, 7, 0.0), "rerank": Pool(4, 7, 0.0)},
        ),
    ],
)  # fmt: skip
def test_pools_are_fitted_to_what_is_there(
    local: bool, requests: dict[str, PoolRequest], there: Nodes, pools: dict[str, Pool]
) -> None:
    sized = size_pools(requests, there, local=local)
    assert (sized, list(sized)) == (pools, list(requests))


@pytest.mark.parametrize(
    ("gpus", "engines", "retrieve", "rerank"),
    [(1, 1, 0.0, 0.0), (2, 1, 0.0, 1.0), (3, 1, 1.0, 1.0), (8, 6, 1.0, 1.0), (8.5, 6, 1.0, 1.0)],
)
def test_engines_come_before_the_others_and_take_what_these_leave(
    gpus: float, engines: int, retrieve: float, rerank: float
) -> None:
    pools = size_pools(VLLM, machine(100, gpus), local=True)
    assert pools["rewrite"] == Pool(engines, 1, 1)
    assert (pools["retrieve"].gpus, pools["rerank"].gpus) == (retrieve, rerank)


@pytest.mark.parametrize("cpus", [3, 4, 5, 6, 8, 9, 64, 65])
@pytest.mark.parametrize("nodes", [1, 2, 7])
@pytest.mark.parametrize("gpus", [0, 1, 2])
def test_the_default_sizes_always_fit_where_a_node_has_a_core_for_each_worker(nodes: int, cpus: float, gpus: float) -> None:
    there = cluster(nodes, cpus, gpus)
    pools = size_pools(REQUESTS, there, local=False)
    assert sum(pool.workers * pool.cpus for pool in pools.values()) <= resources(there).cpus
    assert sum(pool.workers * pool.gpus for pool in pools.values()) <= resources(there).gpus


# ---------------------------------------------------------------- refusals

GROUPS = [NodeGroup(1, 8, 0), NodeGroup(2, 16, 1)]
TOGETHER = {"retrieve": PoolRequest(workers=2, cpus=5), "rerank": PoolRequest(workers=1, cpus=4)}


@pytest.mark.parametrize(
    ("requests", "there", "added", "line"),
    [
        (
            {"rewrite": PoolRequest(workers=8, gpus=1), "rerank": PoolRequest(can_use_gpu=True, cpus=1)}, machine(64), [],
            "the pools need 8 GPUs, the cluster has 0 (rewrite 8 x (1 CPU, 1 GPU); rerank 1 x (1 CPU, 0 GPU)); "
            "lower cluster.<stage>.workers or .gpus, or add nodes",
        ),
        (
            {"retrieve": PoolRequest(workers=3, cpus=4)}, machine(3 * 4 - 1), [],
            "the pools need 12 CPUs, the cluster has 11 (retrieve 3 x (4 CPU, 0 GPU)",
        ),
        (VLLM, machine(100), [], "the pools need 1 GPUs, the cluster has 0"),
        (
            {"rerank": PoolRequest(workers=1, cpus=6)}, cluster(4, 4, 1), [],
            "no node can hold one of the workers of rerank, each 6 CPU and 0 GPU; the cluster has 4 x (4 CPU, 1 GPU);",
        ),
        (
            {"rerank": PoolRequest(workers=1, cpus=1, gpus=2)}, cluster(4, 4, 1), [],
            "of the workers of rerank, each 1 CPU and 2 GPU",
        ),
        (  # three nodes of 5 CPUs have 15 and hold three workers of 3; four workers want 12
            {"rerank": PoolRequest(workers=4, cpus=3)}, cluster(3, 5), [],
            "cluster: no node can hold more than 3 of the 4 workers of rerank, each 3 CPU and 0 GPU; the cluster has "
            "3 x (5 CPU, 0 GPU); lower cluster.rerank.workers, .cpus or .gpus, or add larger nodes",
        ),
        (  # two nodes of 8 CPUs hold two workers of 5, or two of 4, and not two of 5 and one of 4, though 14 CPUs are 14
            TOGETHER, cluster(2, 8), [], "do not fit together on the nodes (retrieve 2 x (5 CPU, 0 GPU); ",
        ),
        (  # tensor parallelism stays within a node
            {"rewrite": PoolRequest(1, gpus=16, cpus=1)}, [NodeGroup(4, 8, 8), NodeGroup(1, 32, 0)], [],
            "workers of rewrite, each 1 CPU and 16 GPU; the cluster has 4 x (8 CPU, 8 GPU), 1 x (32 CPU, 0 GPU)",
        ),
        (
            {"rewrite": PoolRequest(workers=3, gpus=1)}, cluster(1, 8), GROUPS,
            "the pools need 3 GPUs, the cluster may scale to 2 (rewrite 3 x (1 CPU, 1 GPU))",
        ),
        (
            {"rewrite": PoolRequest(workers=2, cpus=40)}, cluster(1, 8), GROUPS,
            "the pools need 80 CPUs, the cluster may scale to 40 (rewrite 2 x (40 CPU, 0 GPU))",
        ),
        (
            {"rewrite": PoolRequest(workers=1, gpus=2)}, cluster(1, 8), GROUPS,
            "of rewrite, each 1 CPU and 2 GPU; the cluster may scale to 1 x (8 CPU, 0 GPU), 2 x (16 CPU, 1 GPU); lower",
        ),
        (
            {"rewrite": PoolRequest(workers=3, cpus=9)}, cluster(1, 8), GROUPS,
            "no node can hold more than 2 of the 3 workers of rewrite, each 9 CPU and 0 GPU",
        ),
        ({"rewrite": PoolRequest(workers=3, most=9, cpus=2)}, machine(5), [], "need 6 CPUs, the cluster has 5"),
    ],
)  # fmt: skip
def test_what_cannot_fit_is_refused_with_both_numbers(
    requests: dict[str, PoolRequest], there: Nodes, added: Nodes, line: str
) -> None:
    with pytest.raises(ClusterError) as refused:
        size_pools(requests, there, local=False, added=added)
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("requests", "there", "added"),
    [
        ({"retrieve": PoolRequest(workers=3, cpus=4)}, machine(3 * 4), []),
        (TOGETHER, [NodeGroup(2, 8, 0), NodeGroup(1, 4, 0)], []),
        ({"retrieve": PoolRequest(workers=400, cpus=1)}, cluster(100, 5), []),
        (VLLM, cluster(1, 8), GROUPS),  # no GPU, and may scale to one
    ],
)
def test_what_fits_just_is_taken(requests: dict[str, PoolRequest], there: Nodes, added: Nodes) -> None:
    assert size_pools(requests, there, local=False, added=added)


def test_on_one_machine_ray_is_given_room_for_the_largest_size() -> None:
    from cluster.run.session import _logical_cpus

    assert _logical_cpus({"rewrite": PoolRequest(workers=1, most=3, cpus=2), "retrieve": PoolRequest(workers=1, cpus=1)}) == 7


# ---------------------------------------------------------------- without Ray


def test_in_one_process_every_stage_has_one_worker_and_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.run.session.visible_gpus", lambda: 0.0)
    requests = REQUESTS | {"rewrite": PoolRequest(workers=2, most=5), "retrieve": PoolRequest(workers=3, can_use_gpu=True)}
    session = InProcessSession(requests)
    assert session.pools == {"rewrite": Pool(1, 1, 0.0), "retrieve": Pool(1, CORES, 0.0), "rerank": Pool(1, CORES, 0.0)}
    assert session.local
    assert session.nodes() == {"cpu": 1}
    session.close()


# ---------------------------------------------------------------- where a job works that names no place


@pytest.mark.parametrize(
    ("named", "queries", "gpus", "address", "why"),
    [
        ("10.0.0.1:6379", 20, 0.0, "auto", "joins the Ray that RAY_ADDRESS names (10.0.0.1:6379)"),
        ("", 5_000, 0.0, "none", "works in this process, without Ray: the log has 5,000 of at most 5,000 queries"),
        ("", 5_001, 0.0, "local", "starts a Ray of its own: the log has more than 5,000 distinct queries (5,001)"),
        ("", 20, 2.0, "local", "starts a Ray of its own, which divides 2 GPUs among the workers"),
    ],
)
def test_the_log_and_the_machine_say_where_a_job_works(
    monkeypatch: pytest.MonkeyPatch, named: str, queries: int, gpus: float, address: str, why: str
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", named)
    monkeypatch.setattr("cluster.run.session.visible_gpus", lambda: gpus)
    assert chosen_address(queries, {"rerank": PoolRequest(can_use_gpu=True)}) == (address, why)
    assert ClusterSettings().joined == ("auto" if named else None)
    monkeypatch.setattr("cluster.run.session.find_spec", lambda name: None)
    missing = 'works in this process: Ray is not installed (pip install "dmqr[ray]")'
    assert chosen_address(queries, {}) == ((address, why) if named else ("none", missing))
    with pytest.raises(ClusterError, match=r"^cluster.address: local needs Ray, .* pip install \"dmqr\[ray\]\""):
        Session("local", {})
    assert (ClusterSettings(address="none").joined, ClusterSettings(address="auto").joined) == (None, "auto")


TRACE = 'Traceback (most recent call last):\n  File "python/ray/_raylet.pyx", line 3198, in ray._raylet.GcsClient.__cinit__'
REFUSED = (
    f"Failed to connect to GCS. {TRACE}\nRPC error: InvalidAuthToken: Authentication token is missing or incorrect. Note: ..."
)
AWAY = "Failed to connect to Ray cluster at 10.0.0.1:6379"
ELSE = "start one there (ray start --head), correct the address, or work in this process: --set cluster.address=none"
AT = "the Ray at RAY_ADDRESS (10.0.0.1:6379) asks for a token, and"
TOKEN = "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to that of the cluster"


def caused_by(words: str) -> ConnectionError:
    """Ray's error, whose cause says more."""
    error = ConnectionError(AWAY)
    error.__cause__ = RuntimeError(words)
    return error


@pytest.mark.parametrize(
    ("address", "mode", "error", "line"),
    [
        (
            "local", "", Exception("The current node timed out during startup."),
            "Ray does not start on this machine: The current node timed out during startup; try again, or work in this "
            "process: --set cluster.address=none",
        ),
        ("auto", "", ConnectionError(AWAY), f"no Ray answers at RAY_ADDRESS (10.0.0.1:6379): {AWAY}; {ELSE}"),
        (
            "auto", "", ConnectionError(f"Last connection error: {TRACE}\nray.exceptions.RpcError: no GCS answers."),
            "no Ray answers at RAY_ADDRESS (10.0.0.1:6379): Last connection error: ray.exceptions.RpcError: no GCS answers; "
            + ELSE,
        ),
        ("auto", "", caused_by(REFUSED), f"{AT} none is sent, as RAY_AUTH_MODE is not set; {TOKEN}"),
        ("auto", "disabled", caused_by(REFUSED), f"{AT} none is sent, as RAY_AUTH_MODE is disabled; {TOKEN}"),
        ("auto", "token", caused_by(REFUSED), f"{AT} refuses the one that is sent; {TOKEN}"),
        (
            "auto", "token", caused_by("Token authentication is enabled but no authentication token was found. Ensure ..."),
            f"{AT} none is found here; {TOKEN}",
        ),
    ],
)  # fmt: skip
def test_a_ray_that_does_not_start_or_answer_is_told_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, address: str, mode: str, error: Exception, line: str
) -> None:
    """The words are those of Ray 2.60."""

    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    monkeypatch.setattr("socket.create_connection", lambda *_: socket.socket())
    monkeypatch.setattr("ray.init", refuse)
    with pytest.raises(DmqrError) as refused:
        Session(address, {})
    assert str(refused.value) == f"cluster.address: {line}"
    assert refused.value.exit_code == (1 if address == "local" else 2)


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_an_address_where_nothing_listens_is_refused_before_ray_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    def wait(*_: object, **__: object) -> None:
        pytest.fail("ray.init would wait for minutes")

    monkeypatch.setattr("ray.init", wait)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = form.format(closed.getsockname()[1])
    with pytest.raises(ClusterError, match=f"no Ray answers at '{address}': .*Connection refused; start one there") as refused:
        Session(address, {})
    assert (refused.value.code, "\n" in str(refused.value)) == ("cluster-away", False)

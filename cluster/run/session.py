"""Connects to Ray (a new one on this machine, or a running cluster), or sets up this process to run without it."""

import logging
import math
import os
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from cluster.cause import one_line
from cluster.errors import ClusterError, Stopped
from cluster.host_program import is_embedded, sigterm_kept
from cluster.run.job_server import working_folder_has
from cluster.run.pool_sizes import (
    UNLIMITED_NODES,
    NodeGroup,
    PoolRequest,
    in_process_pools,
    local_pools,
    resources,
    size_pools,
    stage_of_pool,
)
from cluster.storage import Storage, probe_key, remote

IN_PROCESS = "none"  # `cluster.address` for no Ray, with all stages in this process
WITHOUT_RAY = "work in this process: --set cluster.address=none"
MOST_IN_PROCESS = 5_000  # distinct queries; Ray takes 16 s to start on two idle cores, and fails to on busy ones
LOOK_SECONDS = 60.0  # a node that starts no process within it is not judged to lack a folder
_MOST_LOCAL_GPUS = 16
WORKER_ENVIRONMENT = {
    "OMP_WAIT_POLICY": "PASSIVE",  # stages share cores: a waiting OpenMP thread must not spin
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
}


class InProcessSession:
    """A session without Ray: one worker per stage, each of which may use all cores."""

    local = True

    def __init__(self, requests: Mapping[str, PoolRequest]) -> None:
        """Sizes the pools; raises ClusterError if this machine has GPUs, and fewer than a worker wants."""
        _set_environment()
        gpus = usable_gpus(requests)
        self._node = "gpu" if gpus else "cpu"
        self.pools = in_process_pools(requests, gpus)
        for name, pool in self.pools.items():
            if 0 < gpus < pool.gpus:  # with none, models run on CPUs
                problem = f"a worker of {name} wants {pool.gpus:g} GPUs, and this machine has {gpus:g}"
                remedy = f"lower cluster.{stage_of_pool(name)}.gpus, or take a larger machine"
                raise ClusterError("cluster-small", f"cluster: {problem}; {remedy}")

    def nodes(self) -> dict[str, int]:
        return {self._node: 1}

    def close(self) -> None:
        """Does nothing; `Session.close` disconnects."""


class Session:
    """A connection to Ray. `close` stops Ray if this session has started it."""

    def __init__(self, address: str, requests: Mapping[str, PoolRequest], modules: Sequence[str] = ()) -> None:
        """Connects to Ray, or starts it (`address`: local), and sizes the pools, which are in the order of the stages.

        A running cluster gets a copy of `modules`: folders of the packages that workers import. Raises ClusterError if Ray is
        missing or does not answer, or the pools request more than the cluster has and may scale to, and Stopped if Ray does not
        start here.
        """
        if find_spec("ray") is None:
            problem = f'cluster.address: {address} needs Ray, which is not installed; pip install "dmqr[ray]"'
            raise ClusterError("package-missing", f"{problem}, or {WITHOUT_RAY}")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no data goes anywhere but to the engines named
        os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
        import ray

        self.local, named = address == "local", os.environ.get("RAY_ADDRESS", "")
        # Workers' output goes to the driver's streams, which the run writes to logs/; Ray's own logs are in a temporary folder.
        quiet = is_embedded()
        level = logging.CRITICAL if quiet else logging.WARNING
        logs = {"log_to_driver": not quiet, "logging_level": level, "configure_logging": True}
        try:
            with sigterm_kept():
                if self.local:
                    # Ray's processes have the environment of this one. Ray starts a worker for each CPU at once; none of them
                    # could be used with a `runtime_env`, and each worker that is would wait for the agent that makes it.
                    _set_environment()
                    ray.init("local", num_cpus=_logical_cpus(requests), include_dashboard=False, **logs)
                else:
                    shipped = {"py_modules": list(modules)} if modules and not working_folder_has(modules) else {}
                    # A package is sent as its version counts it, with what its .gitignore names: a generated _version.py.
                    os.environ.setdefault("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "1")
                    _check_listens(named if address == "auto" else address)
                    ray.init(address, runtime_env={"env_vars": WORKER_ENVIRONMENT, **shipped}, **logs)
        except Exception as error:  # a start that takes too long is a plain one
            causes = [_without_traceback(f"{one}".rstrip(".")) for one in (error, error.__cause__) if one is not None]
            why = one_line(": ".join(causes))
            if self.local:
                line = f"cluster.address: Ray does not start on this machine: {why}; try again, or {WITHOUT_RAY}"
                raise Stopped("cluster-away", line, graceful=False) from error
            at = f"RAY_ADDRESS ({named})" if address == "auto" and named else repr(address)
            line = f"no Ray answers at {at}: {why}; start one there (ray start --head), correct the address, or {WITHOUT_RAY}"
            if "authentication token" in " ".join(causes).lower():
                mode = os.environ.get("RAY_AUTH_MODE")
                none = "none is found here" if "no authentication token was found" in why else "refuses the one that is sent"
                sent = none if mode == "token" else f"none is sent, as RAY_AUTH_MODE is {mode or 'not set'}"
                line = f"the Ray at {at} asks for a token, and {sent}; set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or "
                line += "RAY_AUTH_TOKEN_PATH to that of the cluster"
            raise ClusterError("cluster-away", f"cluster.address: {line}") from error
        kinds = Counter(_kind(node["Resources"]) for node in ray.nodes() if node["Alive"])
        nodes = [NodeGroup(count, *kind) for kind, count in kinds.items()]
        self.resources = resources(nodes)
        try:
            self.pools = size_pools(requests, nodes, self.local, [] if self.local else _reported_node_groups())
        except ClusterError:
            self.close()
            raise

    def nodes(self) -> dict[str, int]:
        """Returns the number of nodes now, the head among them, by kind: `gpu` has accelerators, `cpu` has none."""
        import ray

        return dict(Counter("gpu" if node["Resources"].get("GPU") else "cpu" for node in ray.nodes() if node["Alive"]))

    def close(self) -> None:
        import ray

        ray.shutdown()


def _check_listens(address: str) -> None:
    """Raises OSError if nothing listens at HOST:PORT or ray://HOST:PORT within 3 s: `ray.init` would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdigit() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), 3.0).close()


def _without_traceback(text: str) -> str:
    """Returns the message of an error, with the last line alone of a stack trace in it."""
    begin, trace, rest = text.partition("Traceback (most recent call last):")
    return begin + rest.strip().rpartition("\n")[2] if trace else text


def _set_environment() -> None:
    """Sets the variables of WORKER_ENVIRONMENT in this process, unless they are set already."""
    for name, value in WORKER_ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def _logical_cpus(requests: Mapping[str, PoolRequest]) -> int:
    """Returns the most CPUs that the pools may request on this machine: Ray counts GPUs after it has started."""
    spare = any(request.takes_spare_gpus for request in requests.values())
    sized = [local_pools(requests, gpus) for gpus in ((0, _MOST_LOCAL_GPUS) if spare else (0,))]
    return max(math.ceil(sum(pool.max_workers * pool.cpus for pool in pools.values())) for pools in sized)


def chosen_address(queries: int, requests: Mapping[str, PoolRequest]) -> tuple[str, str]:
    """Returns the `cluster.address` of a job that has none, and why, in words."""
    if named := os.environ.get("RAY_ADDRESS"):
        return "auto", f"joins the Ray that RAY_ADDRESS names ({named})"
    if find_spec("ray") is None:
        return IN_PROCESS, 'works in this process: Ray is not installed (pip install "dmqr[ray]")'
    if gpus := usable_gpus(requests):
        return "local", f"starts a Ray of its own, which divides {gpus:g} GPUs among the workers"
    if queries <= MOST_IN_PROCESS:
        return IN_PROCESS, f"works in this process, without Ray: the log has {queries:,} of at most {MOST_IN_PROCESS:,} queries"
    return "local", f"starts a Ray of its own: the log has more than {MOST_IN_PROCESS:,} distinct queries ({queries:,})"


def usable_gpus(requests: Mapping[str, PoolRequest]) -> float:
    """Returns the GPUs of this process that the pools can use; none are looked for where no pool can use one."""
    return visible_gpus() if any(request.can_use_gpu for request in requests.values()) else 0.0


def visible_gpus() -> float:
    """Returns the number of GPUs that this process sees. Without an NVIDIA driver it does not import PyTorch."""
    if not Path("/dev/nvidiactl").exists():
        return 0.0
    import torch

    return float(torch.cuda.device_count())


def check_shared(storage: Storage, what: str) -> None:
    """Raises ClusterError if a node does not see what this process writes to the folder that the key `what` names.

    Storage on S3 always is shared; nodes that join later are not looked at.
    """
    if remote(storage.root):
        return
    key = probe_key()
    storage.put(key, b"1")
    try:
        seen = _seen_elsewhere(Path(storage.root, key))
    finally:
        storage.delete(key)
    if blind := sorted(node for node, sees in seen.items() if not sees):
        nodes = f"node {blind[0]} does" if len(blind) == 1 else f"{len(blind)} nodes ({blind[0]}, ...) do"
        problem = f"{storage.root} is a folder of this machine, and {nodes} not see what is written there"
        remedy = "name s3://BUCKET/FOLDER, or a folder that all nodes of the cluster share"
        raise ClusterError("storage-refused", f"{what}: {problem}; {remedy}")


def _seen_elsewhere(path: Path) -> dict[str, bool]:
    """Returns address of node -> whether it sees the file, of the other nodes that answer in time."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = ray.get_runtime_context().get_node_id()
    others = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != here}
    # num_cpus=0: busy nodes answer, too
    look = ray.remote(num_cpus=0, max_retries=0)(lambda file: file.is_file())  # Ray takes no method
    asked = {
        look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(path): node for node in others
    }
    answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=LOOK_SECONDS) if asked else ([], [])
    seen: dict[str, bool] = {}
    for answer in answered:
        try:
            seen[others[asked[answer]]] = ray.get(answer)
        except ray.exceptions.RayError:  # the node has died meanwhile: nothing is known of it
            continue
    return seen


def _reported_node_groups() -> list[NodeGroup]:
    """Returns the node groups that the cluster's autoscaler reports (KubeRay's does not), as Ray Data does, privately."""
    from ray._private.state import state

    config = state.get_cluster_config()
    groups = [] if config is None else config.node_group_configs
    counts = [UNLIMITED_NODES if group.max_count < 0 else group.max_count for group in groups]
    return [NodeGroup(count, *_kind(group.resources)) for count, group in zip(counts, groups, strict=True)]


def _kind(resources: Mapping[str, float]) -> tuple[float, float]:
    return float(resources.get("CPU", 0)), float(resources.get("GPU", 0))

"""The check that a folder of the file system is one folder for all nodes of a cluster."""

from pathlib import Path

from cluster.errors import ClusterError
from cluster.storage import Storage, probe_key, remote

LOOK_SECONDS = 60.0  # a node that starts no process within it is not judged


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

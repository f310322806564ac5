"""Three raylets and a job server on this machine, in a process of their own: `python cluster_nodes.py WORKERS CPUS`.

Prints one JSON line with the address of the job server, then answers each line of standard input with one of its own, until
that ends: `add CPUS` with the id of the new node, `kill NODE` and `kill head` with null. What is killed receives SIGKILL. It
runs under the interpreter that the nodes are to have, which need not be that of the tests.
"""

import contextlib
import json
import sys
from typing import Any

import psutil
from ray.cluster_utils import Cluster


def main() -> None:
    workers, cpus = int(sys.argv[1]), int(sys.argv[2])
    head = {"num_cpus": cpus, "include_dashboard": True, "dashboard_port": 0, "dashboard_agent_listen_port": 0}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(workers):
        add(cluster, cpus)
    answer({"address": f"http://{cluster.head_node.webui_url}"})
    for line in sys.stdin:
        answer(obey(cluster, *line.split()))
    cluster.shutdown()


def obey(cluster: Cluster, order: str, what: str) -> str | None:
    if order == "add":
        return add(cluster, int(what))
    if what == "head":
        kill_machine(cluster.head_node)
    else:
        (node,) = (one for one in cluster.worker_nodes if one.node_id == what)
        cluster.remove_node(node, allow_graceful=False)
    return None


def add(cluster: Cluster, cpus: int) -> str:
    """Returns the id of a new node. Its folder of packages is its own, since a node that unpacks one there removes it first."""
    number = len(cluster.worker_nodes)
    return str(cluster.add_node(num_cpus=cpus, runtime_env_dir_name=f"runtime_resources_{number}_{cpus}").node_id)


def kill_machine(node: Any) -> None:
    """Kills all that runs on a node, a submitted job's driver included, as the loss of its machine does."""
    started = [psutil.Process(one.pid) for _, one in node.live_processes()]
    for process in [one for parent in started for one in [parent, *parent.children(recursive=True)]]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def answer(value: object) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main()

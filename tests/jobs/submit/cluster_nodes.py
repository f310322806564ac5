"""Three raylets and a job server on this machine, in a process of their own: `python cluster_nodes.py WORKERS CPUS`.

Prints one JSON line with the address of the job server, then works until standard input ends. It runs under the interpreter
that the nodes are to have, which need not be that of the tests.
"""

from __future__ import annotations

import json
import os
import sys

from ray.cluster_utils import Cluster


def main() -> None:
    workers, cpus = int(sys.argv[1]), int(sys.argv[2])
    head = {"num_cpus": cpus, "include_dashboard": True, "dashboard_port": 0, "dashboard_agent_listen_port": 0}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(workers):
        cluster.add_node(num_cpus=cpus)
    address = {"address": f"http://{cluster.head_node.webui_url}", "pid": os.getpid()}
    print(json.dumps(address), flush=True)
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main()

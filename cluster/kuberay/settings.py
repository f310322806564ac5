"""Settings of the manifests for Kubernetes: frozen models of the config's `cluster.kubernetes`."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from cluster.settings import Settings

LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"  # DNS-1123, of namespaces and queues
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Port = Annotated[int, Field(gt=0, lt=65_536)]


def ip_and_port(address: str) -> tuple[str, int]:
    """Returns the IP, as a network of one, and the port of IP:PORT; ValueError if it is not that."""
    ip, _, port = address.rpartition(":")
    try:
        return str(ipaddress.ip_network(ip.strip("[]"))), int(port)
    except ValueError:
        raise ValueError(f"egress_addresses: {address!r} is no IP:PORT; write it like 169.254.170.23:80") from None


class SecretReference(Settings):
    """Where the value of an environment variable lies."""

    secret: Annotated[str, Field(min_length=1)]
    """Name of the Secret, in the same namespace."""
    key: Annotated[str, Field(min_length=1)]
    """Which of its keys."""


class TolerationSettings(Settings):
    """A taint of nodes that pods may run on."""

    key: Annotated[str, Field(min_length=1)]
    """Of the taint."""
    value: str | None = None
    """Of the taint; null: any."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = "NoSchedule"
    """Of the taint; null: any."""


class PodResources(Settings):
    """What a pod has, and which nodes it may run on."""

    cpus: Annotated[int, Field(gt=0)]
    """CPUs of a pod."""
    memory_gib: Annotated[int, Field(gt=0)]
    """Memory of a pod; half of it may be shared memory, where Ray keeps its objects."""
    disk_gib: Annotated[int, Field(gt=0)] | None = None
    """Disk of a pod (`ephemeral-storage`): copies of indexes and models, Ray's objects that do not fit into memory; null: what
    its node has left."""
    node_selector: dict[str, str] = {}
    """Labels that its node must have."""


class HeadResources(PodResources):
    """The pod of the head."""

    cpus: Annotated[int, Field(gt=0)] = 2
    """CPUs, for Ray's own processes and the driver."""
    memory_gib: Annotated[int, Field(gt=0)] = 8
    """Memory; half of it may be shared memory, where Ray keeps its objects."""


class CpuResources(PodResources):
    """A pod of workers without GPUs."""

    cpus: Annotated[int, Field(gt=0)] = 4
    """CPUs of a pod."""
    memory_gib: Annotated[int, Field(gt=0)] = 16
    """Memory of a pod; half of it may be shared memory, where Ray keeps its objects."""


class GpuResources(PodResources):
    """A pod of workers with GPUs."""

    cpus: Annotated[int, Field(gt=0)] = 8
    """CPUs for each GPU of the pod."""
    memory_gib: Annotated[int, Field(gt=0)] = 64
    """Memory for each GPU of the pod; half of it may be shared memory, where Ray keeps its objects."""


class KubernetesSettings(Settings):
    """What `submit --render` writes into manifests for Kubernetes; a run itself reads none of it."""

    image: Annotated[str, Field(min_length=1)] = "dmqr:0.1.0"
    """Image with this project, of this version."""
    gpu_image: Annotated[str, Field(min_length=1)] | None = None
    """Image of the workers that have GPUs; null: `image`."""
    namespace: Annotated[str, Field(pattern=LABEL)] = "dmqr"
    """Namespace of everything that is rendered; it is not created."""
    queue: Annotated[str, Field(pattern=LABEL)] = "default"
    """Kueue's LocalQueue, for `kueue`."""
    schedule: Annotated[str, Field(pattern=r"^(@[a-z]+|\S+( \S+){4})$")] = "30 1 * * *"
    """When `cron` starts a night, in cron's five fields."""
    time_zone: str = "Etc/UTC"
    """Of `schedule`. The log of a night is that of the day before, in UTC."""
    service_account: str | None = None
    """ServiceAccount of the pods, such as one with rights on a bucket; it must be there. null: the operator's for the head,
    the namespace's default for workers."""
    env: dict[str, str] = {}
    """Environment variables of all pods that are no secrets, such as ELASTICSEARCH_URL."""
    secrets: dict[str, SecretReference] = {}
    """Environment variables of all pods whose values lie in Secrets."""
    auth_secret: str | None = None
    """Secret with Ray's token (key auth_token); null: the operator makes one for each cluster."""
    user: Annotated[int, Field(gt=0)] = 1000
    """User and group id of all processes."""
    head: HeadResources = HeadResources()
    """The head: driver, no workers. It should run on nodes that are not taken away."""
    cpu_workers: CpuResources = CpuResources()
    """A pod for workers without GPUs."""
    gpu_workers: GpuResources = GpuResources()
    """A pod for workers with GPUs."""
    gpu_resource: Annotated[str, Field(pattern=r".gpu$")] = "nvidia.com/gpu"
    """The nodes' name for a GPU."""
    tolerations: list[TolerationSettings] = [
        TolerationSettings(key="cloud.google.com/gke-spot", value="true"),
        TolerationSettings(key="kubernetes.azure.com/scalesetpriority", value="spot"),
    ]
    """Taints that workers tolerate, so that they may run on spot nodes; those with GPUs also tolerate one named like
    `gpu_resource`, the head none."""
    autoscale: bool = True
    """true: pods of workers come when work asks for them, and go when they are idle; false: as many as the pools may have, from
    the start. For `kueue`, which admits a job as a whole, pods come and go only where a pool has {min, max}."""
    idle_seconds: Annotated[int, Field(ge=10)] = 60
    """After which an idle pod goes."""
    deadline_seconds: Annotated[int, Field(ge=600)] | None = None
    """Longest time of an attempt; null: by the last finished run of the same name and settings, else eight hours."""
    retries: Annotated[int, Field(ge=0)] = 2
    """New clusters after a failed one; each goes on where the last has committed."""
    keep_head_seconds: Annotated[int, Field(ge=0)] = 86_400
    """How long the head stays after the end, for its logs; the RayJob itself stays seven times as long. Not for `kueue`."""
    egress_ports: list[Port] = [443, 6443, 9200]
    """TCP ports outside that pods may reach (S3 and hubs, Kubernetes, Elasticsearch); those of servers of models and of the
    collector of traces are added."""
    egress_addresses: list[str] = []
    """Further addresses that pods may reach, as IP:PORT. Needed where credentials come from a server on the node:
    169.254.170.23:80 for EKS Pod Identity, 169.254.169.254:80 for a cloud's metadata server."""
    monitoring_namespace: Annotated[str, Field(pattern=LABEL)] | None = None
    """Namespace whose pods may read Ray's metrics; null: none."""

    @model_validator(mode="after")
    def _each_variable_once(self) -> KubernetesSettings:
        for name in (*self.env, *self.secrets):
            if not VARIABLE.fullmatch(name):
                raise ValueError(f"{name!r} cannot be the name of a variable; use letters, digits and underscores")
        for address in self.egress_addresses:
            ip_and_port(address)
        if both := sorted(self.env.keys() & self.secrets.keys()):
            raise ValueError(f"{both[0]} stands in env and in secrets; remove it from one of them")
        return self

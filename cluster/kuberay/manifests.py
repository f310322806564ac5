"""The objects of Kubernetes for a job: RayJob of KubeRay 1.7, NetworkPolicies, and the CronJob that creates it every night.

`manifest_template.yaml` has what they all say: pods are non-root, with a read-only root file system, folders where Ray and its
libraries write, and secrets by reference. KubeRay's RayCronJob has no concurrencyPolicy: a night that lasts longer than a day
would meet the next one. `Forbid` of a CronJob helps only while its own Job is there, so that Job stays until the RayJob has
ended (`cluster/kuberay/create.py`).
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cluster.errors import ConfigError
from cluster.kuberay.settings import KubernetesSettings, PodResources, TolerationSettings, ip_and_port
from cluster.kuberay.worker_groups import WorkerGroup

Manifest = dict[str, Any]

CONFIG_FOLDER = "/etc/dmqr"  # the config, its prices and text files, from a ConfigMap
STOP_WAIT = "RAY_JOB_STOP_WAIT_TIME_S"  # of the job server; 3 without it, too few to commit the shards under way
LONGEST_NAME = 47  # of a RayJob: its cluster's name and its services' are longer, and are names of hosts
_AUTOSCALER_V2 = "RAY_enable_autoscaler_v2"
_MOST_GROUPS_OF_KUEUE = 17
_KEPT_AS_LONG = 7  # times as long as the head, the RayJob is kept: its status tells how the night ended
_KUEUE_TTL_SECONDS = 60
_KUBERNETES = (443, 6443)  # the address of its service, and what stands behind it where a policy sees that
_BEYOND_SECONDS = 3600  # what creating and the changes between attempts may take beside the deadlines


def rayjob(
    name: str,
    job: str,
    settings: KubernetesSettings,
    groups: Sequence[WorkerGroup],
    entrypoint: str,
    deadline_seconds: int,
    config_map: Manifest,
    kueue: bool,
    kill_seconds: int,
) -> Manifest:
    """Returns a RayJob.

    Its cluster is deleted by rules, without Kueue: the head after `keep_head_seconds`, the workers at once. The operator takes
    no rule DeleteWorkers for a cluster with an autoscaler; there it is the autoscaler that lets idle workers go. Kueue asks
    for `shutdownAfterJobFinishes`, which excludes rules.

    With an autoscaler a worker group begins with no pod: so none waits while the log is read, and none stays when the job has
    ended. To Kueue, which admits what is there at the start, it says the least that the pools need.

    Args:
        name: Of the RayJob.
        job: Value of the label of all pods.
        settings: Images, sizes, times.
        groups: Worker groups.
        entrypoint: Command line of the driver, which runs on the head.
        deadline_seconds: Longest time of an attempt, waiting for nodes included.
        config_map: Volume with the config.
        kueue: Whether Kueue admits the job.
        kill_seconds: Between the SIGTERM and the SIGKILL that end the driver, or its pod.
    """
    scales = settings.autoscale and (not kueue or any(group.least < group.most for group in groups))
    pods = {"job": job, "user": settings.user, "config_map": config_map}
    pods |= {"small_image": settings.image, "service_account": settings.service_account or None}
    workers = []
    for group in groups:
        least = 0 if scales and not kueue else group.least if scales else group.most
        size = settings.gpu_workers if group.gpus else settings.cpu_workers
        taints = [*settings.tolerations, *([TolerationSettings(key=settings.gpu_resource)] if group.gpus else [])]
        own = {"group": group.name, "least": least, "most": group.most, "tolerations": list(map(_toleration, taints))}
        workers.append(_filled("worker_group", pods | own | _sized(settings, size, group.cpus, group.gpus)))
    head = _sized(settings, settings.head, settings.head.cpus, 0)
    if STOP_WAIT not in settings.env:
        head["env"].append({"name": STOP_WAIT, "value": str(kill_seconds)})
    values = {
        "name": name,
        "namespace": settings.namespace,
        "queue": settings.queue if kueue else None,
        "annotations": {"kueue.x-k8s.io/elastic-job": "true"} if kueue and scales else None,
        "entrypoint": entrypoint,
        "deadline_seconds": deadline_seconds,
        "retries": settings.retries,
        "shuts_down": True if kueue else None,
        "kept_seconds": _KUEUE_TTL_SECONDS if kueue else None,
        "deletion": None if kueue else {"deletionRules": _deletion_rules(settings, scales)},
        "ray_version": importlib.metadata.version("ray"),
        "auth_secret": settings.auth_secret or None,
        "scales": scales,
        "autoscaler": _filled("autoscaler", {"idle_seconds": settings.idle_seconds}) if scales else None,
        "kill_seconds": kill_seconds,
        "groups": workers,
    }
    return dict(_filled("rayjob", pods | head | values))


def job_policy(name: str, job: str, settings: KubernetesSettings, more_ports: Iterable[int]) -> Manifest:
    """Returns the NetworkPolicy of a job's pods.

    They reach each other; the operator reaches the dashboard, monitoring the metrics, and nobody else anything.

    Args:
        name: Of the policy.
        job: Value of the pods' label.
        settings: With the ports outside that are reached.
        more_ports: Further ones.
    """
    monitoring, addresses = settings.monitoring_namespace, map(ip_and_port, settings.egress_addresses)
    values = {
        "name": name,
        "namespace": settings.namespace,
        "job": job,
        "monitoring": _filled("monitoring", {"monitoring_namespace": monitoring}) if monitoring else None,
        "ports": _ports({*settings.egress_ports, *more_ports}),
        "addresses": [{"to": [{"ipBlock": {"cidr": block}}], "ports": _ports({port})} for block, port in addresses],
    }
    return dict(_filled("policy", values))


def nightly(name: str, job: Manifest, settings: KubernetesSettings) -> list[Manifest]:
    """Returns ServiceAccount, Role, RoleBinding, ConfigMap, NetworkPolicy and CronJob.

    Args:
        name: Of all of them.
        job: The RayJob; `{date}` in any of its texts is replaced when it is created.
        settings: Image, schedule, namespace; where Kubernetes answers on another port, `egress_ports` has it.
    """
    values = {
        "name": name,
        "namespace": settings.namespace,
        "rayjob": json.dumps(job, indent=1, ensure_ascii=False) + "\n",
        "ports": _ports({*_KUBERNETES, *settings.egress_ports}),
        "schedule": settings.schedule,
        "time_zone": settings.time_zone,
        "deadline_seconds": (job["spec"]["backoffLimit"] + 1) * job["spec"]["activeDeadlineSeconds"] + _BEYOND_SECONDS,
        "user": settings.user,
        "small_image": settings.image,
    }
    return list(_filled("nightly", values))


def check_rayjob(manifest: Manifest) -> None:
    """Refuses what a config can make of a RayJob that KubeRay 1.7's operator or Kueue 0.19 would refuse.

    The operator takes such an object and says so in its status only, hours later perhaps.

    Raises:
        ConfigError: With the reason.
    """
    metadata, cluster = manifest["metadata"], manifest["spec"]["rayClusterSpec"]
    (head,) = cluster["headGroupSpec"]["template"]["spec"]["containers"]
    variable = next((one.get("value") for one in head["env"] if one["name"] == _AUTOSCALER_V2), None)
    queued = "kueue.x-k8s.io/queue-name" in metadata["labels"]
    if cluster["enableInTreeAutoscaling"] and variable is not None:
        why = f"{_AUTOSCALER_V2} and autoscalerOptions.version say the same; remove the variable"
    elif variable in ("1", "true"):
        why = f"{_AUTOSCALER_V2} needs enableInTreeAutoscaling; set it, or remove the variable"
    elif queued and len(cluster["workerGroupSpecs"]) > _MOST_GROUPS_OF_KUEUE:
        why = f"Kueue admits {_MOST_GROUPS_OF_KUEUE} worker groups; let pools have the same number of GPUs"
    else:
        return
    raise ConfigError("manifest", f"RayJob {metadata['name']}: {why}")


@functools.cache
def _template() -> Manifest:
    return dict(yaml.safe_load(Path(__file__).with_name("manifest_template.yaml").read_text(encoding="utf-8")))


def _filled(part: str, values: Mapping[str, Any]) -> Any:
    """Returns a part of the template with its values."""

    def fill(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: value for key, one in node.items() if (value := fill(one)) is not None}
        if isinstance(node, list):
            filled = [value for one in node if (value := fill(one)) is not None]
            return [one for value in filled for one in (value if isinstance(value, list) else [value])]
        return values[node[1:]] if isinstance(node, str) and node.startswith("$") else node

    return fill(_template()[part])


def _sized(settings: KubernetesSettings, size: PodResources, cpus: int, gpus: int) -> Manifest:
    """Returns what pods of Ray say of their size and node; memory is of each GPU, where there are any."""
    memory = size.memory_gib * max(1, gpus)
    quantities = {"cpu": str(cpus), "memory": f"{memory}Gi"}
    if size.disk_gib is not None:
        quantities["ephemeral-storage"] = f"{size.disk_gib}Gi"
    if gpus:
        quantities[settings.gpu_resource] = str(gpus)
    return {
        "image": (settings.gpu_image if gpus else None) or settings.image,
        "quantities": quantities,
        "env": _environment(settings),
        "shared_memory": f"{memory // 2 or 1}Gi",
        "node_selector": dict(size.node_selector) or None,
    }


def _environment(settings: KubernetesSettings) -> list[Manifest]:
    """Returns the variables of a pod of Ray; the operator adds RAY_AUTH_MODE and RAY_AUTH_TOKEN, from its Secret."""
    own = {one["name"]: one["value"] for one in _template()["folders"]}
    own |= {"DMQR_CACHE": "/cache/dmqr", "RAY_USAGE_STATS_ENABLED": "0"}
    values = [*((name, own[name]) for name in own if name not in settings.env), *sorted(settings.env.items())]
    found: list[Manifest] = [{"name": name, "value": value} for name, value in values]
    return found + [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": one.secret, "key": one.key}}}
        for name, one in sorted(settings.secrets.items())
    ]


def _toleration(taint: TolerationSettings) -> Manifest:
    found = {"key": taint.key, "operator": "Exists"}
    if taint.value is not None:
        found |= {"operator": "Equal", "value": taint.value}
    return found | ({} if taint.effect is None else {"effect": taint.effect})


def _deletion_rules(settings: KubernetesSettings, scales: bool) -> list[Manifest]:
    """Returns the rules for every end: succeeded, failed, and failed without an end of the job itself (over its deadline)."""
    head = settings.keep_head_seconds
    times = ({} if scales else {"DeleteWorkers": 0}) | {"DeleteCluster": head, "DeleteSelf": head * _KEPT_AS_LONG}
    ends = ({"jobStatus": "SUCCEEDED"}, {"jobStatus": "FAILED"}, {"jobDeploymentStatus": "Failed"})
    return [{"policy": policy, "condition": end | {"ttlSeconds": seconds}} for end in ends for policy, seconds in times.items()]


def _ports(ports: set[int]) -> list[Manifest]:
    return [{"port": port, "protocol": "TCP"} for port in sorted(ports)]

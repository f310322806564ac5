"""The RayJob of KubeRay 1.7: head, worker groups, deadline, and what becomes of the cluster afterwards."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from typing import Any

from cluster.kuberay.pods import CONTAINER_SECURITY, JOB_LABEL, Manifest, mounts, ray_pod, small_pod
from cluster.kuberay.settings import KubernetesSettings, PodResources
from cluster.kuberay.worker_groups import WorkerGroup

_KUEUE = "kueue.x-k8s.io"
_KEPT_AS_LONG = 7  # times as long as the head, the RayJob is kept: its status tells how the night ended
STOP_WAIT = "RAY_JOB_STOP_WAIT_TIME_S"  # of the job server; 3 without it, too few to commit the shards under way
_KUEUE_TTL_SECONDS = 60
_SUBMITTER_RETRIES = 3  # of the pod that submits: it finds the job under its id and follows it


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
    metadata: Manifest = {"name": name, "namespace": settings.namespace, "labels": {JOB_LABEL: job}}
    if kueue:
        metadata["labels"][f"{_KUEUE}/queue-name"] = settings.queue
        if scales:
            metadata["annotations"] = {f"{_KUEUE}/elastic-job": "true"}
    spec: Manifest = {
        "entrypoint": entrypoint,
        "submissionMode": "K8sJobMode",  # the only mode whose every container can be given a read-only root file system
        "submitterConfig": {"backoffLimit": _SUBMITTER_RETRIES},
        "submitterPodTemplate": small_pod({JOB_LABEL: job}, "ray-job-submitter", settings, token=False),
        "activeDeadlineSeconds": deadline_seconds,
        "backoffLimit": settings.retries,  # a new cluster goes on where the last has committed shards
    }
    if kueue:
        spec |= {"shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": _KUEUE_TTL_SECONDS}
    else:
        spec["deletionStrategy"] = {"deletionRules": _deletion_rules(settings, scales)}
    cluster = _cluster(job, settings, groups, config_map, scales, kueue)
    head = cluster["headGroupSpec"]["template"]["spec"]
    head["terminationGracePeriodSeconds"] = kill_seconds
    if STOP_WAIT not in settings.env:
        head["containers"][0]["env"].append({"name": STOP_WAIT, "value": str(kill_seconds)})
    spec["rayClusterSpec"] = cluster
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata, "spec": spec}


def _cluster(
    job: str, settings: KubernetesSettings, groups: Sequence[WorkerGroup], config_map: Manifest, scales: bool, kueue: bool
) -> Manifest:
    auth: Manifest = {"mode": "token"} | ({"secretName": settings.auth_secret} if settings.auth_secret else {})
    spec: Manifest = {"rayVersion": importlib.metadata.version("ray"), "authOptions": auth}
    spec["enableInTreeAutoscaling"] = scales
    if scales:
        spec["autoscalerOptions"] = {
            "version": "v2",
            "idleTimeoutSeconds": settings.idle_seconds,
            "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"cpu": "500m", "memory": "1Gi"}},
            "securityContext": CONTAINER_SECURITY,
            "env": [{"name": "HOME", "value": "/cache"}],
            "volumeMounts": mounts(),
        }
    spec["headGroupSpec"] = {
        "serviceType": "ClusterIP",  # the dashboard is for the cluster's own pods, by the NetworkPolicy and with the token
        "enableIngress": False,
        "rayStartParams": {"num-cpus": "0", "num-gpus": "0"},  # no work beside the driver
        "template": ray_pod(job, "ray-head", settings, settings.head, settings.head.cpus, 0, config_map, is_head=True),
    }
    spec["headGroupSpec"]["template"]["spec"]["automountServiceAccountToken"] = scales  # for the autoscaler beside it
    spec["workerGroupSpecs"] = [_group(job, settings, group, config_map, scales, kueue) for group in groups]
    return spec


def _group(
    job: str, settings: KubernetesSettings, group: WorkerGroup, config_map: Manifest, scales: bool, kueue: bool
) -> Manifest:
    """Returns a worker group.

    With an autoscaler it begins with no pod: so none waits while the log is read, and none stays when the job has ended. To
    Kueue, which admits what is there at the start, it says the least that the pools need.
    """
    least = 0 if scales and not kueue else group.least if scales else group.most
    size: PodResources = settings.gpu_workers if group.gpus else settings.cpu_workers
    return {
        "groupName": group.name,
        "replicas": least,
        "minReplicas": least,
        "maxReplicas": group.most,
        "rayStartParams": {},
        "template": ray_pod(job, "ray-worker", settings, size, group.cpus, group.gpus, config_map, is_head=False),
    }


def _deletion_rules(settings: KubernetesSettings, scales: bool) -> list[dict[str, Any]]:
    """Returns the rules for every end: succeeded, failed, and failed without an end of the job itself (over its deadline)."""
    head, job = settings.keep_head_seconds, settings.keep_head_seconds * _KEPT_AS_LONG
    times = {} if scales else {"DeleteWorkers": 0}
    times |= {"DeleteCluster": head, "DeleteSelf": job}
    ends = ({"jobStatus": "SUCCEEDED"}, {"jobStatus": "FAILED"}, {"jobDeploymentStatus": "Failed"})
    return [{"policy": policy, "condition": end | {"ttlSeconds": seconds}} for end in ends for policy, seconds in times.items()]

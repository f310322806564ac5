"""Pod templates: non-root, read-only root file system, folders where Ray and its libraries write, secrets by reference."""

from __future__ import annotations

from typing import Any

from cluster.kuberay.settings import KubernetesSettings, PodResources, TolerationSettings

Manifest = dict[str, Any]

CONFIG_FOLDER = "/etc/dmqr"  # the config, its prices and text files, from a ConfigMap
JOB_LABEL = "dmqr/job"  # selects the pods of a job; KubeRay keeps labels that are not its own
_CACHE = "/cache"
_GRACE_SECONDS = 120  # what clouds leave a spot node, at most
_FOLDERS = {"scratch": "/tmp", "cache": _CACHE}  # Ray writes below /tmp/ray
CONTAINER_SECURITY: Manifest = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
}


def ray_pod(
    job: str,
    container: str,
    settings: KubernetesSettings,
    size: PodResources,
    cpus: int,
    gpus: int,
    config_map: Manifest,
    *,
    is_head: bool,
) -> Manifest:
    """Returns the template of a pod of Ray.

    Args:
        job: Name of the job, the value of JOB_LABEL.
        container: Name of its container.
        settings: Images, variables, user.
        size: Memory (of each GPU, where there are any) and nodes.
        cpus: CPUs of the pod.
        gpus: GPUs of the pod.
        config_map: Volume at CONFIG_FOLDER. Workers are given their settings by Ray, and read the files of guards.
        is_head: Whether it is the head's, which runs on no spot node.
    """
    memory = size.memory_gib * max(1, gpus)
    quantities: Manifest = {"cpu": str(cpus), "memory": f"{memory}Gi"}
    if size.disk_gib is not None:
        quantities["ephemeral-storage"] = f"{size.disk_gib}Gi"
    if gpus:
        quantities[settings.gpu_resource] = str(gpus)
    pod = _pod(
        settings,
        {
            "name": container,
            "image": (settings.gpu_image if gpus else None) or settings.image,
            "resources": {"requests": quantities, "limits": dict(quantities)},
            "env": _environment(settings),
            "volumeMounts": [
                *mounts(),
                {"name": "shared-memory", "mountPath": "/dev/shm"},
                {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
            ],
        },
        token=False,
    )  # fmt: skip
    pod["volumes"].append({"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": f"{memory // 2 or 1}Gi"}})
    pod["volumes"].append({"name": "config", "configMap": config_map})
    if not is_head:
        pod["terminationGracePeriodSeconds"] = _GRACE_SECONDS
        taints = [*settings.tolerations, *([TolerationSettings(key=settings.gpu_resource)] if gpus else [])]
        pod["tolerations"] = [_toleration(taint) for taint in taints]
    if size.node_selector:
        pod["nodeSelector"] = dict(size.node_selector)
    if settings.service_account:
        pod["serviceAccountName"] = settings.service_account
    return {"metadata": {"labels": {JOB_LABEL: job}}, "spec": pod}


def small_pod(labels: dict[str, str], container: str, settings: KubernetesSettings, *, token: bool, **more: Any) -> Manifest:
    """Returns the template of a pod that only speaks to others: one that submits, or one that creates a RayJob.

    Args:
        labels: Of the pod.
        container: Name of its container.
        settings: Image and user.
        token: Whether it speaks to Kubernetes.
        more: Further keys of the container; volume mounts and variables are added to those of the folders.
    """
    volume_mounts = mounts() + more.pop("volumeMounts", [])
    resources = {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    one = {"name": container, "image": settings.image, "resources": resources, "volumeMounts": volume_mounts,
           "env": _folders() + more.pop("env", []), **more}  # fmt: skip
    return {"metadata": {"labels": labels}, "spec": _pod(settings, one, token=token)}


def mounts() -> list[Manifest]:
    """Returns the mounts of the folders that processes write to, since the root file system is read-only."""
    return [{"name": name, "mountPath": path} for name, path in _FOLDERS.items()]


def _pod(settings: KubernetesSettings, container: Manifest, *, token: bool) -> Manifest:
    return {
        "automountServiceAccountToken": token,
        "restartPolicy": "Never",  # the autoscaler's second version takes no other; a lost pod is replaced by another
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": settings.user,
            "runAsGroup": settings.user,
            "fsGroup": settings.user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container | {"securityContext": CONTAINER_SECURITY}],
        "volumes": [{"name": name, "emptyDir": {}} for name in _FOLDERS],
    }


def _toleration(taint: TolerationSettings) -> Manifest:
    found = {"key": taint.key, "operator": "Exists"}
    if taint.value is not None:
        found |= {"operator": "Equal", "value": taint.value}
    return found | ({} if taint.effect is None else {"effect": taint.effect})


def _folders() -> list[Manifest]:
    values = {"HOME": _CACHE, "XDG_CACHE_HOME": _CACHE, "TMPDIR": _FOLDERS["scratch"]}
    return [{"name": name, "value": value} for name, value in values.items()]


def _environment(settings: KubernetesSettings) -> list[Manifest]:
    """Returns the variables of a pod of Ray; the operator adds RAY_AUTH_MODE and RAY_AUTH_TOKEN, from its Secret."""
    own = {"DMQR_CACHE": f"{_CACHE}/dmqr", "RAY_USAGE_STATS_ENABLED": "0"}
    named: list[Manifest] = [{"name": name, "value": value} for name, value in own.items() if name not in settings.env]
    named += [{"name": name, "value": value} for name, value in sorted(settings.env.items())]
    named += [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": one.secret, "key": one.key}}}
        for name, one in sorted(settings.secrets.items())
    ]
    return [one for one in _folders() if one["name"] not in settings.env] + named

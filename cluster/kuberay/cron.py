"""A CronJob of Kubernetes that creates a RayJob every night and waits for its end, with what it needs.

KubeRay's RayCronJob has no concurrencyPolicy: a night that lasts longer than a day would meet the next one. `Forbid` of a
CronJob helps only while its own Job is there, so that Job stays until the RayJob has ended (`cluster/kuberay/create.py`).
"""

from __future__ import annotations

import json

from cluster.kuberay.create import FAILED, JOB_VARIABLE
from cluster.kuberay.network import creator_policy
from cluster.kuberay.pods import Manifest, small_pod
from cluster.kuberay.settings import KubernetesSettings

LABEL = "dmqr/creates"
_FOLDER, _FILE = "/etc/rayjob", "rayjob.json"
_LATEST_START_SECONDS = 6 * 3600  # behind its time, when the cluster was away
_JOB_LABEL = "metadata.labels['batch.kubernetes.io/job-name']"  # Kubernetes gives it to a Job's pods, since 1.27
_KEPT = 3  # nights that succeeded, and that failed
_BEYOND_SECONDS = 3600  # what creating and the changes between attempts may take beside the deadlines


def nightly(name: str, job: Manifest, settings: KubernetesSettings) -> list[Manifest]:
    """Returns ServiceAccount, Role, RoleBinding, ConfigMap, NetworkPolicy and CronJob.

    Args:
        name: Of all of them.
        job: The RayJob; `{date}` in any of its texts is replaced when it is created.
        settings: Image, schedule, namespace.
    """
    metadata = {"name": name, "namespace": settings.namespace}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, "automountServiceAccountToken": False}
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": metadata,
        "rules": [{"apiGroups": ["ray.io"], "resources": ["rayjobs"], "verbs": ["create", "get"]}],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": settings.namespace}],
    }
    text = json.dumps(job, indent=1, ensure_ascii=False) + "\n"
    kept = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {_FILE: text}}
    policy = creator_policy(name, {LABEL: name}, settings)
    return [account, role, binding, kept, policy, _cron_job(name, job, settings)]


def _cron_job(name: str, job: Manifest, settings: KubernetesSettings) -> Manifest:
    template = small_pod(
        {LABEL: name},
        "create",
        settings,
        token=True,
        command=["python", "-m", "cluster.kuberay.create", f"{_FOLDER}/{_FILE}"],
        env=[{"name": JOB_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": _JOB_LABEL}}}],
        volumeMounts=[{"name": "rayjob", "mountPath": _FOLDER, "readOnly": True}],
    )
    template["spec"]["serviceAccountName"] = name
    template["spec"]["volumes"].append({"name": "rayjob", "configMap": {"name": name}})
    attempts = job["spec"]["backoffLimit"] + 1
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name, "namespace": settings.namespace},
        "spec": {
            "schedule": settings.schedule,
            "timeZone": settings.time_zone,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": _LATEST_START_SECONDS,
            "successfulJobsHistoryLimit": _KEPT,
            "failedJobsHistoryLimit": _KEPT,
            "jobTemplate": {
                "spec": {
                    "activeDeadlineSeconds": attempts * job["spec"]["activeDeadlineSeconds"] + _BEYOND_SECONDS,
                    "backoffLimit": 3,  # another pod finds the RayJob under its name, and follows it
                    "podFailurePolicy": {
                        "rules": [
                            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [FAILED]}},
                        ]
                    },
                    "template": template,
                }
            },
        },
    }

"""What KubeRay 1.7's operator and Kueue 0.19 refuse of a RayJob: nothing that is rendered may be refused.

The rules are those of the operator's `ValidateRayJobSpec` and `ValidateRayClusterSpec`, as far as they concern fields that are
rendered or may come to be. Those that a config can break are checked before a manifest is written, too (`check_rayjob`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from cluster.kuberay.manifests import LONGEST_NAME, Manifest

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")  # DNS-1035
_VERSION = re.compile(r"v?(\d+)\.(\d+)(\.\d+)*([-+.]?[0-9A-Za-z.+-]*)?")
_TOKENS_SINCE = (2, 52)
_MOST_GROUPS_OF_KUEUE = 17
_ORDER = ("DeleteWorkers", "DeleteCluster", "DeleteSelf")
_GATED = ("networkPolicy", "tlsOptions", "historyServerOptions")
_AUTOSCALER_V2 = "RAY_enable_autoscaler_v2"
_RESOURCES = ("num-cpus", "num-gpus", "memory", "resources")


def refusals(manifest: Manifest) -> Iterator[str]:
    """Yields what would be refused of a RayJob, each as `what; remedy`."""
    metadata, spec = manifest["metadata"], manifest["spec"]
    name = metadata.get("name", "")
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        yield (f"its name must begin with a letter and have at most {LONGEST_NAME} small letters, digits and dashes; "
               "change the config's name")  # fmt: skip
    yield from _job(spec)
    yield from _deletion(spec)
    cluster = spec.get("rayClusterSpec")
    if cluster is not None:
        yield from _cluster(cluster)
    if "kueue.x-k8s.io/queue-name" in metadata.get("labels", {}):
        yield from _kueue(metadata, spec)


def _job(spec: Manifest) -> Iterator[str]:
    mode, selects = spec.get("submissionMode", "K8sJobMode"), bool(spec.get("clusterSelector"))
    if not selects and spec.get("rayClusterSpec") is None:
        yield "rayClusterSpec and clusterSelector are missing; give one of them"
    if selects and (spec.get("backoffLimit") or 0) > 0:
        yield "backoffLimit makes new clusters, and clusterSelector has one; remove one of them"
    if spec.get("suspend") and not spec.get("shutdownAfterJobFinishes"):
        yield "suspend needs shutdownAfterJobFinishes: true; set it"
    if spec.get("suspend") and selects:
        yield "a job with clusterSelector cannot be suspended; remove suspend"
    if mode == "InteractiveMode" and (spec.get("backoffLimit") or 0) > 0:
        yield "InteractiveMode has no backoffLimit; remove it"
    if mode == "SidecarMode":
        for key in ("submitterConfig", "submitterPodTemplate", "clusterSelector"):
            if spec.get(key):
                yield f"SidecarMode has no {key}; remove it, or take K8sJobMode"
        head = spec.get("rayClusterSpec", {}).get("headGroupSpec", {})
        if _restarts(head):
            yield "SidecarMode wants the head's restartPolicy to be Never; set it"
    for key in ("activeDeadlineSeconds", "preRunningDeadlineSeconds"):
        if spec.get(key) is not None and spec[key] <= 0:
            yield f"{key} must be positive; raise it"
    for key in ("backoffLimit", "ttlSecondsAfterFinished"):
        if (spec.get(key) or 0) < 0:
            yield f"{key} must not be negative; raise it"


def _deletion(spec: Manifest) -> Iterator[str]:
    shuts_down = bool(spec.get("shutdownAfterJobFinishes"))
    if not shuts_down and (spec.get("ttlSecondsAfterFinished") or 0) > 0:
        yield "ttlSecondsAfterFinished needs shutdownAfterJobFinishes: true; set it, or remove the time"
    strategy = spec.get("deletionStrategy")
    if strategy is None:
        return
    rules, older = strategy.get("deletionRules"), [key for key in ("onSuccess", "onFailure") if key in strategy]
    if rules and shuts_down:
        yield "deletionRules exclude shutdownAfterJobFinishes; remove one of them"
    if rules and older:
        yield f"deletionRules exclude {older[0]}; remove one of them"
    if not rules and len(older) < 2:
        yield "deletionStrategy has no deletionRules; add them, or remove it"
    scales = bool(spec.get("rayClusterSpec", {}).get("enableInTreeAutoscaling"))
    times: dict[tuple[Any, Any], dict[str, int]] = {}
    for rule in rules or []:
        policy, condition = rule["policy"], rule["condition"]
        end = (condition.get("jobStatus"), condition.get("jobDeploymentStatus"))
        if (end[0] is None) == (end[1] is None):
            yield "a deletion rule needs one of jobStatus and jobDeploymentStatus; give one"
        if condition.get("ttlSeconds", 0) < 0:
            yield "ttlSeconds of a deletion rule must not be negative; raise it"
        if policy == "DeleteWorkers" and scales:
            yield "the rule DeleteWorkers excludes an autoscaler; set cluster.kubernetes.autoscale: false, or remove the rule"
        if policy in ("DeleteWorkers", "DeleteCluster") and spec.get("clusterSelector"):
            yield f"the rule {policy} excludes clusterSelector; remove the rule"
        if policy in times.setdefault(end, {}):
            yield f"there are two rules {policy} for {end[0] or end[1]}; remove one"
        times[end][policy] = condition.get("ttlSeconds", 0)
    for end, found in times.items():
        ordered = [found[policy] for policy in _ORDER if policy in found]
        if ordered != sorted(ordered):
            yield f"rules for {end[0] or end[1]} delete what holds something before what it holds; order their ttlSeconds"


def _cluster(spec: Manifest) -> Iterator[str]:
    head, workers, scales = spec["headGroupSpec"], spec.get("workerGroupSpecs", []), bool(spec.get("enableInTreeAutoscaling"))
    for group in (head, *workers):
        yield from _group(group, scales)
    names = [group["groupName"] for group in workers]
    if len(set(names)) < len(names):
        yield "two worker groups have one name; rename one"
    yield from _autoscaler(spec, head, workers, scales)
    auth = spec.get("authOptions", {})
    if auth.get("enableK8sTokenAuth"):
        yield "a RayJob cannot authenticate by tokens of Kubernetes; remove enableK8sTokenAuth"
    if auth.get("mode") == "token":
        version = str(spec.get("rayVersion", ""))
        found = _VERSION.fullmatch(version)
        if not version:
            yield "authOptions.mode token needs rayVersion; set it"
        elif found is None:
            yield f"rayVersion {version!r} is no version; write it like 2.60.0"
        elif (int(found[1]), int(found[2])) < _TOKENS_SINCE:
            yield f"authOptions.mode token needs Ray 2.52 or later, and rayVersion is {version}; use a later one"
    for key in _GATED:
        if key in spec:
            yield f"rayClusterSpec.{key} needs a feature gate that is off; remove it"
    if spec.get("gcsFaultToleranceOptions", {}).get("backend") == "rocksdb":
        yield "gcsFaultToleranceOptions.backend rocksdb needs a feature gate that is off; remove it"


def _group(group: Manifest, scales: bool) -> Iterator[str]:
    name, parameters = group.get("groupName", "head"), group.get("rayStartParams", {})
    if not group["template"]["spec"].get("containers"):
        yield f"group {name} has no container; add one"
    if group.get("resources") and any(key in parameters for key in _RESOURCES):
        yield f"group {name} has resources and the same in rayStartParams; remove one of them"
    if "labels" in parameters:
        yield f"group {name} has labels in rayStartParams; use the group's labels"
    if "groupName" not in group:
        return
    least, most = group.get("minReplicas"), group.get("maxReplicas")
    if not scales and (least is None or most is None):
        yield f"group {name} needs minReplicas and maxReplicas where there is no autoscaler; set both"
    if (least or 0) < 0 or (most or 0) < 0:
        yield f"group {name} has a negative number of pods; raise it"
    elif least is not None and most is not None and least > most:
        yield f"group {name} has minReplicas {least} and maxReplicas {most}; lower the first"


def _autoscaler(spec: Manifest, head: Manifest, workers: list[Manifest], scales: bool) -> Iterator[str]:
    version = spec.get("autoscalerOptions", {}).get("version")
    containers = head["template"]["spec"].get("containers") or [{}]
    variable = next((one.get("value") for one in containers[0].get("env", []) if one["name"] == _AUTOSCALER_V2), None)
    by_variable = variable in ("1", "true")
    if by_variable and not scales:
        yield f"{_AUTOSCALER_V2} needs enableInTreeAutoscaling; set it, or remove the variable"
    if scales and variable is not None and version is not None:
        yield f"{_AUTOSCALER_V2} and autoscalerOptions.version say the same; remove the variable"
    if scales and (version == "v2" or by_variable):
        for group in (head, *workers):
            if _restarts(group):
                yield f"the autoscaler wants the restartPolicy of {group.get('groupName', 'the head')} to be Never; set it"
    if (spec.get("autoscalerOptions", {}).get("idleTimeoutSeconds") or 0) < 0:
        yield "autoscalerOptions.idleTimeoutSeconds must not be negative; raise it"
    if scales and any(group.get("suspend") for group in workers):
        yield "a worker group cannot be suspended beside an autoscaler; remove suspend"


def _kueue(metadata: Manifest, spec: Manifest) -> Iterator[str]:
    cluster = spec.get("rayClusterSpec", {})
    if not spec.get("shutdownAfterJobFinishes"):
        yield "Kueue wants shutdownAfterJobFinishes: true; set it"
    if spec.get("clusterSelector"):
        yield "Kueue admits no clusterSelector; remove it"
    if len(cluster.get("workerGroupSpecs", [])) > _MOST_GROUPS_OF_KUEUE:
        yield f"Kueue admits {_MOST_GROUPS_OF_KUEUE} worker groups; let pools have the same number of GPUs"
    elastic = metadata.get("annotations", {}).get("kueue.x-k8s.io/elastic-job") == "true"
    if cluster.get("enableInTreeAutoscaling") and not elastic:
        yield 'Kueue takes an autoscaler with the annotation kueue.x-k8s.io/elastic-job: "true" only; add it'


def _restarts(group: Manifest) -> bool:
    return bool(group.get("template", {}).get("spec", {}).get("restartPolicy", "Never") != "Never")

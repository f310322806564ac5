"""Every mistake that KubeRay's operator or Kueue refuses, made in a RayJob that is right otherwise.

A config can make few of them, and is refused then; the others would be the template's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from cluster.errors import ConfigError
from cluster.kuberay.manifests import check_rayjob, rayjob
from cluster.kuberay.settings import KubernetesSettings
from cluster.kuberay.worker_groups import WorkerGroup
from tests.support.cluster.operator_rules import refusals

Job = dict[str, Any]
GROUPS = [WorkerGroup("cpu", 4, 0, 1, 1), WorkerGroup("gpu-1", 8, 1, 2, 4)]


def a_job(kueue: bool = False, autoscale: bool = True) -> Job:
    settings = KubernetesSettings(autoscale=autoscale)
    return copy.deepcopy(rayjob("night", "night", settings, GROUPS, "dmqr run a.yaml", 3600, "night-config", kueue, 30))


@pytest.mark.parametrize("kueue", [False, True])
@pytest.mark.parametrize("autoscale", [False, True])
def test_what_is_rendered_is_not_refused(kueue: bool, autoscale: bool) -> None:
    job = a_job(kueue, autoscale)
    check_rayjob(job)
    assert not list(refusals(job))


def spec(**fields: Any) -> Callable[[Job], None]:
    return lambda job: job["spec"].update(fields)


def cluster(**fields: Any) -> Callable[[Job], None]:
    return lambda job: job["spec"]["rayClusterSpec"].update(fields)


def head(**fields: Any) -> Callable[[Job], None]:
    return lambda job: job["spec"]["rayClusterSpec"]["headGroupSpec"].update(fields)


def worker(**fields: Any) -> Callable[[Job], None]:
    return lambda job: job["spec"]["rayClusterSpec"]["workerGroupSpecs"][1].update(fields)


def without(*path: str) -> Callable[[Job], None]:
    def change(job: Job) -> None:
        for key in path[:-1]:
            job = job[key]
        del job[path[-1]]

    return change


def both(*changes: Callable[[Job], None]) -> Callable[[Job], None]:
    def change(job: Job) -> None:
        for one in changes:
            one(job)

    return change


def rules(*found: tuple[str, dict[str, Any]]) -> Callable[[Job], None]:
    return spec(deletionStrategy={"deletionRules": [{"policy": policy, "condition": one} for policy, one in found]})


def named(name: str) -> Callable[[Job], None]:
    return lambda job: job["metadata"].update(name=name)


def restarting(where: Callable[..., Callable[[Job], None]]) -> Callable[[Job], None]:
    return where(template={"spec": {"containers": [{"name": "ray"}], "restartPolicy": "Always"}})


def with_v2(value: str) -> Callable[[Job], None]:
    container = {"name": "ray", "env": [{"name": "RAY_enable_autoscaler_v2", "value": value}]}
    return head(template={"spec": {"containers": [container]}})


DONE = {"jobStatus": "SUCCEEDED"}
ALONE = both(without("spec", "submitterConfig"), without("spec", "submitterPodTemplate"))
SELECTED = both(without("spec", "deletionStrategy"), spec(clusterSelector={"ray.io/cluster": "a"}, rayClusterSpec=None))

MISTAKES = {
    "a long name": (named("n" * 48), "its name"),
    "a name with a capital": (named("Night"), "its name"),
    "a name that begins with a digit": (named("1night"), "its name"),
    "no cluster": (spec(rayClusterSpec=None), "rayClusterSpec and clusterSelector are missing"),
    "retries on a cluster that is there": (SELECTED, "backoffLimit makes new clusters"),
    "suspended for ever": (spec(suspend=True), "suspend needs shutdownAfterJobFinishes"),
    "suspended on a cluster that is there": (both(SELECTED, spec(suspend=True)), "cannot be suspended"),
    "interactive with retries": (spec(submissionMode="InteractiveMode"), "InteractiveMode has no backoffLimit"),
    "a sidecar with submitterConfig": (
        both(without("spec", "submitterPodTemplate"), spec(submissionMode="SidecarMode")),
        "SidecarMode has no submitterConfig",
    ),
    "a sidecar with a template": (
        both(without("spec", "submitterConfig"), spec(submissionMode="SidecarMode")),
        "SidecarMode has no submitterPodTemplate",
    ),
    "a sidecar with a selector": (
        both(ALONE, without("spec", "deletionStrategy"),
             spec(submissionMode="SidecarMode", backoffLimit=0, clusterSelector={"ray.io/cluster": "a"})),
        "SidecarMode has no clusterSelector",
    ),
    "a sidecar beside a head that starts again": (
        both(ALONE, spec(submissionMode="SidecarMode"), restarting(head), cluster(enableInTreeAutoscaling=False)),
        "SidecarMode wants the head's restartPolicy",
    ),
    "no time": (spec(activeDeadlineSeconds=0), "activeDeadlineSeconds must be positive"),
    "no time before": (spec(preRunningDeadlineSeconds=-1), "preRunningDeadlineSeconds must be positive"),
    "negative retries": (spec(backoffLimit=-1), "backoffLimit must not be negative"),
    "a negative time afterwards": (spec(ttlSecondsAfterFinished=-1), "ttlSecondsAfterFinished must not be negative"),
    "a time without shutdown": (spec(ttlSecondsAfterFinished=60), "ttlSecondsAfterFinished needs"),
    "rules beside shutdown": (spec(shutdownAfterJobFinishes=True), "deletionRules exclude shutdownAfterJobFinishes"),
    "rules beside the older form": (
        lambda job: job["spec"]["deletionStrategy"].update(onSuccess={"policy": "DeleteSelf"}),
        "deletionRules exclude onSuccess",
    ),
    "a strategy without rules": (rules(), "deletionStrategy has no deletionRules"),
    "a rule without an end": (rules(("DeleteSelf", {"ttlSeconds": 1})), "needs one of jobStatus"),
    "a rule with two ends": (rules(("DeleteSelf", DONE | {"jobDeploymentStatus": "Failed"})), "needs one of jobStatus"),
    "a rule before the end": (rules(("DeleteSelf", DONE | {"ttlSeconds": -1})), "ttlSeconds of a deletion rule"),
    "workers beside an autoscaler": (rules(("DeleteWorkers", DONE)), "the rule DeleteWorkers excludes an autoscaler"),
    "deleting another's cluster": (
        both(spec(clusterSelector={"ray.io/cluster": "a"}, backoffLimit=0), rules(("DeleteCluster", DONE))),
        "the rule DeleteCluster excludes clusterSelector",
    ),
    "two rules for one end": (rules(("DeleteSelf", DONE), ("DeleteSelf", DONE | {"ttlSeconds": 2})), "two rules DeleteSelf"),
    "the job before its cluster": (
        rules(("DeleteSelf", DONE | {"ttlSeconds": 1}), ("DeleteCluster", DONE | {"ttlSeconds": 2})),
        "order their ttlSeconds",
    ),
    "tokens without a version": (without("spec", "rayClusterSpec", "rayVersion"), "needs rayVersion"),
    "tokens with a word for a version": (cluster(rayVersion="latest"), "is no version"),
    "tokens of an old Ray": (cluster(rayVersion="2.51.1"), "needs Ray 2.52 or later"),
    "tokens of Kubernetes": (cluster(authOptions={"mode": "token", "enableK8sTokenAuth": True}), "tokens of Kubernetes"),
    "a network policy of the operator": (cluster(networkPolicy={"mode": "DenyAll"}), "networkPolicy needs a feature gate"),
    "TLS of the operator": (cluster(tlsOptions={"enabled": True}), "tlsOptions needs a feature gate"),
    "a history server": (cluster(historyServerOptions={}), "historyServerOptions needs a feature gate"),
    "embedded storage": (cluster(gcsFaultToleranceOptions={"backend": "rocksdb"}), "rocksdb needs a feature gate"),
    "a head without a container": (head(template={"spec": {"containers": []}}), "group head has no container"),
    "a group without a container": (worker(template={"spec": {"containers": []}}), "group gpu-1 has no container"),
    "resources twice": (head(resources={"cpu": "1"}), "group head has resources and the same"),
    "labels for ray start": (worker(rayStartParams={"labels": "a=b"}), "group gpu-1 has labels in rayStartParams"),
    "fewer than no pods": (worker(minReplicas=-1), "group gpu-1 has a negative number"),
    "least more than most": (worker(minReplicas=5), "has minReplicas 5 and maxReplicas 4"),
    "two groups of one name": (worker(groupName="cpu"), "two worker groups have one name"),
    "the autoscaler twice": (with_v2("1"), "say the same"),
    "the autoscaler by variable alone": (
        both(with_v2("1"), cluster(enableInTreeAutoscaling=False)), "needs enableInTreeAutoscaling"
    ),
    "a head that starts again": (restarting(head), "the restartPolicy of the head"),
    "a worker that starts again": (restarting(worker), "the restartPolicy of gpu-1"),
    "idle before it works": (cluster(autoscalerOptions={"idleTimeoutSeconds": -1}), "idleTimeoutSeconds must not be negative"),
    "a suspended group": (worker(suspend=True), "cannot be suspended beside an autoscaler"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused(mistake: str) -> None:
    change, why = MISTAKES[mistake]
    job = a_job()
    change(job)
    assert any(why in one for one in refusals(job)), list(refusals(job))


@pytest.mark.parametrize(
    ("env", "autoscale", "groups"),
    [("true", False, 1), ("1", True, 1), ("0", True, 1), (None, True, 18)],
    ids=["the variable alone", "the autoscaler twice", "the autoscaler at odds", "too many groups for Kueue"],
)
def test_what_a_config_can_get_wrong_is_refused_in_one_line(env: str | None, autoscale: bool, groups: int) -> None:
    settings = KubernetesSettings(autoscale=autoscale, env={} if env is None else {"RAY_enable_autoscaler_v2": env})
    sizes = [WorkerGroup(f"gpu-{n}", 8, n, 1, 1) for n in range(groups)]
    job = rayjob("night", "night", settings, sizes, "dmqr run a.yaml", 3600, {"name": "a"}, groups > 1, 30)
    with pytest.raises(ConfigError, match=r"^RayJob night: ") as refused:
        check_rayjob(job)
    assert refused.value.code == "manifest"
    assert any(refused.value.line == f"RayJob night: {why}" for why in refusals(job))


def test_without_an_autoscaler_both_bounds_are_wanted() -> None:
    job = a_job(autoscale=False)
    del job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["minReplicas"]
    assert [one for one in refusals(job) if "needs minReplicas and maxReplicas" in one]


KUEUE = {
    "no shutdown": (spec(shutdownAfterJobFinishes=False, ttlSecondsAfterFinished=0), "Kueue wants shutdownAfterJobFinishes"),
    "a selector": (spec(clusterSelector={"ray.io/cluster": "a"}, backoffLimit=0), "Kueue admits no clusterSelector"),
    "18 groups": (
        cluster(workerGroupSpecs=[{"groupName": f"g{n}", "template": {"spec": {"containers": [{}]}}} for n in range(18)]),
        "Kueue admits 17 worker groups",
    ),
    "an autoscaler unannounced": (lambda job: job["metadata"].pop("annotations"), "elastic-job"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", KUEUE)
def test_a_mistake_is_refused_by_kueue(mistake: str) -> None:
    change, why = KUEUE[mistake]
    job = a_job(kueue=True)
    assert not list(refusals(job))
    change(job)
    assert any(why in one for one in refusals(job)), list(refusals(job))

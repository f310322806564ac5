"""Manifests from a config: valid by every schema, the same each time, and what stands in them."""

from __future__ import annotations

import functools
import json
import re
import shlex
import subprocess
import sys
import time
import typing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from cluster.errors import ConfigError
from cluster.kuberay.create import FAILED, JOB_VARIABLE, filled
from cluster.run.pool_sizes import Pool
from cluster.storage import open_storage
from jobs.__main__ import main
from jobs.cli.command_line.arguments import parser
from jobs.config.config import Config
from jobs.config.load import load_config, yesterday
from jobs.runs.folder import open_run
from jobs.submit.ids import Verb
from jobs.submit.reachable import doubtful, unseen_paths, unset_variables
from jobs.submit.render import DEADLINE_SECONDS, Kind, deadline_seconds, job_name, rendered
from jobs.submit.storage import expected
from tests.support.cluster.manifest_schemas import check, strict
from tests.support.cluster.operator_rules import refusals

ROOT = Path(__file__).resolve().parents[3]
NIGHTLY = "configs/nightly.yaml"
KINDS = typing.get_args(Kind)
Manifest = dict[str, Any]


def config(*settings: str, file: str = NIGHTLY) -> Config:
    return load_config(str(ROOT / file), list(settings), "2026-01-31")


@functools.cache
def text_of(kind: Kind, settings: tuple[str, ...], file: str) -> str:
    return rendered(config(*settings, file=file), str(ROOT / file), kind, settings=settings)


def documents(kind: Kind, *settings: str, file: str = NIGHTLY, **more: Any) -> list[Manifest]:
    if more:
        text = rendered(config(*settings, file=file), str(ROOT / file), kind, settings=settings, **more)
    else:
        text = text_of(kind, settings, file)
    return list(yaml.load_all(text, Loader=yaml.CSafeLoader))


def one(found: list[Manifest], kind: str) -> Manifest:
    (only,) = (document for document in found if document["kind"] == kind)
    return only


def job_of(found: list[Manifest]) -> Manifest:
    """The RayJob; of `cron`, the one that a pod would create."""
    if any(document["kind"] == "RayJob" for document in found):
        return one(found, "RayJob")
    texts = [document["data"] for document in found if "rayjob.json" in document.get("data", {})]
    return dict(filled(json.loads(texts[0]["rayjob.json"]), "2026-01-31"))


def cluster(found: list[Manifest]) -> Manifest:
    return dict(job_of(found)["spec"]["rayClusterSpec"])


def words(found: list[Manifest]) -> list[str]:
    return shlex.split(job_of(found)["spec"]["entrypoint"])


def pods(found: list[Manifest]) -> list[Manifest]:
    """The specs of all pods."""
    spec = job_of(found)["spec"]
    groups = [spec["rayClusterSpec"]["headGroupSpec"], *spec["rayClusterSpec"]["workerGroupSpecs"]]
    templates = [spec["submitterPodTemplate"], *(group["template"] for group in groups)]
    crons = [document for document in found if document["kind"] == "CronJob"]
    templates += [document["spec"]["jobTemplate"]["spec"]["template"] for document in crons]
    return [template["spec"] for template in templates]


VARIANTS: dict[str, tuple[str, ...]] = {
    "as it stands": (),
    "a pool that grows": ("cluster.rerank.workers={min: 2, max: 6}",),
    "without an autoscaler": ("cluster.kubernetes.autoscale=false",),
    "nothing said": ("cluster={}",),
    "much said": (
        "cluster.kubernetes.auth_secret=ray-token",
        "cluster.kubernetes.monitoring_namespace=monitoring",
        "cluster.kubernetes.head.node_selector={pool: steady}",
        "cluster.kubernetes.tolerations=[{key: spot, value: 'yes', effect: null}]",
        "rewrite.engine.args={tensor_parallel_size: 2}",
        "cluster.rewrite={workers: 2}",
        "cluster.retrieve={workers: 3, gpus: 0.5}",
        "label=try-1",
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", KINDS)
def test_everything_is_valid(kind: Kind, variant: str) -> None:
    found = documents(kind, *VARIANTS[variant])
    for document in [*found, job_of(found)]:
        check(document)
        assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", document["metadata"]["name"])
        assert document["metadata"]["namespace"] == "dmqr"
    assert not list(refusals(job_of(found)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_examples_are_fresh_and_valid(kind: Kind) -> None:
    """They are written by `python docs/generate.py`."""
    example = (ROOT / f"cluster/kuberay/nightly.{kind}.yaml").read_text(encoding="utf-8")
    again = rendered(config(), str(ROOT / NIGHTLY), kind).replace(f"{ROOT}/", "")
    assert example == again, "stale; run: python docs/generate.py"
    found = list(yaml.safe_load_all(example))
    for document in [*found, job_of(found)]:
        check(document)


def test_the_schemas_refuse_what_they_do_not_know() -> None:
    job = job_of(documents("kuberay"))
    job["spec"]["rayClusterSpec"]["headGroupSpec"]["replica"] = 1
    with pytest.raises(Exception, match="replica"):
        check(job)
    open_ended = {"type": "object", "properties": {"a": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
    assert strict(open_ended) == open_ended | {"additionalProperties": False}
    with pytest.raises(Exception, match="concurrency"):
        check({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "a"}, "spec": {"concurrency": 1}})


@pytest.mark.slow
def test_it_runs_without_ray_or_network_and_is_the_same_each_time() -> None:
    code = (
        "import sys, socket; socket.socket.connect = None\n"
        "from jobs.config.load import load_config; from jobs.submit.render import rendered\n"
        f"config = load_config({NIGHTLY!r}, date='2026-01-31')\n"
        f"for kind in {KINDS!r}: print(rendered(config, {NIGHTLY!r}, kind), end='')\n"
        "assert not {'ray', 'torch', 'boto3'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    files = [ROOT / f"cluster/kuberay/nightly.{kind}.yaml" for kind in KINDS]
    assert done.stdout == "".join(file.read_text(encoding="utf-8") for file in files)


# ---------------------------------------------------------------- the command in the cluster


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_command_is_understood_and_gives_the_pools(kind: Kind, variant: str) -> None:
    settings = VARIANTS[variant]
    found = documents(kind, *settings)
    command = words(found)
    start = command.index("dmqr")
    assert command[:start] == ["timeout", "--signal=TERM", "--kill-after=600", str(DEADLINE_SECONDS)]
    options = parser().parse_args(command[start + 1 :])
    assert (options.verb, options.config, options.date) == ("run", "/etc/dmqr/nightly.yaml", "2026-01-31")
    data = one([document for document in found if "nightly.yaml" in document.get("data", {})], "ConfigMap")["data"]
    assert data["nightly.yaml"] == (ROOT / NIGHTLY).read_text(encoding="utf-8")
    assert data["prices.yaml"] == (ROOT / "configs/prices.yaml").read_text(encoding="utf-8")
    there = load_config(str(ROOT / NIGHTLY), options.set, options.date, options.label)
    here = config(*settings)
    assert there.cluster.address == "auto"
    assert there.model_copy(update={"cluster": here.cluster}) == here
    assert there.cluster.kubernetes == here.cluster.kubernetes
    for stage in ("rewrite", "retrieve", "rerank"):
        assert getattr(there.cluster, stage).workers is not None
    most = sum(group["maxReplicas"] for group in cluster(found)["workerGroupSpecs"])
    assert there.cluster.scales_to is not None
    assert there.cluster.scales_to.nodes == most


def test_only_cron_leaves_the_date_open() -> None:
    text = rendered(config(), str(ROOT / NIGHTLY), "cron")
    manifest = one([d for d in yaml.safe_load_all(text) if "rayjob.json" in d.get("data", {})], "ConfigMap")
    raw = json.loads(manifest["data"]["rayjob.json"])
    assert raw["metadata"]["name"] == "nightly-{date}"
    assert "--date '{date}'" in raw["spec"]["entrypoint"]
    assert "{date}" not in job_of(documents("kuberay"))["spec"]["entrypoint"]


def test_a_log_without_a_date_has_none(tmp_path: Path) -> None:
    file = tmp_path / "Big Job.yaml"
    file.write_text((ROOT / NIGHTLY).read_text().replace("date={date}/", "all/").replace("name: nightly", "name: Big_Job.2"))
    found = list(yaml.safe_load_all(rendered(load_config(str(file)), str(file), "kuberay")))
    assert job_of(found)["metadata"]["name"] == job_name("Big_Job.2")
    assert "--date" not in words(found)
    assert "/etc/dmqr/config.yaml" in words(found)
    assert set(one(found, "ConfigMap")["data"]) == {"config.yaml"}


@pytest.mark.parametrize(
    ("name", "job"),
    [("nightly", "nightly"), ("2026_Ä.B--c", r"b-c-[0-9a-f]{6}"), ("n" * 60, r"n{29}-[0-9a-f]{6}"), ("a-b", "a-b")],
)
def test_names(name: str, job: str) -> None:
    assert re.fullmatch(job, job_name(name))


def test_other_jobs_have_other_names() -> None:
    long = "search-rewrites-experiment-with-reranker-"
    names = [
        "night",
        "night_ly",
        "night-ly",
        "Night",
        "2026-night",
        "night-one",
        "night-ablate",
        "night-cron",
        "night-2026-01-31",
    ]
    names += [f"{long}a", f"{long}b"]
    asked = [(name, verb, label) for name in names for verb in typing.get_args(Verb) for label in (None, "one", "two", "One")]
    made = [job_name(*one) for one in asked]
    made += [f"{job}-{more}" for job in made for more in ("2026-01-31", "cron", "config")]
    assert len(set(made)) == len(made)
    assert all(len(job_name(*one)) + len("-2026-01-31") <= 47 for one in asked)


def test_the_label_of_a_night_is_in_the_names_of_its_objects() -> None:
    names = [job_of(documents("kuberay", f"label={label}"))["metadata"]["name"] for label in ("one", "two")]
    assert [re.fullmatch(r"nightly-(one|two)-[0-9a-f]{6}-2026-01-31", name)[1] for name in names] == ["one", "two"]  # type: ignore[index]


def test_a_name_without_a_letter_is_refused() -> None:
    with pytest.raises(ConfigError, match="use a name with a letter"):
        job_name("2026")


# ---------------------------------------------------------------- the cluster


def test_pools_become_worker_groups() -> None:
    cpu, gpu = cluster(documents("kuberay", "cluster.rerank.workers={min: 2, max: 6}"))["workerGroupSpecs"]
    assert (cpu["groupName"], cpu["replicas"], cpu["minReplicas"], cpu["maxReplicas"]) == ("cpu", 0, 0, 1)
    assert (gpu["groupName"], gpu["replicas"], gpu["minReplicas"], gpu["maxReplicas"]) == ("gpu-1", 0, 0, 10)
    container = gpu["template"]["spec"]["containers"][0]
    assert container["image"] == "registry.example/dmqr:0.1.0-gpu"
    assert container["resources"]["limits"] == {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"}
    assert "nvidia.com/gpu" not in cpu["template"]["spec"]["containers"][0]["resources"]["limits"]


def test_without_an_autoscaler_all_pods_are_there_from_the_start() -> None:
    found = cluster(documents("kuberay", "cluster.rerank.workers={min: 2, max: 6}", "cluster.kubernetes.autoscale=false"))
    assert [(one["replicas"], one["minReplicas"], one["maxReplicas"]) for one in found["workerGroupSpecs"]] == [
        (1, 1, 1), (10, 10, 10)
    ]  # fmt: skip
    assert (found["enableInTreeAutoscaling"], "autoscalerOptions" in found) == (False, False)


def test_workers_may_run_on_spot_nodes_and_the_head_may_not_and_has_no_work() -> None:
    found = cluster(documents("kuberay"))
    head = found["headGroupSpec"]
    assert head["rayStartParams"]["num-cpus"] == "0"
    assert "tolerations" not in head["template"]["spec"]
    for group in found["workerGroupSpecs"]:
        spec = group["template"]["spec"]
        keys = [one["key"] for one in spec["tolerations"]]
        assert "cloud.google.com/gke-spot" in keys
        assert ("nvidia.com/gpu" in keys) == (group["groupName"] != "cpu")
        assert spec["terminationGracePeriodSeconds"] == 120


@pytest.mark.parametrize(("grace", "seconds"), [("25", 30), ("119.5", 125), ("null", 600)])
def test_the_driver_has_its_grace_before_it_is_killed(grace: str, seconds: int) -> None:
    found = documents("kuberay", f"cluster.grace_seconds={grace}")
    spec = cluster(found)["headGroupSpec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] == seconds
    assert {"name": "RAY_JOB_STOP_WAIT_TIME_S", "value": str(seconds)} in spec["containers"][0]["env"]
    assert f"--kill-after={max(600, seconds)}" in words(found)  # of a driver that hangs


def test_pools_that_divide_a_cluster_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"cluster.rerank.workers: auto divides a cluster that is there"):
        documents("kuberay", "cluster.rerank.workers=auto")


def rules(found: list[Manifest]) -> dict[str, set[tuple[str, int]]]:
    policies: dict[str, set[tuple[str, int]]] = {}
    for rule in job_of(found)["spec"]["deletionStrategy"]["deletionRules"]:
        seconds = rule["condition"].pop("ttlSeconds")
        policies.setdefault("/".join(rule["condition"].values()), set()).add((rule["policy"], seconds))
    return policies


def test_workers_go_at_once_and_the_head_a_day_later() -> None:
    kept = {("DeleteCluster", 86_400), ("DeleteSelf", 604_800)}
    ends = ("SUCCEEDED", "FAILED", "Failed")
    autoscaled = documents("kuberay")
    assert rules(autoscaled) == dict.fromkeys(ends, kept)
    assert cluster(autoscaled)["autoscalerOptions"]["idleTimeoutSeconds"] == 60
    assert cluster(autoscaled)["autoscalerOptions"]["version"] == "v2"
    fixed = documents("kuberay", "cluster.kubernetes.autoscale=false")
    assert rules(fixed) == dict.fromkeys(ends, kept | {("DeleteWorkers", 0)})


def test_kueue_admits_a_fixed_job_as_a_whole_and_a_growing_one_by_slices() -> None:
    fixed = job_of(documents("kueue", "cluster.kubernetes.queue=night"))
    assert fixed["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "night"
    assert "annotations" not in fixed["metadata"]
    assert fixed["spec"]["shutdownAfterJobFinishes"]
    assert "deletionStrategy" not in fixed["spec"]
    assert not fixed["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"]
    assert [group["replicas"] for group in fixed["spec"]["rayClusterSpec"]["workerGroupSpecs"]] == [1, 12]
    growing = job_of(documents("kueue", "cluster.rerank.workers={min: 2, max: 6}"))
    assert growing["metadata"]["annotations"] == {"kueue.x-k8s.io/elastic-job": "true"}
    gpu = growing["spec"]["rayClusterSpec"]["workerGroupSpecs"][1]
    assert (gpu["replicas"], gpu["minReplicas"], gpu["maxReplicas"]) == (6, 6, 10)


# ---------------------------------------------------------------- time


def test_the_deadline_follows_the_estimate() -> None:
    pools = {"rewrite": Pool(8, 1, 1), "rerank": Pool(2, 1, 1)}
    assert deadline_seconds(pools, None) == DEADLINE_SECONDS
    assert deadline_seconds(pools, 10.0) == 3600
    assert deadline_seconds(pools, 20_000.0) == 31_800  # 1,800 + 3 x 20,000 / 2
    found = documents("kuberay", seconds=20_000.0)
    assert job_of(found)["spec"]["activeDeadlineSeconds"] == 31_800
    assert words(found)[3] == "31800"
    said = documents("kuberay", "cluster.kubernetes.deadline_seconds=7200", seconds=20_000.0)
    assert job_of(said)["spec"]["activeDeadlineSeconds"] == 7200


def test_a_night_does_not_meet_the_next() -> None:
    found = documents("cron", "cluster.kubernetes.schedule=15 3 * * *")
    spec = one(found, "CronJob")["spec"]
    assert (spec["concurrencyPolicy"], spec["schedule"], spec["timeZone"]) == ("Forbid", "15 3 * * *", "Etc/UTC")
    job = spec["jobTemplate"]["spec"]
    assert job["activeDeadlineSeconds"] > 3 * DEADLINE_SECONDS  # it waits for every attempt
    rights = one(found, "Role")["rules"]
    assert rights == [{"apiGroups": ["ray.io"], "resources": ["rayjobs"], "verbs": ["create", "get"]}]
    (container,) = job["template"]["spec"]["containers"]
    label = {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/job-name']"}}
    assert {"name": JOB_VARIABLE, "valueFrom": label} in container["env"]
    ends = [rule.get("onExitCodes") for rule in job["podFailurePolicy"]["rules"]]
    assert {"operator": "In", "values": [FAILED]} in ends
    account = one(found, "ServiceAccount")["metadata"]["name"]
    assert job["template"]["spec"]["serviceAccountName"] == account == one(found, "RoleBinding")["subjects"][0]["name"]


# ---------------------------------------------------------------- security


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_pod_has_more_rights_than_it_needs(kind: Kind, variant: str) -> None:
    found = documents(kind, *VARIANTS[variant])
    containers = [container for pod in pods(found) for container in pod["containers"]]
    if (autoscaler := cluster(found).get("autoscalerOptions")) is not None:
        containers.append(autoscaler)
    for pod in pods(found):
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["runAsUser"] == 1000
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]} == volumes
    for container in containers:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
        }  # fmt: skip
        assert {"/tmp", "/cache"} <= {mount["mountPath"] for mount in container["volumeMounts"]}
    workers = [group["template"]["spec"] for group in cluster(found)["workerGroupSpecs"]]
    assert not any(pod["automountServiceAccountToken"] for pod in workers)


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_is_wanted_and_nothing_is_exposed(kind: Kind) -> None:
    spec = cluster(documents(kind))
    assert spec["authOptions"] == {"mode": "token"}
    assert re.fullmatch(r"2\.\d+\.\d+", spec["rayVersion"])
    assert spec["headGroupSpec"]["serviceType"] == "ClusterIP"
    assert spec["headGroupSpec"]["enableIngress"] is False
    own = cluster(documents(kind, "cluster.kubernetes.auth_secret=ray-token"))
    assert own["authOptions"] == {"mode": "token", "secretName": "ray-token"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_pod_of_the_job_is_under_the_policy(kind: Kind) -> None:
    found = documents(kind)
    policies = {d["metadata"]["name"]: d["spec"] for d in found if d["kind"] == "NetworkPolicy"}
    policy = policies["nightly"]
    label = policy["podSelector"]["matchLabels"]
    spec = job_of(found)["spec"]
    groups = [spec["rayClusterSpec"]["headGroupSpec"], *spec["rayClusterSpec"]["workerGroupSpecs"]]
    for template in [spec["submitterPodTemplate"], *(group["template"] for group in groups)]:
        assert template["metadata"]["labels"] == label
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    inside, operator = policy["ingress"]
    assert inside == {"from": [{"podSelector": {"matchLabels": label}}]}
    assert [port["port"] for port in operator["ports"]] == [8265]
    if kind == "cron":
        assert policies["nightly-cron"]["ingress"] == []


def test_the_pod_that_creates_reaches_kubernetes_where_the_settings_say() -> None:
    found = documents("cron", "cluster.kubernetes.egress_ports=[8443]")
    policies = {d["metadata"]["name"]: d["spec"] for d in found if d["kind"] == "NetworkPolicy"}
    assert [port["port"] for port in policies["nightly-cron"]["egress"][-1]["ports"]] == [443, 6443, 8443]
    assert [port["port"] for port in policies["nightly"]["egress"][-1]["ports"]] == [8443]


def test_the_port_of_the_llm_server_may_be_reached() -> None:
    engine = "rewrite.engine={kind: openai, model: m, base_url: 'http://llm:8000/v1'}"
    policy = one(documents("kuberay", engine), "NetworkPolicy")["spec"]
    assert [port["port"] for port in policy["egress"][-1]["ports"]] == [443, 6443, 8000, 9200]


def test_the_server_of_a_strategy_of_its_own_may_be_reached() -> None:
    engine = "{kind: openai, model: m, base_url: 'http://llm:8123/v1', api_key_env: OWN_KEY}"
    settings = f"rewrite.strategies=[general, {{hyde: {{engine: {engine}}}}}, ./not-here.yaml]"
    policy = one(documents("kuberay", settings), "NetworkPolicy")["spec"]
    assert 8123 in {port["port"] for port in policy["egress"][-1]["ports"]}
    assert unset_variables(config(settings)) == ["OWN_KEY"]


def test_the_engines_of_strategies_have_their_gpus_and_their_files_are_named(tmp_path: Path) -> None:
    own = "{kind: vllm, model: org/own, args: {tensor_parallel_size: 2}}"
    keyed = "{kind: openai, model: m, base_url: 'http://llm:8124/v1', api_key_file: /keys/own}"
    (tmp_path / "mine.yaml").write_text(f"label: Mine\nprompt: 'Say: {{query}}'\nengine: {keyed}\n")
    settings = f"rewrite.strategies=[general, {{hyde: {{engine: {own}}}}}, {tmp_path}/mine.yaml, 's3://dmqr/far.yaml']"
    found = documents("kuberay", settings, "cluster.rewrite={workers: 4}")
    sizes = {
        group["groupName"]: group["template"]["spec"]["containers"][0]["resources"]["limits"].get("nvidia.com/gpu")
        for group in cluster(found)["workerGroupSpecs"]
    }
    assert sizes == {"cpu": None, "gpu-1": "1", "gpu-3": "3"}  # reranking; rewriting by two engines
    assert 8124 in {port["port"] for port in one(found, "NetworkPolicy")["spec"]["egress"][-1]["ports"]}
    assert "rewrite.strategies.engine.api_key_file: /keys/own" in unseen_paths(config(settings))
    (far,) = [line for line in doubtful(config(settings)) if "far.yaml" in line]
    assert "s3://dmqr/far.yaml: is not read here; if it has an engine, give the GPUs" in far
    with pytest.raises(ConfigError, match="a worker has 1, but its engine spans 2"):
        documents("kuberay", settings, "cluster.rewrite.gpus=1")


def test_the_port_of_the_collector_of_traces_may_be_reached() -> None:
    policy = one(documents("kuberay", "cluster.traces={endpoint: 'http://collector:4318'}"), "NetworkPolicy")["spec"]
    assert [port["port"] for port in policy["egress"][-1]["ports"]] == [443, 4318, 6443, 9200]


def test_secrets_are_named_never_written() -> None:
    for pod in pods(documents("kuberay"))[1:]:
        values = {one["name"]: one for one in pod["containers"][0]["env"]}
        assert values["ELASTICSEARCH_API_KEY"]["valueFrom"] == {
            "secretKeyRef": {"name": "dmqr-elasticsearch", "key": "api-key"}
        }
        assert values["ELASTICSEARCH_URL"] == {"name": "ELASTICSEARCH_URL", "value": "http://elasticsearch.search:9200"}
        assert len(values) == len(pod["containers"][0]["env"])


def test_a_variable_is_not_given_twice() -> None:
    with pytest.raises(ConfigError, match="ELASTICSEARCH_URL stands in env and in secrets"):
        config("cluster.kubernetes.secrets.ELASTICSEARCH_URL={secret: a, key: b}")


def test_a_variable_has_a_name_that_it_may_have() -> None:
    with pytest.raises(ConfigError, match="'a b' cannot be the name of a variable"):
        config("cluster.kubernetes.env={a b: c}")


AT_SERVERS = (
    "retrieve.retrievers.dense.encoder={kind: openai, model: ./e, base_url: 'http://tei:8081/v1', api_key_env: ENCODER_KEY}",
    "rerank={kind: server, model: ./models/r, base_url: 'https://reranker', api_key_env: RERANKER_KEY}",
)


def test_models_at_servers_are_reached_and_are_no_paths_here() -> None:
    policy = one(documents("kuberay", *AT_SERVERS), "NetworkPolicy")["spec"]
    assert {8081, 443} <= {port["port"] for port in policy["egress"][-1]["ports"]}
    assert unseen_paths(config(*AT_SERVERS)) == []


def test_search_engines_of_the_web_may_be_reached_and_their_keys_are_asked_for() -> None:
    own = "retrieve.retrievers.web={kind: web, provider: searxng, base_url: 'http://searxng:8888', api_key_env: SEARXNG_KEY}"
    policy = one(documents("kuberay", own), "NetworkPolicy")["spec"]
    assert 8888 in {port["port"] for port in policy["egress"][-1]["ports"]}
    assert unset_variables(config(own)) == ["SEARXNG_KEY"]
    hosted = "retrieve.retrievers.web={kind: web, provider: tavily, api_key_file: keys/tavily}"
    policy = one(documents("kuberay", hosted, "cluster.kubernetes.egress_ports=[9200]"), "NetworkPolicy")["spec"]
    assert 443 in {port["port"] for port in policy["egress"][-1]["ports"]}
    assert unseen_paths(config(hosted)) == ["retrieve.retrievers.web.api_key_file: keys/tavily"]
    here = "retrieve.retrievers.web={kind: web, provider: searxng, base_url: 'http://127.0.0.1:8888'}"
    assert any("http://127.0.0.1:8888: is the pod itself" in words for words in doubtful(config(here)))


def test_the_settings_are_no_part_of_a_fingerprint() -> None:
    from jobs.job.keys import identity_fields

    assert identity_fields(config("cluster.kubernetes.image=other:1")) == identity_fields(config())


# ---------------------------------------------------------------- what no pod sees


def test_what_no_pod_sees_is_named(tmp_path: Path) -> None:
    assert unseen_paths(config()) == []
    (tmp_path / "reranker").mkdir()
    assert unseen_paths(config(f"rerank.model={tmp_path}/reranker", "evaluate.qrels=qrels.tsv")) == [
        "evaluate.qrels: qrels.tsv", f"rerank.model: {tmp_path}/reranker"
    ]  # fmt: skip
    assert {line.partition(": ")[0] for line in unseen_paths(config(file="configs/quickstart.yaml"))} == {
        "log.path", "corpus.path", "rewrite.engine.path", "retrieve.retrievers.bm25.index", "retrieve.retrievers.dense.index",
        "evaluate.qrels", "output",
    }  # fmt: skip
    key = "rewrite.engine={kind: openai, model: a, base_url: 'http://a/v1', api_key_file: /keys/llm}"
    assert unseen_paths(config(key)) == ["rewrite.engine.api_key_file: /keys/llm"]
    bm25 = "retrieve.retrievers.bm25={kind: elastic, index: a, api_key_file: /keys/es}"
    assert unseen_paths(config(bm25)) == ["retrieve.retrievers.bm25.api_key_file: /keys/es"]


def test_overrides_in_parquet_are_no_text_and_stay_a_path(tmp_path: Path) -> None:
    (tmp_path / "overrides.parquet").write_bytes(b"PAR1\xff\xfe")
    settings = f"rewrite.guards.overrides={tmp_path}/overrides.parquet"
    assert f"{tmp_path}/overrides.parquet" not in "".join(one(documents("kuberay", settings), "ConfigMap")["data"].values())
    assert unseen_paths(config(settings)) == [f"rewrite.guards.overrides: {tmp_path}/overrides.parquet"]


def test_what_pods_can_hardly_do_is_told() -> None:
    def told(*settings: str) -> list[str]:
        return doubtful(config("cluster.kubernetes.env={}", "cluster.kubernetes.secrets={}", *settings))

    opened = "cluster.kubernetes.egress_addresses=['169.254.170.23:80']"
    assert told(opened) == []
    assert [line.partition(":")[0] for line in told("cluster.kubernetes.service_account=null")] == ["s3"]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        assert told(f"cluster.kubernetes.secrets={{{name}: {{secret: s3, key: key}}}}") == []
        assert told("cluster.kubernetes.service_account=null", f"cluster.kubernetes.env={{{name}: a}}") == []
    for name in ("AWS_REGION", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE", "AWS_SECRET_ACCESS_KEY"):  # which give none
        (line,) = told("cluster.kubernetes.service_account=null", f"cluster.kubernetes.env={{{name}: a}}")
        assert line.startswith("s3://: nothing gives the pods credentials")
        assert len(told(f"cluster.kubernetes.env={{{name}: a}}")) == 1
    (line,) = told()
    assert "add 169.254.170.23:80 to cluster.kubernetes.egress_addresses" in line
    (line,) = told(opened, "cluster.kubernetes.image=dmqr:1")
    assert line.startswith("cluster.kubernetes.image: dmqr:1 names no registry")
    assert told(opened, "cluster.kubernetes.env={ELASTICSEARCH_URL: 'http://localhost:9200'}") == [
        "http://localhost:9200: is the pod itself, not this machine; give the address of the server in the cluster"
    ]


def test_servers_of_credentials_on_the_node_may_be_reached_and_disks_asked_for() -> None:
    settings = ["cluster.kubernetes.egress_addresses=['169.254.170.23:80', '[fd00:ec2::23]:80']"]
    settings += ["cluster.kubernetes.gpu_workers.disk_gib=200"]
    found = documents("kuberay", *settings)
    assert one(found, "NetworkPolicy")["spec"]["egress"][-2:] == [
        {"to": [{"ipBlock": {"cidr": block}}], "ports": [{"port": 80, "protocol": "TCP"}]}
        for block in ("169.254.170.23/32", "fd00:ec2::23/128")
    ]
    disks = [pod["containers"][0]["resources"]["limits"].get("ephemeral-storage") for pod in pods(found)]
    assert sorted(filter(None, disks)) == ["200Gi"]
    with pytest.raises(ConfigError, match=r"is no IP:PORT; write it like 169\.254\.170\.23:80"):
        config("cluster.kubernetes.egress_addresses=['metadata:80']")


def test_variables_that_no_manifest_sets_are_named() -> None:
    assert unset_variables(config()) == []
    assert unset_variables(config("cluster.kubernetes.secrets={}", "cluster.kubernetes.env={}")) == [
        "ELASTICSEARCH_URL", "ELASTICSEARCH_API_KEY"
    ]  # fmt: skip


# ---------------------------------------------------------------- text files, ablations, the estimate


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a config with files of its own: strategies, a vocabulary, judgements."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "strategies").mkdir()
    text = "label: Medical Rewriting\nprompt: |-\n  Rewrite it in medical terms.\n\n  Query: {query}\n"
    (tmp_path / "strategies" / "medical.yaml").write_text(text)
    (tmp_path / "Meine Wörter.txt").write_text("heart attack\tmyocardial infarction\n", encoding="utf-8")
    (tmp_path / "qrels.tsv").write_text("x" * 2_000_000)
    values = yaml.safe_load((ROOT / NIGHTLY).read_text())
    values["rewrite"]["strategies"] = ["general", {"./strategies/medical.yaml": {"name": "med"}}]
    values["rewrite"]["guards"] = {"vocabulary": {"path": "Meine Wörter.txt"}}
    values["evaluate"] = {"qrels": "qrels.tsv"}
    values["output"] = "runs"  # a bucket that does not answer takes its time
    (tmp_path / "night.yaml").write_text(yaml.safe_dump(values))
    return tmp_path


def rendered_by(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[list[Manifest], str]:
    assert main(["submit", "night.yaml", *words]) == 0
    seen = capsys.readouterr()
    return list(yaml.safe_load_all(seen.out)), seen.err


@pytest.mark.parametrize("kind", KINDS)
def test_small_text_files_go_along_and_every_pod_reads_them(
    kind: Kind, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, told = rendered_by(["--render", kind], capsys)
    for document in [*found, job_of(found)]:
        check(document)
    assert "qrels.tsv: no pod can see it" in told  # too large
    assert "medical.yaml" not in told
    assert "Wörter" not in told
    data = one([document for document in found if "night.yaml" in document.get("data", {})], "ConfigMap")["data"]
    spec = cluster(found)
    for group in [spec["headGroupSpec"], *spec["workerGroupSpecs"]]:
        pod = group["template"]["spec"]
        (volume,) = (volume["configMap"] for volume in pod["volumes"] if volume["name"] == "config")
        assert {"name": "config", "mountPath": "/etc/dmqr", "readOnly": True} in pod["containers"][0]["volumeMounts"]
        for item in volume["items"]:  # as a kubelet writes them
            (place / "etc" / item["path"]).parent.mkdir(parents=True, exist_ok=True)
            (place / "etc" / item["path"]).write_text(data[item["key"]])
        assert {item["key"] for item in volume["items"]} == set(data)
    command = words(found)
    options = parser().parse_args(command[command.index("dmqr") + 1 :])
    assert options.config == "/etc/dmqr/night.yaml"
    there = load_config("etc/night.yaml", [one.replace("/etc/dmqr", str(place / "etc")) for one in options.set], options.date)
    here = load_config("night.yaml", date=options.date)
    monkeypatch.chdir(place / "etc")
    assert there.rewrite.guards.vocabulary is not None
    assert Path(there.rewrite.guards.vocabulary.path).read_text(encoding="utf-8").startswith("heart")
    (medical,) = there.rewrite.strategies[1]
    assert Path(medical).name == "medical.yaml"
    assert "medical terms" in Path(medical).read_text()
    assert there.rewrite.strategies[0] == "general"
    assert there.evaluate == here.evaluate
    assert there.retrieve == here.retrieve


def test_a_file_with_the_date_of_a_night_is_no_file_of_every_night(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "strategies" / f"{yesterday()}.yaml").write_text((place / "strategies" / "medical.yaml").read_text())
    change = ["--set", "rewrite.strategies=[./strategies/medical.yaml, './strategies/{date}.yaml']"]
    told = rendered_by(["--render", "cron", *change], capsys)[1]
    assert f"rewrite.strategies: ./strategies/{yesterday()}.yaml: no pod can see it" in told
    assert "medical.yaml" not in told
    assert "strategies" not in rendered_by(["--render", "kuberay", *change], capsys)[1]


@pytest.mark.slow
def test_a_config_map_does_not_become_larger_than_kubernetes_takes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "Meine Wörter.txt").write_text("a\tb\n" * 100_000)
    (place / "qrels.tsv").write_text("x" * 900_000)
    found, told = rendered_by(["--render", "kuberay"], capsys)
    assert "qrels.tsv: no pod can see it" in told
    assert "--server-side" in told
    assert sum(len(text.encode()) for text in one(found, "ConfigMap")["data"].values()) < 1 << 20


@pytest.mark.parametrize("kind", KINDS)
def test_an_ablation_has_a_name_of_its_own(kind: Kind, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, told = rendered_by(["--render", kind, "--ablate"], capsys)
    for document in [*found, job_of(found)]:
        check(document)
    command = words(found)
    assert command[command.index("dmqr") + 1] == "ablate"
    assert parser().parse_args(command[command.index("dmqr") + 1 :]).verb == "ablate"
    assert job_of(found)["metadata"]["name"].startswith("nightly-ablate-20")
    assert "deadline: 8 hours: no estimate is made for an ablation" in told
    assert re.fullmatch("n{22}-[0-9a-f]{6}-ablate", job_name("n" * 60, "ablate"))


def test_the_date_of_a_cron_job_is_that_of_its_night(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "night.yaml", "--render", "cron", "--date", "2026-01-31"]) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert "--date: a CronJob fills in the date of each night" in seen.err


@pytest.mark.parametrize(
    "change", [{"label": "v2-{date}"}, {"name": "night-{date}"}, {"name": "n-{date}", "label": "a.{date}.b"}]
)
def test_a_date_in_name_or_label_is_that_of_each_night(
    change: dict[str, str], place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    values = yaml.safe_load((place / "night.yaml").read_text())
    (place / "night.yaml").write_text(yaml.safe_dump(values | change))
    found, _ = rendered_by(["--render", "cron"], capsys)
    with monkeypatch.context() as later:
        later.setattr("jobs.config.load.yesterday", lambda: "2031-05-06")
        assert rendered_by(["--render", "cron"], capsys)[0] == found
    names = [document["metadata"]["name"] for document in found]
    assert not any("{" in name or re.search(r"\d{4}-\d\d-\d\d", name) for name in names)
    for document in found:
        check(document)
    (raw,) = (json.loads(one["data"]["rayjob.json"]) for one in found if "rayjob.json" in one.get("data", {}))
    for date in ("2026-01-31", "2026-02-01"):
        command = shlex.split(filled(raw, date)["spec"]["entrypoint"])
        options = parser().parse_args(command[command.index("dmqr") + 1 :])
        there = load_config("night.yaml", options.set, options.date, options.label)
        here = load_config("night.yaml", date=date)
        assert (there.name, there.label, there.log) == (here.name, here.label, here.log)
    others = [rendered_by(["--render", "cron", "--label", label], capsys)[0] for label in (yesterday(), "fixed")]
    for label, other in zip((yesterday(), "fixed"), others, strict=True):
        assert words(other)[words(other).index("--label") + 1] == label
    assert len({one(every, "CronJob")["metadata"]["name"] for every in [found, *others]}) == 3


def test_the_estimate_is_the_last_run_of_these_settings_by_the_size_of_the_log(
    values: dict[str, Any], bm25: dict[str, Any], config_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"query": ["spring tides", "a rip current"]}), "log.parquet")
    values |= {"rerank": {"kind": "none"}, "cluster": {"address": "none"}, "retrieve": {"retrievers": {"bm25": bm25}}}
    file = config_file(values | {"rewrite": {"strategies": []}})
    assert expected(load_config(file)).reason == "no run of the name small has finished"
    assert main(["run", file]) == 0
    found = expected(load_config(file))
    run = open_run("runs/small")
    spent = sum(sums.get("seconds", 0) for stage in run.spent.values() for sums in stage.values())
    assert found.seconds == pytest.approx(spent)
    assert found.reason == f"by {run.record['run_id']} and the size of the log"
    log = Path(load_config(file).log.path)  # type: ignore[arg-type]
    twice = tmp_path / "twice"
    twice.mkdir()
    for name in ("a", "b"):
        (twice / f"{name}.parquet").write_bytes(log.read_bytes())
    assert expected(load_config(file, [f"log.path={twice}"])).seconds == pytest.approx(2 * spent)
    assert "had other settings" in expected(load_config(file, ["fuse.k=9"])).reason
    gone = expected(load_config(file, ["log.path=gone.parquet"]))
    assert gone.seconds is None
    assert "gone.parquet" in gone.reason


def test_a_storage_that_does_not_answer_does_not_hold_rendering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.submit.storage.open_storage", lambda path: time.sleep(60) or open_storage(path))
    found = expected(config(), patience=0.1)
    assert (found.seconds, found.reason) == (None, "the output or the log does not answer within 0.1 s")
    assert unset_variables(config(*AT_SERVERS)) == ["ENCODER_KEY", "RERANKER_KEY"]

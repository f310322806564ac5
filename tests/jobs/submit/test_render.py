"""The manifests of a job: valid by every schema, with the whole config, and a cluster that holds its pools."""

from __future__ import annotations

import functools
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.errors import ConfigError
from cluster.kuberay.worker_groups import WorkerGroup, fixed_pools, worker_groups
from cluster.run.pool_sizes import Pool, PoolRequest
from jobs.__main__ import main
from jobs.config.load import load_config
from jobs.submit.render import job_name, rendered
from tests.support.cluster.manifest_schemas import check

ROOT = Path(__file__).resolve().parents[3]
NIGHTLY = str(ROOT / "configs/nightly.yaml")
Manifest = dict[str, Any]


@functools.cache
def text_of(*settings: str) -> str:
    return rendered(load_config(NIGHTLY, list(settings), "2026-01-31"), NIGHTLY)


def documents(*settings: str) -> tuple[Manifest, Manifest]:
    config_map, job = yaml.safe_load_all(text_of(*settings))
    return config_map, job


def groups(job: Manifest) -> dict[str, int]:
    return {group["groupName"]: group["maxReplicas"] for group in job["spec"]["rayClusterSpec"]["workerGroupSpecs"]}


VARIANTS: dict[str, tuple[str, ...]] = {
    "as it stands": (),
    "a pool that grows": ("cluster.rerank.workers={min: 2, max: 6}",),
    "nothing said": ("cluster={}",),
    "much said": ("rewrite.engine.args={tensor_parallel_size: 2}", "cluster.rewrite={workers: 2}", "label=try-1"),
}


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_everything_is_valid(variant: str) -> None:
    for document in documents(*VARIANTS[variant]):
        check(document)
        assert re.fullmatch(r"[a-z]([-a-z0-9]{0,46}[a-z0-9])?", document["metadata"]["name"])
        assert document["metadata"]["namespace"] == "dmqr"
    assert "$" not in text_of(*VARIANTS[variant]).partition("---")[2].partition("apiVersion")[2]


def test_the_job_reads_the_config_in_its_volume(tmp_path: Path) -> None:
    words = tmp_path / "judged.tsv"
    words.write_text("q1\t0\td1\t1\n")
    config_map, job = documents(f"evaluate.qrels={words}")
    (volume,) = (
        one["configMap"]
        for one in job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["volumes"]
        if one["name"] == "config"
    )
    files = {f"/etc/dmqr/{item['path']}": config_map["data"][item["key"]] for item in volume["items"]}
    verb, place, *_ = shlex.split(job["spec"]["entrypoint"])[1:]
    (tmp_path / "there.yaml").write_text(files[place])
    there, here = load_config(str(tmp_path / "there.yaml")), load_config(NIGHTLY, date="2026-01-31")
    assert verb == "run"
    assert there.evaluate.qrels is not None
    assert files[there.evaluate.qrels] == words.read_text()
    assert files["/etc/dmqr/prices.yaml"] == (ROOT / "configs/prices.yaml").read_text()
    assert there.model_copy(update={"cluster": here.cluster, "evaluate": here.evaluate}) == here


def test_what_is_too_large_for_a_config_map_is_refused(tmp_path: Path) -> None:
    large = tmp_path / "judged.tsv"
    large.write_text("q1\t0\td1\t1\n" * 104_000)
    with pytest.raises(ConfigError, match="a ConfigMap takes"):
        text_of(f"evaluate.qrels={large}")


def test_the_verb_prints_the_job_and_sends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", NIGHTLY, "--render", "--date", "2026-01-31"]) == 0
    assert capsys.readouterr().out == text_of()
    assert main(["submit", NIGHTLY, "--render", "--pip", "six"]) == 2
    assert "--pip: is not rendered" in capsys.readouterr().err


def test_an_ablation_has_room_for_the_engines_of_all_arms(tmp_path: Path) -> None:
    large = {"rewrite.engine": {"kind": "vllm", "model": "org/large", "args": {"tensor_parallel_size": 2}}}
    settings = ["cluster={}", "rerank={kind: none}", f"ablate.arms={json.dumps({'larger': large})}"]
    config = load_config(NIGHTLY, settings, "2026-01-31")
    _, job = yaml.safe_load_all(rendered(config, NIGHTLY, "ablate"))
    assert groups(job) == {"cpu": 2, "gpu-1": 1, "gpu-2": 1}
    assert job["spec"]["entrypoint"] == "dmqr ablate /etc/dmqr/nightly.yaml --log json"


def test_pools_become_worker_groups() -> None:
    _, job = documents("cluster.rerank.workers={min: 2, max: 6}")
    assert groups(job) == {"cpu": 1, "gpu-1": 10}
    container = job["spec"]["rayClusterSpec"]["workerGroupSpecs"][1]["template"]["spec"]["containers"][0]
    assert container["image"] == "registry.example/dmqr:0.1.0-gpu"
    assert container["resources"]["limits"] == {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"}


def test_workers_that_share_a_gpu_share_a_pod() -> None:
    pools = {"rewrite": Pool(2, 1, 2), "retrieve": Pool(5, 2, 0.5), "rerank": Pool(3, 6, 0)}
    assert worker_groups(pools) == [
        WorkerGroup("cpu", 6, 0, 4),
        WorkerGroup("gpu-1", 8, 1, 3),
        WorkerGroup("gpu-2", 16, 2, 2),
    ]
    assert fixed_pools({"rerank": PoolRequest(can_use_gpu=True)}) == {"rerank": Pool(1, 4, 0)}


def test_other_jobs_have_other_names() -> None:
    assert job_name("nightly", "2026-01-31") == "nightly-2026-01-31"
    long = "search-rewrites-experiment-with-reranker-"
    parts = [("night",), ("night_ly",), ("night-ly",), ("2026",), (f"{long}a",), (f"{long}b",)]
    parts += [("night", "one", "2026-01-31"), ("night-one", "2026-01-31"), ("night", "ablate", "2026-01-31")]
    assert len({job_name(*one) for one in parts}) == len(parts)
    assert all(re.fullmatch(r"[a-z]([-a-z0-9]{0,45}[a-z0-9])?", job_name(*one)) for one in parts)

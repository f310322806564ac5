"""`dmqr demo`: from nothing to the page, in a clone and from a wheel outside of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from jobs.__main__ import main
from jobs.verbs.sample import configs_folder
from tests.support.jobs.small_sample import by_words_alone
from tests.support.jobs.whole_runs import PATIENCE, ROOT

BUILT_FROM = ("setup.py", "pyproject.toml", "README.md", "LICENSE", "configs")
PACKAGES = ("cluster", "dmqr", "jobs", "retrievers", "rewriters")


def test_the_sample_is_run_and_what_is_there_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    monkeypatch.setenv("DISPLAY", ":0")
    by_words_alone(tmp_path / "there")
    assert main(["demo", "--to", "there"]) == 0
    out = capfd.readouterr().out
    run = Path(out.splitlines()[-1])
    assert run.parent == tmp_path / "there" / "runs"
    assert "nDCG@10" in out
    assert opened == [(run / "report.html").as_uri()]
    os.chdir(tmp_path)
    assert main(["demo", "--to", "there", "--no-open"]) == 0
    printed = capfd.readouterr()
    assert printed.out.splitlines()[-1] == str(run)
    assert len(opened) == 1
    page, following = [line for line in printed.err.splitlines() if line.startswith("dmqr demo: ")]
    assert page == f"dmqr demo: the page: {(run / 'report.html').as_uri()}"
    assert f"cd {tmp_path}/there && " in following


def test_without_a_screen_no_browser_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jobs.cli.demo import _opened

    page = tmp_path / "report.html"
    page.touch()
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("webbrowser.open", lambda url: True)
    for variable in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    assert not _opened(page)
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert _opened(page)


def test_the_configs_of_an_installed_package_are_its_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no configs lie there"):
        configs_folder(tmp_path)
    for folder in ("configs", "dmqr/configs"):  # of another package, and of this one
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "quickstart.yaml").touch()
    assert configs_folder(tmp_path) == tmp_path / "dmqr" / "configs"
    assert configs_folder() == ROOT / "configs"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a wheel puts beside other packages."""
    place = tmp_path_factory.mktemp("wheel")
    clone = place / "clone"
    clone.mkdir()
    for name in (*BUILT_FROM, *PACKAGES):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, clone)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(place), "."]
    subprocess.run(command, cwd=clone, check=True, capture_output=True, timeout=PATIENCE)
    (wheel,) = place.glob("dmqr-*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(place / "installed")
    return place / "installed"


def test_a_wheel_has_every_config_and_all_code(installed: Path) -> None:
    def names(folder: Path) -> set[str]:
        found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {path.as_posix() for path in found}

    assert names(installed / "dmqr" / "configs") == names(ROOT / "configs")
    assert (installed / "dmqr" / "py.typed").exists()
    for package in PACKAGES:
        code = {name for name in names(ROOT / package) if name.endswith((".py", ".j2", ".css", ".js"))}
        assert code <= names(installed / package), package
    assert {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")} == set(PACKAGES)


@pytest.mark.slow
def test_it_works_outside_a_clone(installed: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if "DISPLAY" not in name} | {"PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, "-m", "jobs", "demo", "--to", "demo"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = Path(done.stdout.splitlines()[-1])
    assert run.parent == tmp_path / "demo" / "runs"
    assert (run / "report.html").as_uri() in done.stderr
    assert "0.8540  (original alone 0.7827)" in done.stdout

"""`dmqr demo`: from nothing to the page."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from jobs.__main__ import main
from jobs.verbs.sample import configs_folder
from tests.support.jobs.small_sample import by_words_alone
from tests.support.jobs.whole_runs import ROOT


@pytest.mark.slow
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

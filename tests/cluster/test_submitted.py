"""What a submitted driver knows of its own job, and what it does otherwise than one that was started by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.run.own_job import submission, submitting_command, working_folder_has
from dmqr.command_line import CommandLine

COMMAND = "dmqr submit night.yaml --address http://head:8265"


@pytest.fixture
def by_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """This process is the driver of a submitted job, in its working folder."""
    job = {"runtime_env": {"working_dir": "gcs://_ray_pkg_1.zip"}, "metadata": {"dmqr_command": COMMAND}}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps(job))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def again(path: Path) -> str:
    path.write_text("name: night\n")
    return CommandLine("run", ["run", str(path)], as_json=False).again("run", str(path), {})


def test_by_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_JOB_CONFIG_JSON_ENV_VAR", raising=False)
    monkeypatch.chdir(tmp_path)
    assert submission() is submitting_command() is None
    assert not working_folder_has([str(tmp_path / "jobs")])
    assert again(tmp_path / "night.yaml").endswith(f" run {tmp_path}/night.yaml")


def test_submitted(by_server: Path) -> None:
    assert again(by_server / "night.yaml") == COMMAND
    assert working_folder_has([str(by_server / "jobs"), str(by_server / "cluster")])
    assert not working_folder_has(["/elsewhere/jobs"])  # the image has them, and the working folder has not


@pytest.mark.parametrize("text", ["", "no json", "[]", "{}", '{"runtime_env": null, "metadata": null}'])
def test_another_submitter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", text)
    monkeypatch.chdir(tmp_path)
    assert submitting_command() is None
    assert not working_folder_has([str(tmp_path / "jobs")])


# ---------------------------------------------------------------- packages that a running cluster is sent

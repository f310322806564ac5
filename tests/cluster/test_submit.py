"""Drivers and their nodes: what a submitted driver does otherwise, and a local output that not all nodes see."""

import json
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.run.job_server import submitting_command, working_folder_has
from cluster.run.session import check_shared
from cluster.storage.files import FileStorage
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
    return CommandLine("run", ["run", str(path)], as_json=False, json_log=False).again(str(path), {})


def test_submitted(by_server: Path) -> None:
    assert again(by_server / "night.yaml") == COMMAND
    assert working_folder_has([str(by_server / "jobs"), str(by_server / "cluster")])
    assert not working_folder_has(["/elsewhere/jobs"])  # the image has them, and the working folder has not


@pytest.mark.parametrize("text", [None, "", "no json", "[]", "{}", '{"runtime_env": null, "metadata": null}'])
def test_by_hand_or_by_another_submitter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None) -> None:
    monkeypatch.delenv("RAY_JOB_CONFIG_JSON_ENV_VAR", raising=False)
    if text is not None:
        monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", text)
    monkeypatch.chdir(tmp_path)
    assert submitting_command() is None
    assert not working_folder_has([str(tmp_path / "jobs")])
    assert again(tmp_path / "night.yaml").endswith(f" run {tmp_path}/night.yaml")


def test_what_a_node_does_not_see_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FileStorage(str(tmp_path / "runs"))
    looked = []

    def look(path: Path) -> dict[str, bool]:
        looked.append(path.read_bytes())
        return {"10.0.0.1": True, "10.0.0.3": False, "10.0.0.2": False}

    monkeypatch.setattr("cluster.run.session._seen_elsewhere", look)
    with pytest.raises(ClusterError, match=r"^output: .*/runs is a folder .* and 2 nodes \(10\.0\.0\.2, \.\.\.\) do not see"):
        check_shared(storage, "output")
    for seen in ({"10.0.0.1": True}, {}):  # no other node answers
        monkeypatch.setattr("cluster.run.session._seen_elsewhere", lambda _, seen=seen: seen)
        check_shared(storage, "output")
    assert looked == [b"1"]
    assert list(storage.list()) == []  # nothing is left there

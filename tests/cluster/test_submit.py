"""Drivers and their nodes: what a submitted driver does otherwise, and a local output that not all nodes see."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.run.own_job import submission, submitting_command, working_folder_has
from cluster.shared_folder import check_shared
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
    return CommandLine("run", ["run", str(path)], as_json=False, json_log=False).again("run", str(path), {})


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


def test_what_a_node_does_not_see_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FileStorage(str(tmp_path / "runs"))
    looked = []

    def look(path: Path) -> dict[str, bool]:
        looked.append(path.read_bytes())
        return {"10.0.0.1": True, "10.0.0.3": False, "10.0.0.2": False}

    monkeypatch.setattr("cluster.shared_folder._seen_elsewhere", look)
    with pytest.raises(ClusterError, match=r"^output: .*/runs is a folder .* and 2 nodes \(10\.0\.0\.2, \.\.\.\) do not see"):
        check_shared(storage, "output")
    for seen in ({"10.0.0.1": True}, {}):  # no other node answers
        monkeypatch.setattr("cluster.shared_folder._seen_elsewhere", lambda _, seen=seen: seen)
        check_shared(storage, "output")
    assert looked == [b"1"]
    assert list(storage.list()) == []  # nothing is left there


# ---------------------------------------------------------------- packages that a running cluster is sent

ROOT = Path(__file__).resolve().parents[2]
DRIVER = """
    import ray
    from ray.cluster_utils import Cluster
    from cluster.run.session import Session

    nodes = Cluster(initialize_head=True, head_node_args={{"num_cpus": 2, "include_dashboard": False}})
    session = Session(nodes.address, {{}}, ["{package}"])

    @ray.remote
    def read():
        import generated_in
        return generated_in.VERSION, generated_in.__file__

    version, place = ray.get(read.remote())
    assert not place.startswith("{package}"), place  # it is a copy that was sent
    print(version)
    session.close()
    nodes.shutdown()
"""


@pytest.mark.slow
def test_a_worker_has_what_the_package_keeps_out_of_git(tmp_path: Path) -> None:
    """Such as the module of its version, which its build generates."""
    package = tmp_path / "packages" / "generated_in"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from generated_in._version import VERSION\n")
    (package / "_version.py").write_text("VERSION = '1.2.3'\n")
    (package / ".gitignore").write_text("_version.py\n")
    driver = tmp_path / "driver.py"
    driver.write_text(textwrap.dedent(DRIVER.format(package=package)))
    environment = os.environ | {"RAY_AUTH_MODE": "disabled", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(driver)], env=environment, capture_output=True, text=True, timeout=560, check=False
    )
    assert done.stdout.split()[-1:] == ["1.2.3"], done.stderr[-3000:]

"""Submitting to three raylets with a real job server, on whose nodes the project is not installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple

import pytest
import yaml
from fake_server import FakeServer
from whole_runs import ROOT, SAMPLE, Done, check_files, check_same_rows, committed, finish, start, wait_until

from cluster.storage import open_storage
from jobs.run.status import read_status

pytestmark = pytest.mark.slow

SECRET = "a-key-that-nodes-hold"
NODES = Path(__file__).with_name("cluster_nodes.py")
SHARDS = 44  # 176 queries, four in each


class Head(NamedTuple):
    """The head of a cluster, and the interpreter of its nodes."""

    address: str
    python: Path
    environment: dict[str, str]


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    """Three raylets that have every library, and not the project."""
    pytest.importorskip("ray.dashboard.optional_deps", reason="ray[default], with its job server, is not installed")
    place = tmp_path_factory.mktemp("nodes")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "python"], check=True)
    found = [one for one in os.environ.get("PYTHONPATH", "").split(":") if one and Path(one).resolve() != ROOT]
    libraries = [sysconfig.get_paths()["purelib"], *found]  # a .pth file that lies there, as an editable install's, is not read
    inside = next((place / "python" / "lib").iterdir()) / "site-packages"
    (inside / "libraries.pth").write_text("\n".join(libraries))
    temporary = tempfile.mkdtemp(prefix="dmqr-")  # the paths of Ray's sockets must be short
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "RAY_ADDRESS")} | {
        "PATH": f"{place / 'python' / 'bin'}:{os.environ['PATH']}",
        "RAY_TMPDIR": temporary,
        "RAY_AUTH_MODE": "disabled",
        "RAY_JOB_STOP_WAIT_TIME_S": "120",
        "ENGINE_KEY": SECRET,
    }
    python = place / "python" / "bin" / "python"
    (place / "empty").mkdir()
    nodes = subprocess.Popen(
        [python, NODES, "2", "3"], cwd=place / "empty", env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=(place / "err").open("w"),
    )  # fmt: skip
    assert nodes.stdout is not None
    try:
        line = nodes.stdout.readline()
        assert line, (place / "err").read_text()
        yield Head(json.loads(line)["address"], python, environment)
    finally:
        nodes.communicate(timeout=60)
        rmtree(temporary, ignore_errors=True)


@pytest.fixture
def engine() -> Iterator[FakeServer]:
    with FakeServer(key=SECRET, text=lambda body: "A keeper of lighthouses answers.") as server:
        yield server


@pytest.fixture
def job(tmp_path: Path, engine: FakeServer) -> Path:
    """The sample's log with a strategy of its own file, asked of an engine that takes its time, searched by BM25."""
    (tmp_path / "strategies").mkdir()
    (tmp_path / "strategies" / "plain.yaml").write_text(
        "label: Plain Words\nprompt: |-\n  Say it plainly.\n\n  Query: {query}\n"
    )
    values: dict[str, Any] = yaml.safe_load((ROOT / "configs" / "quickstart.yaml").read_text())
    values |= {
        "name": "night",
        "log": values["log"] | {"path": str(SAMPLE / "log.parquet")},
        "rewrite": {
            "engine": {"kind": "openai", "base_url": engine.address, "model": "tiny", "api_key_env": "ENGINE_KEY",
                       "max_in_flight": 4},
            "strategies": ["./strategies/plain.yaml"],
        },
        "retrieve": {"depth": 10, "retrievers": {"bm25": {"kind": "local", "index": "index"}}},
        "rerank": {"kind": "none"},
        "output": "runs",
        "limits": {"error_rate": 1},
        "cluster": {"address": "none", "shard_size": 4},
    }  # fmt: skip
    values.pop("evaluate", None)
    path = tmp_path / "night.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.fixture
def dmqr(job: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., subprocess.Popen[str]]:
    """Starts a verb in the folder of the config."""
    monkeypatch.setenv("ENGINE_KEY", SECRET)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{os.environ.get('PYTHONPATH', '')}")

    def begin(*words: str) -> subprocess.Popen[str]:
        return start(["env", "-C", str(job.parent), sys.executable, "-m", "jobs", *words])

    return begin


def ended(process: subprocess.Popen[str], code: int = 0) -> Done:
    done = finish(process)
    assert done.code == code, done.err[-3000:]
    return done


def jobs_of(address: str) -> str:
    with urllib.request.urlopen(f"{address}/api/jobs/", timeout=30) as answer:
        return str(answer.read().decode())


def test_a_night_is_submitted_twice_stopped_in_order_and_submitted_again(
    head: Head, job: Path, engine: FakeServer, dmqr: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    times: dict[str, float] = {}
    absent = subprocess.run(
        [head.python, "-c", "import jobs"], cwd=tmp_path, env=head.environment, capture_output=True, check=False
    )
    assert b"No module named 'jobs'" in absent.stderr
    ended(dmqr("index", job.name, "--corpus", str(SAMPLE / "corpus.parquet")))
    calm = ended(dmqr("run", job.name, "--set", f"output={tmp_path / 'calm'}")).folder
    asked = len(engine.bodies)
    engine.sends.clear()
    engine.seconds = 0.5
    to = ("--address", head.address)
    output = tmp_path / "runs"

    began = time.monotonic()
    job_id = ended(dmqr("submit", job.name, *to, "--detach")).out.strip()
    second = dmqr("submit", job.name, *to)
    wait_until(second, lambda: committed(output) >= 3)
    times["first commits"] = time.monotonic() - began

    began = time.monotonic()
    stopped = ended(dmqr("stop", job.name, *to))
    times["stop"] = time.monotonic() - began
    assert stopped.out == f"{job_id}: stopped\n"
    followed = ended(second, 143)
    assert f"job {job_id} is working already" in followed.err
    (folder,) = output.glob("night-*/commits")
    found = read_status(str(folder.parent))
    assert (found.state, found.holder.released) == ("interrupted", True)
    assert 3 <= found.committed < SHARDS
    assert f"python -m jobs submit night.yaml --address {head.address}" in (found.reason or "")

    began = time.monotonic()
    again = ended(dmqr("submit", job.name, *to))
    times["the rest"] = time.monotonic() - began
    assert f"job {job_id}-2 submitted" in again.err
    assert again.folder == folder.parent
    check_same_rows(again.folder, calm)
    check_files(again.folder, SHARDS)
    assert set(engine.sends.values()) == {1}  # nothing was asked twice: what was under way at the stop was committed
    assert sum(engine.sends.values()) == asked

    began = time.monotonic()
    shown = ended(dmqr("submit", job.name, *to, "--json"))
    times["finished"] = time.monotonic() - began
    assert json.loads(shown.out) == {
        "job": f"{job_id}-3", "address": head.address, "status": "SUCCEEDED", "code": 0, "folder": str(folder.parent)
    }  # fmt: skip
    assert sum(engine.sends.values()) == asked
    listed = jobs_of(head.address)
    assert len(set(re.findall(rf"{job_id}(?:-\d)?", listed))) == 3
    told = ended(dmqr("logs", str(folder.parent), *to, "--no-follow")).out + ended(dmqr("status", job.name, *to)).out
    assert f"job {job_id}-3: succeeded, exit code 0" in told
    assert SECRET not in listed + told + again.err + followed.err
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in folder.parent.rglob("*") if path.is_file())
    assert open_storage(str(output)).folders() == ["night", folder.parent.name]
    print(json.dumps({name: round(seconds, 1) for name, seconds in times.items()} | {"committed at the stop": found.committed}))


def test_what_the_job_refuses_ends_with_2(
    head: Head, job: Path, dmqr: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    done = ended(dmqr("submit", job.name, "--address", head.address, "--set", "log.query_column=nope"), 2)
    assert "dmqr run: " in done.err
    assert "nope" in done.err

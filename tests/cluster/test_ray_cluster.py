"""ray-cluster.yaml: by Ray's own schema; its head asks for a token and keeps its dashboard to itself."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cluster.image_build import ROOT, instructions

CLUSTER: dict[str, Any] = yaml.safe_load((ROOT / "cluster/ray-cluster.yaml").read_text(encoding="utf-8"))
STARTS = [CLUSTER["head_start_ray_commands"][-1], CLUSTER["worker_start_ray_commands"][-1]]
CONTEXT = {path.name for path in ROOT.iterdir()}
TOKEN = "0123456789abcdef" * 4


def test_ray_takes_it() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared = prepare_config(CLUSTER)
    validate_config(prepared)
    assert set(CLUSTER) <= set(prepared)
    assert prepared["available_node_types"]["local.cluster.node"]["min_workers"] == len(CLUSTER["provider"]["worker_ips"])


def test_what_is_copied_is_there_and_enough_to_install() -> None:
    copied = {source for source in CLUSTER["file_mounts"].values() if not source.startswith("~")}
    assert all((ROOT / source).exists() for source in copied)
    steps = [one.text.split() for one in instructions(ROOT / "cluster/Dockerfile") if one.name == "COPY"]
    assert copied == {source for *sources, _ in steps for source in sources if source in CONTEXT}
    assert all("PIP_CONSTRAINT=~/dmqr/cluster/constraints.txt" in one for one in CLUSTER["setup_commands"] if "pip " in one)


def test_every_node_asks_for_a_token() -> None:
    assert all(command.startswith("RAY_AUTH_MODE=token ") for command in STARTS)
    assert CLUSTER["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    assert TOKEN not in json.dumps(CLUSTER)
    assert "--dashboard-host=127.0.0.1 " in STARTS[0]


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@contextmanager
def started(command: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command of the shell in a process group of its own, which is ended: the command first, then what is left of the group.

    A head of Ray that is told to end together with its GCS waits half a minute for it.
    """
    variables = {"PATH": os.defpath, "LANG": "C.UTF-8", **more}
    with subprocess.Popen(["bash", "-c", command], env=variables, stdin=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(120)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def status(address: str, token: str | None = None) -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def until(what: Any, seconds: float = 120) -> Any:
    """The first true answer; what it is waited for may refuse connections until then."""
    for _ in range(int(seconds * 2)):
        try:
            if found := what():
                return found
        except OSError:
            pass
        time.sleep(0.5)
    raise AssertionError(f"not within {seconds} s")


@pytest.mark.slow
def test_a_head_as_it_is_started(tmp_path: Path) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text(TOKEN)
    port, dashboard, agent, client, grpc = free_ports(5)
    command = STARTS[0].replace("~/dmqr/.venv/bin/ray", f"exec {Path(sys.executable).with_name('ray')}")
    command = command.replace("--port=6379", f"--port={port}").replace("--autoscaling-config=~/ray_bootstrap_config.yaml", "")
    command = re.sub(r"((?:\w+=\S+ )+)exec", r"export \1; exec", command)
    short = Path("/tmp") / f"dmqr-ray-{port}"  # sockets' paths have little room
    ports = f" --dashboard-port={dashboard} --dashboard-agent-listen-port={agent} --ray-client-server-port={client}"
    command += f"{ports} --dashboard-agent-grpc-port={grpc} --temp-dir={short} --block"
    try:
        with started(command, HOME=str(tmp_path)):
            jobs = f"http://127.0.0.1:{dashboard}/api/jobs/"
            assert until(lambda: status(jobs, TOKEN) == 200)
            assert status(jobs) in (401, 403)
            assert status(jobs, "0" * 64) in (401, 403)
            outside = socket.gethostbyname(socket.gethostname())
            if not outside.startswith("127."):
                with pytest.raises(OSError):  # noqa: PT011 (refused, or unreachable)
                    socket.create_connection((outside, dashboard), timeout=10)
    finally:
        shutil.rmtree(short, ignore_errors=True)

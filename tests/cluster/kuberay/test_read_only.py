"""A job on a Ray that wants a token, under a pod's limits: read-only root file system, no capabilities, its variables."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from cluster.kuberay.manifests import rayjob
from cluster.kuberay.settings import KubernetesSettings
from cluster.kuberay.worker_groups import WorkerGroup

ROOT = Path(__file__).resolve().parents[3]
CACHE = "/mnt"  # in place of /cache, which this machine may not have
CONFIG = "configs/quickstart.yaml"

# The namespaces of mounts and processes are the script's own: nothing of it stays, and it sees nobody else's processes.
SCRIPT = """
    set -e
    mount --bind / /
    for each in $(findmnt -rn -o TARGET | grep -v -E '^/(proc|sys|dev)'); do mount -o remount,ro,bind "$each" || true; done
    for folder in /tmp {cache} /dev/shm; do mount -t tmpfs -o mode=1777 tmpfs "$folder"; done
    cd {root}
    if touch {root}/writable 2> /dev/null; then echo "not read-only"; exit 9; fi
    exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs bash -c '
        set -e
        {python} -m jobs index {config} {index} --corpus configs/sample/corpus.parquet --set cluster.address=none
        {ray} start --head --num-cpus=4 --port={port} --include-dashboard=false
        export RAY_ADDRESS=127.0.0.1:{port}
        {python} -m jobs run {config} {index} --set cluster.address=auto --set output=/tmp/runs
        ls -A {cache} /tmp/runs'
"""


@pytest.mark.slow
def test_a_job_runs_on_a_read_only_file_system() -> None:
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv", "findmnt"))):
        pytest.skip("needs root, and unshare, setpriv and findmnt, to make a file system read-only for one process")
    if ROOT.is_relative_to("/tmp"):
        pytest.skip("the repository lies in /tmp, of which a pod has one of its own")
    allowed = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*allowed, "mount", "--bind", "/", "/"], capture_output=True, check=False).returncode:
        pytest.skip("namespaces of mounts are not allowed here")
    groups = [WorkerGroup("cpu", 4, 0, 1, 1)]
    job: dict[str, Any] = rayjob("a", "a", KubernetesSettings(), groups, "", 3600, "a", False, 30)
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    assert {mount["mountPath"] for mount in head["volumeMounts"]} == {"/tmp", "/cache", "/dev/shm", "/etc/dmqr"}
    of_pod = {one["name"]: one["value"].replace("/cache", CACHE) for one in head["env"]}
    environment = {
        **of_pod, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1",
        "RAY_worker_niceness": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4,
    }  # fmt: skip
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    index = " ".join(f"--set retrieve.retrievers.{name}.index=/tmp/index" for name in ("bm25", "dense"))
    script = textwrap.dedent(SCRIPT).format(
        cache=CACHE, root=ROOT, python=sys.executable, config=CONFIG, index=index, port=port,
        ray=Path(sys.executable).with_name("ray"),
    )  # fmt: skip
    done = subprocess.run([*allowed, "bash", "-c", script], env=environment, capture_output=True, text=True, timeout=560,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "/tmp/runs/quickstart-" in done.stdout
    assert "/tmp/runs:\nquickstart" in done.stdout

"""A local output that not all nodes of a cluster see is refused before anything is done."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from cluster.errors import ClusterError
from cluster.shared_folder import check_shared
from cluster.storage.files import FileStorage

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
    set -e
    {ray} start --head --num-cpus=1 --port={port} --include-dashboard=false > /dev/null
    # the second node has a disk of its own in place of this one's
    unshare --mount bash -c 'mount -t tmpfs none {own} && {ray} start --address=127.0.0.1:{port} --num-cpus=1' > /dev/null
    {python} -c '{driver}'
"""
DRIVER = """
    import sys, time
    import ray
    from cluster.errors import ClusterError
    from cluster.shared_folder import check_shared
    from cluster.storage.files import FileStorage
    ray.init("127.0.0.1:{port}", runtime_env=dict(py_modules=["{root}/cluster"]))
    while len(ray.nodes()) < 2:
        time.sleep(0.1)
    check_shared(FileStorage("{shared}"), "output")
    print("shared")
    try:
        check_shared(FileStorage("{own}/runs"), "output")
    except ClusterError as error:
        print(error.code)
"""


def test_what_a_node_does_not_see_is_refused(tmp_path: Path) -> None:
    storage = FileStorage(str(tmp_path / "runs"))
    looked = []

    def look(path: Path) -> dict[str, bool]:
        looked.append(path.read_bytes())
        return {"10.0.0.1": True, "10.0.0.3": False, "10.0.0.2": False}

    with pytest.raises(ClusterError, match=r"^output: .*/runs is a folder .* and 2 nodes \(10\.0\.0\.2, \.\.\.\) do not see"):
        check_shared(storage, "output", look)
    check_shared(storage, "output", lambda _: {"10.0.0.1": True})
    check_shared(storage, "output", lambda _: {})  # no other node answers
    assert looked == [b"1"]
    assert list(storage.list()) == []  # nothing is left there


@pytest.mark.slow
def test_a_node_with_a_disk_of_its_own_is_found(tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare, to give a node a disk of its own")
    allowed = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]  # all that it starts ends with it
    if subprocess.run([*allowed, "mount", "-t", "tmpfs", "none", tmp_path], capture_output=True, check=False).returncode:
        pytest.skip("namespaces of mounts are not allowed here")
    for name in ("own", "shared"):
        (tmp_path / name).mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    names = {"root": ROOT, "own": tmp_path / "own", "shared": tmp_path / "shared", "port": port, "python": sys.executable}
    driver = textwrap.dedent(DRIVER).format(**names)
    script = textwrap.dedent(SCRIPT).format(ray=Path(sys.executable).with_name("ray"), driver=driver, **names)
    temporary = f"/tmp/dmqr-{time.time_ns():x}"  # Ray's sockets want short paths
    environment = os.environ | {"RAY_AUTH_MODE": "disabled", "PYTHONPATH": str(ROOT), "RAY_TMPDIR": temporary}
    try:
        done = subprocess.run([*allowed, "bash", "-c", script], env=environment, capture_output=True, text=True, timeout=560,
                              check=False)  # fmt: skip
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert done.stdout.split()[-2:] == ["shared", "storage-refused"]

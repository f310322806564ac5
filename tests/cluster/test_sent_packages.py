"""Packages that a running cluster is sent are whole: workers have what a package's .gitignore names, too."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

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

"""A run on Ray of its own, started and stopped by a program: standard output and signals stay as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.jobs.whole_runs import PATIENCE, ROOT

pytestmark = pytest.mark.slow

PROGRAM = """
import signal, threading
import dmqr

before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
found = [dmqr.run("job.yaml", label="main")]
thread = threading.Thread(target=lambda: found.append(dmqr.run("job.yaml", label="thread")))
thread.start()
thread.join()
assert [one.state for one in found] == ["finished", "finished"]
assert found[0].table("results").num_rows == found[1].table("results").num_rows > 0
assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
print("ok")
"""


def test_twice_in_one_process(here: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=here, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr

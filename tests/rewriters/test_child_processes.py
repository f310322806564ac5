"""The watchdog kills registered child processes when their parent ends, and no others."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rewriters.engines.vllm import processes

PARENT = """
import subprocess, sys, time
from rewriters.engines.vllm.processes import ChildProcessWatchdog

watchdog = ChildProcessWatchdog()
before = subprocess.Popen(["sleep", "600"])
with watchdog.registering():
    child = subprocess.Popen(["sh", "-c", "sleep 600 & wait"])
    time.sleep(1.2)
    brief = subprocess.Popen(["true"]).wait()
if sys.argv[1] == "close":
    watchdog.close()
print("ready", flush=True)
time.sleep(600)
"""


def run(end: str) -> tuple[subprocess.Popen[str], dict[str, psutil.Process]]:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, end], stdout=subprocess.PIPE, text=True,
        env={"PYTHONPATH": str(Path(processes.__file__).parents[2]), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert parent.stdout is not None
    assert parent.stdout.readline() == "ready\n"
    mine = psutil.Process(parent.pid)
    (shell,) = [child for child in mine.children() if child.cmdline()[:1] == ["sh"]]
    (before,) = [child for child in mine.children() if child.cmdline()[:1] == ["sleep"]]
    (grandchild,) = shell.children()
    return parent, {"before": before, "shell": shell, "grandchild": grandchild}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_registered_processes_end_with_the_parent_and_no_others(number: int) -> None:
    parent, processes = run("stay")
    before = processes.pop("before")
    parent.send_signal(number)
    parent.wait()
    _, alive = psutil.wait_procs(list(processes.values()), timeout=300)
    assert not alive
    assert before.is_running()
    before.kill()


def test_a_closed_watchdog_kills_nothing() -> None:
    parent, processes = run("close")
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(list(processes.values()), timeout=1)
    assert len(alive) == 3
    for process in alive:
        process.kill()

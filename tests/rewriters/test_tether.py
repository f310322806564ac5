"""Processes that are tied to their parent: they end with it, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rewriters.engines import tether

PARENT = """
import subprocess, sys, time
from rewriters.engines.tether import Tether

tie = Tether()
before = subprocess.Popen(["sleep", "600"])
with tie.starting():
    child = subprocess.Popen(["sh", "-c", "sleep 600 & wait"])
    time.sleep(1.2)
    brief = subprocess.Popen(["true"]).wait()
if sys.argv[1] == "close":
    tie.close()
print("ready", flush=True)
time.sleep(600)
"""


def run(end: str) -> tuple[subprocess.Popen[str], dict[str, psutil.Process]]:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, end], stdout=subprocess.PIPE, text=True,
        env={"PYTHONPATH": str(Path(tether.__file__).parents[2]), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert parent.stdout is not None
    assert parent.stdout.readline() == "ready\n"
    mine = psutil.Process(parent.pid)
    (shell,) = [child for child in mine.children() if child.cmdline()[:1] == ["sh"]]
    (before,) = [child for child in mine.children() if child.cmdline()[:1] == ["sleep"]]
    (grandchild,) = shell.children()
    return parent, {"before": before, "shell": shell, "grandchild": grandchild}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_was_started_meanwhile_ends_with_the_parent_and_nothing_else(number: int) -> None:
    parent, processes = run("stay")
    before = processes.pop("before")
    parent.send_signal(number)
    parent.wait()
    _, alive = psutil.wait_procs(list(processes.values()), timeout=10)
    assert not alive
    assert before.is_running()
    before.kill()


def test_what_is_let_go_lives_on() -> None:
    parent, processes = run("close")
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(list(processes.values()), timeout=1)
    assert len(alive) == 3
    for process in alive:
        process.kill()

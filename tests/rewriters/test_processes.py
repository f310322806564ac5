"""Processes below a worker: children that end with it, and cores that threads keep off."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rewriters.engines.vllm import processes
from rewriters.engines.vllm.processes import Cores

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


if not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2:
    pytest.skip("needs two cores, and a system that binds processes to them", allow_module_level=True)

ALL = os.sched_getaffinity(0)
LAST = {max(ALL)}


def used(pid: int) -> set[frozenset[int]]:
    return {frozenset(os.sched_getaffinity(thread.id)) for thread in psutil.Process(pid).threads()}


@contextlib.contextmanager
def child(bound_to: set[int] | None = None) -> Iterator[int]:
    code = f"import os; {f'os.sched_setaffinity(0, {bound_to});' if bound_to else ''} print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


@pytest.fixture
def cores() -> Iterator[Cores]:
    cores = Cores()
    yield cores
    cores.take_back()
    assert used(os.getpid()) == {frozenset(ALL)}


def test_all_threads_keep_off_the_cores_of_a_bound_child(cores: Cores) -> None:
    over = threading.Event()
    beside = threading.Thread(target=over.wait)
    beside.start()
    try:
        with child(LAST) as worker, child() as scheduler:
            cores.leave_to_workers()
            rest = {frozenset(ALL - LAST)}
            assert (used(os.getpid()), used(scheduler), used(worker)) == (rest, rest, {frozenset(LAST)})
            cores.take_back()
            assert used(os.getpid()) == used(scheduler) == {frozenset(ALL)}
    finally:
        over.set()
        beside.join()


def test_children_that_were_kept_off_are_not_taken_for_workers_later(cores: Cores) -> None:
    with child() as beside:
        with child(LAST):
            cores.leave_to_workers()
        cores.take_back()
        with child(LAST):
            cores.leave_to_workers()
            assert used(os.getpid()) == used(beside) == {frozenset(ALL - LAST)}


def test_nothing_moves_where_the_workers_have_every_core(cores: Cores) -> None:
    with contextlib.ExitStack() as workers:
        for core in ALL:
            workers.enter_context(child({core}))
        cores.leave_to_workers()
        assert used(os.getpid()) == {frozenset(ALL)}

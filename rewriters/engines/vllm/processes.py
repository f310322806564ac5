"""vLLM's child processes: a watchdog that kills them when this process ends, and the cores and accelerators they may use.

A process that is killed (SIGKILL, out of memory) leaves its children behind: an orphaned engine core would keep the
accelerator's memory, and the next worker could not start. The watchdog is a small shell that reads process ids from a
pipe; when this process ends, so does the pipe, and the shell kills the processes.

vLLM's CPU build binds its workers to cores: all but one (`VLLM_CPU_OMP_THREADS_BIND`, `VLLM_CPU_NUM_OF_RESERVED_CPU`). Their
threads meet at every layer, so that whatever takes a turn on one of their cores stops them all. vLLM leaves it to the system
where its front end and its scheduler run: 1.1 to 1.2 times as many steps a second with both kept off (two cores, vllm_rate.py).
"""

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence

import psutil

_SHELL = """
while read -r line; do pids=$line; done
[ -z "$pids" ] || kill -9 $pids 2>/dev/null
"""
_POLL_INTERVAL = 0.5  # seconds


class ChildProcessWatchdog:
    """Kills the child processes that started inside `registering()`, and their children, when this process ends."""

    def __init__(self) -> None:
        """Starts the watchdog's shell."""
        # In a session of its own: a signal to this process's group must not end the shell first.
        self._shell = subprocess.Popen(["/bin/sh", "-c", _SHELL], stdin=subprocess.PIPE, start_new_session=True)

    @contextlib.contextmanager
    def registering(self) -> Iterator[None]:
        """Registers every process that starts inside the `with` block."""
        before = _descendants()
        done = threading.Event()

        def poll() -> None:
            while not done.wait(_POLL_INTERVAL):
                self._register(_descendants() - before)

        poller = threading.Thread(target=poll, daemon=True)
        poller.start()
        try:
            yield
        finally:
            done.set()
            poller.join()
            self._register(_descendants() - before)

    def close(self) -> None:
        """Ends the watchdog without killing anything; a second call does nothing."""
        self._shell.kill()
        self._shell.wait()

    def _register(self, pids: set[int]) -> None:
        """Registers these processes, and no others: the ids of those that have ended may be used again."""
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{' '.join(map(str, pids))}\n".encode())
        self._shell.stdin.flush()


def _descendants() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


_VISIBLE = "CUDA_VISIBLE_DEVICES"
_lock = threading.Lock()  # the environment is the process's: one engine starts at a time


class Cores:
    """Cores that this process and its children may use; without `sched_setaffinity` (macOS) nothing is moved."""

    def __init__(self) -> None:
        """Remembers the cores that this process may use now."""
        self._all = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else set()
        self._kept_off: list[psutil.Process] = []

    def leave_to_workers(self) -> None:
        """Keeps this process, and its children that are bound to no cores, off the cores to which other children are bound."""
        if not self._all:
            return
        this = psutil.Process()
        children = this.children(recursive=True)
        bound = {child: cores for child in children if (cores := _affinity(child)) and cores < self._all}
        rest = self._all.difference(*bound.values())
        if not bound or not rest:
            return
        self._kept_off = [this, *(child for child in children if child not in bound)]
        for process in self._kept_off:
            _bind(process, rest)

    def take_back(self) -> None:
        """Lets them run everywhere again, and what is started from now on."""
        while self._kept_off:
            _bind(self._kept_off.pop(), self._all)


def _affinity(process: psutil.Process) -> set[int]:
    with contextlib.suppress(ProcessLookupError):
        return os.sched_getaffinity(process.pid)
    return set()


def _bind(process: psutil.Process, cores: set[int]) -> None:
    """All threads of a process, as Linux binds each for itself."""
    if not process.is_running():
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        for thread in process.threads():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread.id, cores)


@contextlib.contextmanager
def visible(devices: Sequence[int] | None) -> Iterator[None]:
    """Lets processes that are started in the body see these of the accelerators that this process sees; None: all.

    So several engines of a worker have some of its accelerators each.
    """
    if devices is None:
        yield
        return
    with _lock:
        before = os.environ.get(_VISIBLE)
        seen = before.split(",") if before else [str(device) for device in range(max(devices) + 1)]
        os.environ[_VISIBLE] = ",".join(seen[device] for device in devices)
        try:
            yield
        finally:
            if before is None:
                del os.environ[_VISIBLE]
            else:
                os.environ[_VISIBLE] = before

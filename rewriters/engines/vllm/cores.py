"""Cores for those who compute: vLLM's CPU build binds its workers to cores, and what stands around them keeps off these.

The workers take all cores but one (`VLLM_CPU_OMP_THREADS_BIND`, `VLLM_CPU_NUM_OF_RESERVED_CPU`) and their threads meet at
every layer, so that whatever takes a turn on one of their cores stops them all. vLLM leaves it to the system where its
front end and its scheduler run: 1.1 to 1.2 times as many steps a second with both kept off (two cores, vllm_rate.py).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence

import psutil

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_lock = threading.Lock()  # the environment is the process's: one engine starts at a time


class Cores:
    """Which cores this process and its children may use; without `sched_setaffinity` (macOS) nothing is moved."""

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
        bound = {child: found for child in children if (found := _affinity(child)) and found < self._all}
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

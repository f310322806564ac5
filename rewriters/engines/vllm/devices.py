"""Which accelerators an engine's processes see: several engines of a worker have some of its accelerators each."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_lock = threading.Lock()  # the environment is the process's: one engine starts at a time


@contextmanager
def visible(devices: Sequence[int] | None) -> Iterator[None]:
    """Lets processes that are started in the body see these of the accelerators that this process sees; None: all."""
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

"""A worker that is built is heard of while it computes, in whatever process, and not while it hangs."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

from cluster.run.pulse import reported_while_busy


def test_one_that_computes_is_reported() -> None:
    heard = threading.Event()
    with reported_while_busy(heard.set, seconds=0.2):
        end = time.monotonic() + 300
        while not heard.is_set() and time.monotonic() < end:
            sum(range(100_000))
    assert heard.is_set()


def test_one_whose_child_computes_is_reported() -> None:
    heard = threading.Event()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        try:
            with reported_while_busy(heard.set, seconds=0.2):
                heard.wait(300)
        finally:
            child.kill()
    assert heard.is_set()


def test_one_that_waits_is_not_reported() -> None:
    heard: list[None] = []
    with reported_while_busy(lambda: heard.append(None), seconds=0.5):
        time.sleep(2.2)
    assert not heard

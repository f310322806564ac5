"""Calls on threads that nobody waits for: in order, so many at a time, and no hindrance to an end."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from cluster.storage.prefetch import begin, prefetch

ROOT = Path(__file__).parents[2]


def test_values_come_in_order_and_no_more_are_begun_than_asked() -> None:
    begun: list[int] = []

    def double(n: int) -> int:
        begun.append(n)
        time.sleep(0.01 * (n % 3))
        return 2 * n

    values = prefetch(double, range(10), 3)
    assert next(values) == 0
    while len(begun) < 3:
        time.sleep(0.01)
    time.sleep(0.1)
    assert len(begun) == 3
    assert list(values) == [2 * n for n in range(1, 10)]


def test_what_a_call_raises_is_raised_where_its_value_is_asked_for() -> None:
    with pytest.raises(ZeroDivisionError):
        begin(lambda: 1 // 0).result()


def test_a_process_ends_while_calls_are_under_way() -> None:
    code = "import time\nfrom cluster.storage.prefetch import begin\nbegin(time.sleep, 3600)\n"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=300, check=False).returncode == 0

"""Two jobs at once on one store, as two processes, while it is compacted: same rows, no error, one answer paid once by each."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from cluster.storage import open_storage
from jobs.store.compact import compact
from tests.support.jobs.nights import NEW, QUERIES, Nights, log, results
from tests.support.jobs.whole_runs import ROOT, finish
from tests.support.rewriters.fake_server import FakeServer

pytestmark = pytest.mark.slow


def test_two_jobs_at_once(nights: Nights, llm: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    first = nights.run("one")[0]
    log([*QUERIES, NEW])
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    before = len(llm.bodies)
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "jobs", "run", nights.path, "--label", label],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for label in ("two", "three")
    ]  # fmt: skip
    store = open_storage(str(first.parent / "store"))
    while any(process.poll() is None for process in started):
        compact(store, grace=0.0)
    ended = [finish(process) for process in started]
    assert [done.code for done in ended] == [0, 0], [done.err for done in ended]
    folders = [Path(done.out.splitlines()[-1]) for done in ended]
    assert results(folders[0]) == results(folders[1])
    asked = Counter(str(body["messages"]) for body in llm.bodies[before:])
    assert len(asked) == 1  # of the new query alone
    assert max(asked.values()) <= 2
    third = nights.run("four")
    assert third[1:] == (0, 0)
    assert results(third[0]) == results(folders[0])

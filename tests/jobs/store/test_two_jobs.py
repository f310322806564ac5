"""Two jobs at once on one store, as two processes, while it is compacted: same rows, no error, one answer paid once by each."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from cluster.storage import open_storage
from jobs.store.compact import compact
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.nights import NEW, QUERIES, Nights, log, results, totals
from tests.support.jobs.whole_runs import ROOT, finish, rows
from tests.support.rewriters.fake_server import FakeServer

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("known", ["nothing", "all but one query"])
@pytest.mark.parametrize("place", ["folder", "s3"])
def test_two_jobs_at_once(
    nights: Nights, llm: FakeServer, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, known: str, place: str
) -> None:
    s3: S3Server | None = request.getfixturevalue("s3") if place == "s3" else None
    address = str(Path("facts").absolute()) if s3 is None else s3.fresh("facts")
    store, settings = open_storage(address), [f"store={address}"]
    if known != "nothing":
        nights.run("one", *settings)
    missing = [NEW] if known != "nothing" else [*QUERIES, NEW]
    log([*QUERIES, NEW])
    alone = nights.run("alone", "store=null")[0]
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    before = len(llm.bodies)
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "jobs", "run", nights.path, "--label", label, "--set", settings[0]],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for label in ("two", "three")
    ]  # fmt: skip
    while any(process.poll() is None for process in started):
        if list(store.list()):
            compact(store, grace=0.0)
    ended = [finish(process) for process in started]
    assert [done.code for done in ended] == [0, 0], [done.err for done in ended]
    folders = [Path(done.out.splitlines()[-1]) for done in ended]
    for folder in folders:
        assert results(folder) == results(alone)
        assert sorted(map(repr, rows(folder, "rewrites"))) == sorted(map(repr, rows(alone, "rewrites")))
        # each has an answer to each query, from the store or paid for, and pays for no query twice nor for a known one
        paid = Counter(one["query_id"] for one in rows(folder, "costs") if one["stage"] == "rewrite" and one["requests"])
        assert max(paid.values(), default=0) <= 1
        assert len(paid) <= len(missing)
        assert totals(folder, "requests")["rewrite"] + totals(folder, "reused")["rewrite"] == len(QUERIES) + 1
        assert totals(folder, "pairs")["rerank"] <= totals(alone, "pairs")["rerank"]
    asked = Counter(str(body["messages"]) for body in llm.bodies[before:])
    assert len(asked) == len(missing)
    assert max(asked.values()) <= 2
    assert sum(asked.values()) == sum(totals(folder, "requests")["rewrite"] for folder in folders)
    third = nights.run("four", *settings)
    assert third[1:] == (0, 0)
    assert results(third[0]) == results(alone)

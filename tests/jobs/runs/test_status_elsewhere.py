"""`dmqr runs RUN` from another machine, or as good as one: of a real run on S3, with nothing but its address."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.storage import open_storage
from jobs.runs.starts import PROGRESS
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.in_process_runs import QUERIES, job_in_process
from tests.support.jobs.whole_runs import ROOT, finish, start, wait_until
from tests.support.rewriters.fake_server import FakeServer

pytestmark = pytest.mark.slow

# Another process namespace: the driver's process is not to be seen there, as on another machine.
ELSEWHERE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]


def status_elsewhere(run: str, s3: S3Server, place: Path) -> dict[str, Any]:
    """What `dmqr runs RUN --json` prints there: another folder and environment, no config, no Ray."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(place), "PYTHONPATH": str(ROOT), "TZ": "Asia/Tokyo", **s3.environment}
    command = [*ELSEWHERE, sys.executable, "-m", "jobs", "runs", run, "--json"]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    values: dict[str, Any] = json.loads(done.stdout)
    return values


def test_a_run_on_s3_seen_from_another_machine(
    s3: S3Server, tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if subprocess.run([*ELSEWHERE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no other process namespace may be had here (unshare)")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    output = s3.fresh("runs")
    job_in_process(tmp_path, values, bm25, config_file)
    go_on = threading.Event()

    def text(body: dict[str, Any]) -> str:
        if QUERIES[3] in str(body):  # in one of the two shards
            go_on.wait(300)
        return "general: a text"

    with FakeServer(text=text) as server:
        engine = {"kind": "openai", "base_url": server.address, "model": "tiny", "max_in_flight": 8, "patience_minutes": 9}
        values |= {"output": output, "log": {"path": str(tmp_path / "log.parquet"), "query_column": "query"}}
        values["rewrite"] |= {"engine": engine}
        config = config_file(values)
        command = [sys.executable, "-m", "jobs", "run", config]
        driver = start(command)
        storage = open_storage(output)

        def working() -> bool:
            found = [one.key for one in storage.list() if one.key.endswith(PROGRESS)]
            return bool(found) and json.loads(storage.get(found[0]) or b"{}").get("phase") == "working"

        wait_until(driver, working)
        (run,) = (name for name in storage.folders() if name.startswith("small-"))
        seen = status_elsewhere(f"{output}/{run}", s3, elsewhere)
        assert (seen["state"], seen["phase"], seen["pid"], seen["start"]) == ("running", "working", driver.pid, 1)
        assert seen["shards"]["planned"] == 2
        assert seen["queries"]["total"] == len(QUERIES)
        assert [stage["name"] for stage in seen["stages"]][:3] == ["read", "rewrite", "retrieve"]
        assert seen["folder"] == f"{output}/{run}"
        driver.kill()
        driver.communicate()
        assert status_elsewhere(seen["folder"], s3, elsewhere)["state"] == "running"  # as far as can be known there
        go_on.set()
        done = finish(start(command))
        assert done.code == 0, done.err
        seen = status_elsewhere(seen["folder"], s3, elsewhere)
    assert (seen["state"], seen["start"], seen["shards"]) == ("finished", 2, {"committed": 2, "planned": 2})
    assert (seen["queries"]["committed"], seen["errors"]["queries"]) == (len(QUERIES), 0)
    assert list(elsewhere.iterdir()) == []

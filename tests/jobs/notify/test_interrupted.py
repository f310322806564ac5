"""A job whose process is told to end says so: while it works, and before."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dmqr
from tests.support.jobs.in_process_runs import QUERIES, job_in_process
from tests.support.jobs.webhook import Webhook
from tests.support.jobs.whole_runs import ROOT, wait_until
from tests.support.rewriters.fake_server import FAULTS, FakeServer

ROWS = 120  # in shards of three
Start = Callable[[FakeServer, Webhook], "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str]) -> Start:
    """Starts a run as a process, with an LLM and a webhook."""
    path = job_in_process(tmp_path, values | {"notify": [{"webhook_env": "HOOK"}]}, bm25, config_file)
    pq.write_table(
        pa.table({"query": [f"{query} {number}" for query in QUERIES for number in range(ROWS // 6)]}), tmp_path / "log.parquet"
    )

    def run(llm: FakeServer, hook: Webhook) -> subprocess.Popen[str]:
        engine = json.dumps({"kind": "openai", "model": "tiny", "base_url": llm.address, "attempts": 1})
        command = [sys.executable, "-m", "jobs", "run", path, "--set", f"rewrite.engine={engine}"]
        return subprocess.Popen(
            [*command, "--set", "cluster.grace_seconds=0.2"],
            cwd=tmp_path, env=os.environ | {"HOOK": hook.address, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    return run


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)])
@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_a_signal_at_work(start: Start, number: signal.Signals, code: int, seconds: float) -> None:
    """The next start comes soon after SIGTERM, so nothing waits long for a webhook that hangs."""
    with FakeServer(seconds=0.5, text=lambda _: json.dumps({"general": "about it"})) as llm, Webhook(seconds=seconds) as hook:
        run = start(llm, hook)
        wait_until(run, lambda: llm.bodies)
        run.send_signal(number)
        began = time.monotonic()
        err = run.communicate(timeout=60)[1]
        assert time.monotonic() - began < 25
        (told,) = hook.bodies
    assert run.returncode == code, err
    assert (told["event"], told["exit_code"], told["code"]) == ("interruption", code, "interrupted")
    assert told["queries"]["of"] == ROWS
    assert told["queries"]["done"] < ROWS
    assert err.splitlines()[-1] == f"dmqr run: {told['line']} [interrupted]"
    if seconds:
        assert "notify: HOOK: may not have been told: no end within 3 s" in err


@pytest.mark.slow
def test_sigterm_before_the_work_begins(start: Start) -> None:
    with FakeServer(models=FAULTS["hang"]) as llm, Webhook() as hook:
        run = start(llm, hook)
        wait_until(run, lambda: llm.listings)
        run.send_signal(signal.SIGTERM)
        err = run.communicate(timeout=60)[1]
        (told,) = hook.bodies
    assert run.returncode == 143, err
    assert (told["event"], told["exit_code"], told["queries"]) == ("interruption", 143, {"done": 0, "of": None})
    assert err.splitlines()[-1] == "dmqr run: interrupted; start it again"


def test_a_call_from_python_tells_and_leaves_signals_alone(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    path = job_in_process(tmp_path, values | {"notify": [{"webhook_env": "HOOK"}]}, bm25, config_file)
    before, seen = signal.getsignal(signal.SIGTERM), set()

    def progress(_: object) -> None:
        seen.add(signal.getsignal(signal.SIGTERM))
        if stop:
            raise KeyboardInterrupt

    with Webhook() as hook:
        monkeypatch.setenv("HOOK", hook.address)
        stop = True
        with pytest.raises(KeyboardInterrupt):
            dmqr.run(path, progress=progress)
        stop = False
        dmqr.run(path, progress=progress)
        assert [(one["event"], one["exit_code"]) for one in hook.bodies] == [("interruption", 130), ("end", 0)]
    assert seen == {before}

"""A job inside a program leaves its streams, signals and loggers as they are, also on a Ray of its own."""

import asyncio
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import dmqr
from tests.support.jobs.whole_runs import PATIENCE, ROOT

IN_PROCESS = {"cluster.address": "none"}


@pytest.mark.slow
def test_from_a_thread_and_from_a_running_event_loop(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    found: list[Any] = []

    def work(label: str) -> None:
        found.append(dmqr.run("job.yaml", **IN_PROCESS, label=label))

    async def in_a_loop() -> None:  # as a cell of a notebook is called
        work("loop")

    thread = threading.Thread(target=work, args=("thread",))
    thread.start()
    thread.join()
    asyncio.run(in_a_loop())
    work("main")
    work("main")  # a second time: it is finished
    assert [one.state for one in found] == ["finished"] * 4
    assert found[2].folder == found[3].folder
    assert capfd.readouterr() == ("", "")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.slow
def test_events_are_in_the_folder_and_reach_handlers_as_far_as_their_levels_let_them(
    here: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = dmqr.run("job.yaml", **IN_PROCESS, evaluate__qrels="qrels.tsv", label="quiet")
    assert {record.levelno for record in caplog.records if record.name.startswith("dmqr")} <= {logging.WARNING}
    (log,) = (Path(run.folder) / "logs").glob("*.jsonl")
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert (events[0], events[-1]) == ("start", "end")
    assert not list((Path(run.folder) / "logs").glob("*.output.log"))
    caplog.clear()
    tree = logging.getLogger("dmqr")
    with caplog.at_level(logging.INFO, "dmqr"):
        dmqr.run("job.yaml", **IN_PROCESS, label="told")
    assert "commit" in {getattr(record, "event", "") for record in caplog.records}
    assert tree.propagate
    assert [type(one) for one in tree.handlers] == [logging.NullHandler]


@pytest.mark.slow
def test_what_the_function_raises_ends_the_run_which_goes_on_afterwards(here: Path) -> None:
    def stop(progress: dict[str, Any]) -> None:
        if progress["phase"] == "checking and closing":
            raise ZeroDivisionError("enough")

    with pytest.raises(dmqr.Stopped) as stopped:
        dmqr.run("job.yaml", **IN_PROCESS, progress=stop)
    assert stopped.value.code == "stopped-failure"
    assert isinstance(stopped.value.__cause__, ZeroDivisionError)
    assert stopped.value.remedy == "resume with: the same call"
    assert dmqr.run("job.yaml", **IN_PROCESS).finished


def test_an_interrupt_is_a_keyboard_interrupt_and_the_run_goes_on(here: Path) -> None:
    def interrupt(progress: dict[str, Any]) -> None:
        if progress["phase"] == "starting the workers":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dmqr.run("job.yaml", **IN_PROCESS, progress=interrupt)
    (folder,) = (here / "runs").glob("job-*")
    assert json.loads((folder / "run.json").read_text())["status"] == "interrupted"
    assert "interrupted" in dmqr.open(folder).state
    run = dmqr.run("job.yaml", **IN_PROCESS)
    assert (run.finished, Path(run.folder)) == (True, folder)


@pytest.mark.slow
def test_progress_is_told_and_another_job_meanwhile_refused_without_harm(here: Path) -> None:
    told: list[dict[str, Any]] = []
    refused: list[dmqr.DmqrError] = []

    def another(progress: dict[str, Any]) -> None:
        told.append(progress)
        if not refused:
            with pytest.raises(dmqr.HeldError) as error:
                dmqr.run("job.yaml", **IN_PROCESS, label="another")
            refused.append(error.value)

    assert dmqr.run("job.yaml", **IN_PROCESS, progress=another).finished
    assert (refused[0].code, refused[0].where) == ("run-held", "this process")
    assert told[0]["phase"] == "reading the log"
    assert "evaluating and writing the report" in {one["phase"] for one in told}
    json.dumps(told)


@pytest.mark.slow
def test_a_limit_names_the_call_that_goes_on(here: Path) -> None:
    lines = (here / "recorded.jsonl").read_text().splitlines()
    (here / "recorded.jsonl").write_text(lines[0] + "\n")
    with pytest.raises(dmqr.Stopped) as stopped:
        dmqr.run("job.yaml", cluster__address="none", limits__error_rate=0.1)
    assert stopped.value.code == "stopped-errors"
    call, _, setting = stopped.value.remedy.partition("resume with: ")[2].partition(" with ")
    key, _, value = setting.partition("=")
    assert (call, key) == ("the same call", "limits__error_rate")
    assert dmqr.run("job.yaml", cluster__address="none", **{key: float(value)}).finished


def test_a_refusal_says_where_what_and_what_to_do(here: Path) -> None:
    with pytest.raises(dmqr.DmqrError) as refused:
        dmqr.run("job.yaml", fuse__methd="rrf")
    error = refused.value
    assert (error.code, error.where) == ("config-value", "job.yaml")
    assert error.remedy.startswith("did you mean 'method'?")
    assert error.what in str(error)
    with pytest.raises(dmqr.ConfigError, match="config: is a int; give the path"):
        dmqr.plan(7)  # type: ignore[arg-type]
    with pytest.raises(dmqr.ConfigError, match=r"name\.k: name is a value, it has no keys"):
        dmqr.plan("job.yaml", name__k=2)
    with pytest.raises(dmqr.LogError):
        dmqr.plan("job.yaml", log__path="none.parquet")
    with pytest.raises(dmqr.ConfigError, match="there is no run"):
        dmqr.open("none")


@pytest.mark.slow
def test_what_is_shown_is_escaped(here: Path) -> None:
    found = dmqr.rewrite(["<script>alert(1)</script>"], "job.yaml")
    assert "<script>" not in found._repr_html_()
    assert "&lt;script&gt;" in found._repr_html_()
    run = dmqr.run("job.yaml", **IN_PROCESS, evaluate__qrels="qrels.tsv")
    shown = run._repr_html_()
    assert shown.startswith("<pre>")
    assert "nDCG@10" in shown
    assert "nDCG@10" in run.quality()._repr_html_()
    figures = r"\d+ queries, \d+ with errors; nDCG@10 of run [.\d]+, of original [.\d]+"
    assert re.fullmatch(rf"Run\({re.escape(repr(run.folder))}, finished: {figures}\)", repr(run))


PROGRAM = """
import signal, threading
import dmqr

before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
found = [dmqr.run("job.yaml", label="main")]
thread = threading.Thread(target=lambda: found.append(dmqr.run("job.yaml", label="thread")))
thread.start()
thread.join()
assert [one.state for one in found] == ["finished", "finished"]
assert found[0].table("results").num_rows == found[1].table("results").num_rows > 0
assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
print("ok")
"""


@pytest.mark.slow
def test_twice_in_one_process(here: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=here, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr

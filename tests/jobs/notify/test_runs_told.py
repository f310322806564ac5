"""Whole runs that tell of themselves, at the wire: each end, refusals, outages, recipients that fail, hang or refuse."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.run.lease import Lease
from cluster.storage import open_storage
from jobs.__main__ import main
from jobs.notify import recipient
from tests.support.jobs.in_process_runs import QUERIES, job_in_process
from tests.support.jobs.webhook import Webhook
from tests.support.rewriters.fake_server import FAULTS, FakeServer, Reply

KEYS = [
    "id", "version", "event", "time", "verb", "name", "run_id", "folder", "exit_code", "code", "line", "queries", "traffic",
    "usd", "measure", "outage",
]  # fmt: skip
TOO_DEAR = ["--set", "limits.max_cost_usd=0", "--set", "cluster.shard_size=1"]
Told = dict[str, Any]


@pytest.fixture
def job(
    tmp_path: Path, values: dict[str, Any], bm25: dict[str, Any], config_file: Callable[[Any], str],
    monkeypatch: pytest.MonkeyPatch,
) -> str:  # fmt: skip
    """The config of a small job that tells the variable HOOK."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recipient, "PAUSE_SECONDS", 0.05)
    return job_in_process(tmp_path, values | {"notify": [{"webhook_env": "HOOK", "timeout_seconds": 5}]}, bm25, config_file)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    with Webhook() as server:
        monkeypatch.setenv("HOOK", server.address)
        yield server


def logged(folder: Path, *names: str) -> list[Told]:
    lines = [json.loads(line) for file in sorted((folder / "logs").glob("*.jsonl")) for line in file.read_text().splitlines()]
    return [line for line in lines if line["event"] in names and (line["event"] != "warning" or "recipient" in line)]


def only_folder() -> Path:
    (folder,) = (path for path in Path("runs").iterdir() if (path / "run.json").exists())
    return folder


@pytest.mark.slow
def test_the_end_is_told_once_with_its_figures(job: str, hook: Webhook, capfd: pytest.CaptureFixture[str]) -> None:
    Path("prices.yaml").write_text("cpu_worker_hour: 3600\n")
    ids = "".join(f"{query}\td01\t1\n" for query in QUERIES)
    Path("qrels.tsv").write_text(ids)
    judged = ["--set", "evaluate.qrels=qrels.tsv", "--set", "evaluate.key=query"]
    assert main(["run", job, *judged, "--json"]) == 0
    table = json.loads(capfd.readouterr().out)
    (told,) = hook.bodies
    folder = Path(table["folder"])
    assert list(told) == KEYS
    assert {name: told[name] for name in ("version", "event", "verb", "name", "exit_code", "code", "line", "outage")} == {
        "version": 1, "event": "end", "verb": "run", "name": "small", "exit_code": 0, "code": None, "line": "finished",
        "outage": None,
    }  # fmt: skip
    assert (told["run_id"], told["folder"]) == (table["run_id"], str(folder))
    assert (told["queries"], told["traffic"]) == ({"done": len(QUERIES), "of": len(QUERIES)}, 1.0)
    assert told["usd"] == pytest.approx(table["usd"], abs=1e-6)
    assert told["usd"] > 0
    measure, means = next(iter(table["evaluation"]["measures"].items()))
    assert told["measure"] == {
        "name": measure, "arm": "run", "value": pytest.approx(means["results"]), "baseline": "original",
        "baseline_value": pytest.approx(means["original"]),
    }  # fmt: skip
    assert abs(time.time() - time.mktime(time.strptime(told["time"], "%Y-%m-%dT%H:%M:%SZ")) + time.timezone) < 300
    assert hook.paths == [("POST", Webhook.SECRET, "application/json; charset=utf-8")]
    (said,) = logged(folder, "notification", "warning")
    assert (said["message"], said["recipient"], said["told"]) == ("told HOOK: end", "HOOK", "end")
    assert not [query for query in QUERIES if query in json.dumps(told)]
    assert not [path for path in folder.rglob("*") if path.is_file() and b"s3cr3tpath" in path.read_bytes()]

    assert main(["run", job, *judged]) == 0  # shown again: nothing is new
    assert len(hook.bodies) == 1


def test_a_run_that_fails_is_told_without_what_failed(
    job: str, hook: Webhook, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fall_over(*_: object) -> None:
        raise RuntimeError(f"no memory for {QUERIES[1]}")

    monkeypatch.setattr("jobs.chain.stages.order.Order.__call__", fall_over)
    assert main(["run", job]) == 1
    assert QUERIES[1] in capfd.readouterr().err
    (told,) = hook.bodies
    assert (told["event"], told["exit_code"], told["code"]) == ("failure", 1, "stopped-failure")
    assert told["queries"] == {"done": 0, "of": len(QUERIES)}
    assert "the log has the line" in told["line"]
    assert QUERIES[1] not in json.dumps(told)


@pytest.mark.slow
def test_a_limit_is_told_with_its_line_and_the_next_start_tells_the_end(
    job: str, hook: Webhook, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("prices.yaml").write_text("cpu_worker_hour: 3600\n")
    assert main(["run", job, *TOO_DEAR]) == 1
    line = capfd.readouterr().err.splitlines()[-1]
    assert main(["run", job]) == 0
    stopped, ended = hook.bodies
    assert (stopped["event"], stopped["exit_code"], stopped["code"]) == ("limit", 1, "stopped-cost")
    assert stopped["line"] in line
    assert "limits.max_cost_usd is $0.00" in stopped["line"]
    assert 0 < stopped["queries"]["done"] < stopped["queries"]["of"] == len(QUERIES)
    assert stopped["traffic"] == pytest.approx(stopped["queries"]["done"] / len(QUERIES))
    assert (ended["event"], ended["queries"]["done"]) == ("end", len(QUERIES))
    assert ended["run_id"] == stopped["run_id"]
    assert ended["id"] != stopped["id"]


@pytest.mark.slow
def test_the_error_rate_is_a_limit(job: str, hook: Webhook) -> None:
    assert main(["run", job, "--set", "limits.error_rate=0"]) == 1
    assert [(one["event"], one["code"]) for one in hook.bodies] == [("limit", "stopped-errors")]


@pytest.mark.slow
@pytest.mark.parametrize("spoil", ["the log is not there", "the log has changed"])
def test_a_refused_night_is_told(job: str, hook: Webhook, spoil: str, capfd: pytest.CaptureFixture[str]) -> None:
    if spoil == "the log has changed":
        Path("prices.yaml").write_text("cpu_worker_hour: 3600\n")
        assert main(["run", job, *TOO_DEAR]) == 1
        Path("log.parquet").write_bytes(Path("log.parquet").read_bytes() + b"")
        os.utime("log.parquet", (1, 1))
    else:
        Path("log.parquet").unlink()
    capfd.readouterr()
    assert main(["run", job]) == 2
    told, line = hook.bodies[-1], capfd.readouterr().err.splitlines()[-1]
    assert (told["event"], told["exit_code"]) == ("failure", 2)
    assert line == f"dmqr run: {told['line']} [{told['code']}]"
    assert (told["run_id"] is None) == (told["folder"] is None) == (spoil == "the log is not there")


def test_a_run_that_another_driver_works_on_is_not_told(job: str, hook: Webhook) -> None:
    Path("prices.yaml").write_text("cpu_worker_hour: 3600\n")
    assert main(["run", job, *TOO_DEAR]) == 1
    hook.bodies.clear()
    lease = Lease.acquire(open_storage(str(only_folder())))
    try:
        assert main(["run", job]) == 2
    finally:
        lease.release()
    assert hook.bodies == []


@pytest.mark.parametrize(
    ("answers", "tries", "why"),
    [
        ([500], 2, "HTTP 500"),
        ([503, 200], 2, None),
        pytest.param([429, 204], 2, None, marks=pytest.mark.slow),
        pytest.param([404], 1, "HTTP 404", marks=pytest.mark.slow),
        ([302], 1, "HTTP 302: redirects are not followed"),
        pytest.param([307], 1, "HTTP 307: redirects are not followed", marks=pytest.mark.slow),
    ],
)
def test_an_address_that_refuses(
    job: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    answers: list[int],
    tries: int,
    why: str | None,
) -> None:
    with Webhook() as elsewhere, Webhook(*answers, location=elsewhere.address) as hook:
        monkeypatch.setenv("HOOK", hook.address)
        assert main(["run", job]) == 0
        assert (len(hook.bodies), elsewhere.paths) == (tries, [])
        assert len({one["id"] for one in hook.bodies}) == 1
    (said,) = logged(only_folder(), "notification", "warning")
    assert said["message"] == ("told HOOK: end" if why is None else f"notify: HOOK: was not told (end): {why}")
    printed = capfd.readouterr()
    assert "s3cr3tpath" not in printed.err + printed.out


@pytest.mark.slow
def test_an_address_that_is_not_there(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Webhook() as hook:
        monkeypatch.setenv("HOOK", hook.address)
    assert main(["run", job]) == 0
    (said,) = logged(only_folder(), "notification", "warning")
    assert said["message"] == "notify: HOOK: was not told (end): Connection refused"


@pytest.mark.slow
def test_an_address_that_hangs_delays_no_run_beyond_its_bound(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Webhook(seconds=60) as hook, Webhook() as other:
        monkeypatch.setenv("HOOK", hook.address)
        monkeypatch.setenv("OTHER", other.address)
        began = time.monotonic()
        both = "notify=[{webhook_env: HOOK, timeout_seconds: 0.3}, {webhook_env: OTHER}]"
        assert main(["run", job, "--set", both]) == 0
        assert time.monotonic() - began < 20
        assert (len(hook.bodies), other.events) == (2, ["end"])
    said = [line["message"] for line in logged(only_folder(), "notification", "warning")]
    assert sorted(said) == ["notify: HOOK: was not told (end): no answer within 0.3 s", "told OTHER: end"]


@pytest.mark.slow
def test_a_command_gets_the_json(job: str, tmp_path: Path) -> None:
    told = [sys.executable, "-c", "import sys; open('told.json', 'w').write(sys.stdin.read()); print('not for the table')"]
    assert main(["run", job, "--set", f"notify=[{{command: {json.dumps(told)}}}]"]) == 0
    body = json.loads((tmp_path / "told.json").read_text())
    assert (list(body), body["event"]) == (KEYS, "end")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["sh", "-c", "echo x >> tries; exit 3"], "it ended with exit code 3"),
        (["sh", "-c", "echo x >> tries; kill -9 $$"], "it ended with signal 9"),
        (["sh", "-c", "echo x >> tries; sleep 60 & echo $! > child; sleep 60"], "it did not end within 0.4 s, and was killed"),
    ],
)
def test_a_command_that_fails_or_hangs(job: str, tmp_path: Path, command: list[str], why: str) -> None:
    began = time.monotonic()
    assert main(["run", job, "--set", f"notify=[{{command: {json.dumps(command)}, timeout_seconds: 0.4}}]"]) == 0
    assert time.monotonic() - began < 20
    assert (tmp_path / "tries").read_text() == "x\n" * 2
    (said,) = logged(only_folder(), "notification", "warning")
    assert said["message"] == f"notify: sh: was not told (end): {why}"
    if (tmp_path / "child").exists():  # what it has started ends with it
        child = int((tmp_path / "child").read_text())
        stat = Path(f"/proc/{child}/stat")
        assert not stat.exists() or stat.read_text().split(")")[1].split()[0] == "Z"


@pytest.mark.slow
def test_an_outage_is_told_while_it_lasts_and_that_it_is_over(job: str, hook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.notify.notifications.LOOK_SECONDS", 0.05)
    monkeypatch.setattr("cluster.outages.SHORTEST", 0.1)
    monkeypatch.setattr("cluster.outages.LONGEST_PAUSE", 0.2)
    away = [True]

    def answer(_: Any) -> Reply | None:
        if "outage" in hook.events:
            away.clear()
        return FAULTS["503"] if away else None

    with FakeServer(text=lambda _: json.dumps({"general": "about it"}), answer=answer) as llm:
        engine = json.dumps({"kind": "openai", "model": "tiny", "base_url": llm.address, "attempts": 2, "patience_minutes": 5})
        told = "notify=[{webhook_env: HOOK, outage_minutes: 0.005}]"
        assert main(["run", job, "--set", f"rewrite.engine={engine}", "--set", told]) == 0
    outage, recovery, end = hook.bodies
    assert hook.events == ["outage", "recovery", "end"]
    assert (outage["exit_code"], outage["run_id"]) == (None, end["run_id"])
    assert outage["outage"]["service"] == recovery["outage"]["service"]
    assert llm.address.split("://")[1].split("/")[0] in outage["line"]
    assert "the job gives up after 5 min" in outage["line"]
    assert outage["outage"]["gives_up_after_seconds"] == 300
    assert "answers again" in recovery["line"]

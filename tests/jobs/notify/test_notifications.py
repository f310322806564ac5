"""Notifications at the wire: each end, refusals, outages, services that fail or hang, and secrets in no log."""

import json
import pickle
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import dmqr
from cluster import outages
from cluster.errors import CODES, ConfigError, Stopped
from cluster.outages import Outage, answered, failed
from cluster.run.pool_sizes import Pool
from jobs import notify
from jobs.__main__ import main
from jobs.chain.store.files import NO_STORE
from jobs.config.load import load_config
from jobs.config.settings import NotifySettings
from jobs.terminal.state import State
from tests.support.jobs.in_process_runs import QUERIES, prepared_job
from tests.support.waits import until
from tests.support.wire import Said, Wire


class Webhook(Wire):
    """The server. `status`: of each answer; `seconds`: that it takes."""

    SECRET = "s3cr3tpath"

    def __init__(self, status: int = 200, seconds: float = 0.0) -> None:
        super().__init__()
        self.status, self.seconds = status, seconds
        self.bodies: list[dict[str, Any]] = []

    def answer(self, method: str, path: str, data: bytes, headers: Mapping[str, str]) -> Said:
        self.bodies.append(json.loads(data))
        return Said(self.status, seconds=self.seconds)

    @property
    def url(self) -> str:
        return f"json://user:{self.SECRET}@127.0.0.1:{self._port}/{self.SECRET}"

    @property
    def titles(self) -> list[str]:
        """States of the job that were sent: `failed`, `waits for a server`, ..."""
        return [body["title"].rpartition(": ")[2] for body in self.bodies]

    def wait_for(self, count: int) -> None:
        until(lambda: len(self.bodies) >= count, 30)
        assert len(self.bodies) == count, self.titles


@pytest.fixture
def job(bm25_job: str, values: dict[str, Any], config_file: Callable[[Any], str]) -> str:
    settings = {"urls_env": "HOOKS", "events": ["end", "failure", "limit", "interruption", "outage"]}
    return config_file(values | {"notify": settings}) and bm25_job


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    with Webhook() as server:
        monkeypatch.setenv("HOOKS", server.url)
        yield server


def test_each_end_is_sent_once(job: str, hook: Webhook, capfd: pytest.CaptureFixture[str]) -> None:
    Path("prices.yaml").write_text("cpu_worker_hour: 3600\n")
    Path("qrels.tsv").write_text("".join(f"{query}\td01\t1\n" for query in QUERIES))
    judged = ["--set", "evaluate.qrels=qrels.tsv", "--set", "evaluate.key=query"]
    assert main(["run", job, *judged, "--set", "limits.max_cost_usd=0", "--set", "cluster.shard_size=1"]) == 1
    line = capfd.readouterr().err.splitlines()[-1]
    assert main(["run", job, *judged]) == 0
    assert main(["run", job, *judged]) == 0  # finished before: no news
    (folder,) = (path for path in Path("runs").resolve().iterdir() if (path / "run.json").exists())
    stopped, ended = hook.bodies
    assert (stopped["title"], stopped["type"]) == (f"dmqr run {folder.name}: stopped by a limit", "warning")
    assert (ended["title"], ended["type"]) == (f"dmqr run {folder.name}: finished", "success")
    assert stopped["message"].splitlines()[0] == line.removeprefix("dmqr run: ")
    figures = r"nDCG@10 of run 0\.\d+, of original 0\.\d+\n6 of 6 queries, 100\.0 % of the traffic, \$[\d.]+\n"
    assert re.fullmatch(figures + re.escape(str(folder)), ended["message"])
    assert not [path for path in folder.rglob("*") if path.is_file() and Webhook.SECRET.encode() in path.read_bytes()]


def test_failures_are_sent_without_queries(job: str, hook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    def fall_over(*_: object) -> None:
        raise RuntimeError(f"no memory for {QUERIES[1]}")

    monkeypatch.setattr("jobs.chain.stages.write.Write.__call__", fall_over)
    assert main(["run", job]) == 1
    Path("log.parquet").unlink()
    assert main(["run", job]) == 2
    assert hook.titles == ["failed", "failed"]
    assert "[stopped-failure]" in hook.bodies[0]["message"]
    assert "[log-files]" in hook.bodies[1]["message"]
    assert QUERIES[1] not in str(hook.bodies)


def test_lines_that_may_hold_a_query_are_replaced_and_only_chosen_events_sent(hook: Webhook) -> None:
    settings = NotifySettings(urls_env="HOOKS", events=["failure", "limit"])
    for code in CODES:
        hook.bodies.clear()
        with pytest.raises(Stopped), notify.Notifications(settings, "run", "n").telling():
            raise Stopped(code, f"query {QUERIES[1]}: failed; try again")
        known = code in notify.EVENTS
        expected = [] if code in {"run-held", "interrupted"} else ["stopped by a limit" if known else "failed"]
        assert (hook.titles, QUERIES[1] in str(hook.bodies)) == (expected, known and code != "interrupted")


def test_outages_of_elasticsearch_are_sent_after_a_minute(hook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "SHORTEST", 0.0)
    monkeypatch.setattr(notify, "LOOK_SECONDS", 0.01)
    state, now, elastic = State(total=9, done=3), time.time(), "Elasticsearch at es:9200"
    settings = NotifySettings(urls_env="HOOKS", events=["outage"])
    with notify.Notifications(settings, "run", "n").watching(state, "n-1", "runs/n-1"):
        failed(elastic, "away", 120)
        time.sleep(0.1)
        assert hook.bodies == []
        outages._failing[elastic] = Outage(elastic, "away", now - 61, 120)  # the driver's
        hook.wait_for(1)
        state.outages = [Outage("LLM", "busy", now - 400, 600)]  # of workers
        hook.wait_for(2)
        answered(elastic)
        hook.wait_for(3)
        state.given_up, state.outages = {("LLM", now - 400)}, []  # given up
        time.sleep(0.1)
    assert hook.titles == ["waits for a server", "waits for a server", "continues"]
    assert [body["message"].splitlines()[0] for body in hook.bodies] == [
        f"{elastic} has not answered for 1 min 01 s; the job gives up after 2 min 00 s",
        "LLM has not answered for 6 min 40 s; the job gives up after 10 min 00 s",
        f"{elastic} answers again, after 1 min 01 s",
    ]
    assert hook.bodies[0]["message"].splitlines()[1:] == ["3 of 9 queries", "runs/n-1"]


def test_services_that_fail_or_hang_fail_and_delay_no_run(
    job: str, hook: Webhook, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(notify, "END_SECONDS", 0.5)
    with Webhook(status=500) as failing, Webhook(seconds=60) as hanging:
        monkeypatch.setenv("HOOKS", f"{failing.url} {hanging.url}\n{hook.url}")
        began = time.monotonic()
        assert (main(["run", job]), time.monotonic() - began < 20) == (0, True)
        assert (failing.titles, hanging.titles, hook.titles) == (["finished"],) * 3
    log = "".join(path.read_text() for path in Path("runs").rglob("*.jsonl"))
    assert "service 1 of HOOKS (JSON), end: not delivered; test the URL with: apprise -vv -b test URL" in log
    assert "service 2 of HOOKS (JSON), end: no answer within 0.5 s" in log
    assert "service 3" not in log
    assert Webhook.SECRET not in "".join([log, *capfd.readouterr()])


def test_a_call_from_python_sends_and_leaves_signals_alone(job: str, hook: Webhook) -> None:
    before, seen = signal.getsignal(signal.SIGTERM), set()

    def progress(_: object) -> None:
        seen.add(signal.getsignal(signal.SIGTERM))
        if not hook.bodies:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dmqr.run(job, progress=progress)
    dmqr.run(job, progress=progress)
    assert (hook.titles, seen) == (["interrupted", "finished"], {before})


@pytest.mark.parametrize(
    ("urls", "says"),
    [
        ("", "notify.urls_env: the environment variable HOOKS is not set or empty; set it to URLs of apprise"),
        ("json://h/ s3cr3tpath://h/", "HOOKS has an invalid URL (number 2); set it to URLs of apprise"),
        (None, 'notify: apprise is not installed; run: pip install "dmqr[notify]"'),
    ],
)
@pytest.mark.parametrize("verb", ["run", "plan"])
def test_refused_before_work(
    job: str, verb: str, urls: str | None, says: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    if urls is None:
        monkeypatch.setitem(sys.modules, "apprise", None)
    monkeypatch.setenv("HOOKS", urls or "")
    assert main([verb, job]) == 2
    line = capfd.readouterr().err
    assert (says in line, line.count("\n"), Path("runs").exists(), caplog.text) == (True, 1, False, "")  # nor a URL


def test_a_url_in_the_config_is_refused_and_the_section_reaches_no_worker(job: str, hook: Webhook) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(job, [f"notify.urls_env={hook.url}"])
    assert re.search(r"notify.urls_env: not the name of an environment variable \(not shown[^/]*$", str(refused.value))
    plain, telling = prepared_job(job, "notify=null"), prepared_job(job)
    assert telling.prepared.run_id == plain.prepared.run_id
    stages = telling.stages({name: Pool(1, 1, 0) for name in telling.pools}, 1, NO_STORE)
    assert b"HOOKS" not in b"".join(pickle.dumps(dict(stage.settings)) for stage in stages)

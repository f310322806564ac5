"""Followers of jobs that are lost with their machine or their head; at the wire."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.errors import ClusterError, Stopped
from cluster.run import job_server
from cluster.run.job_server import JobServer
from jobs.submit import follow as following
from jobs.submit.follow import follow
from tests.support.jobs.fake_job_server import END, RUN, FakeJobServer, Job, once_followed, submitted


@pytest.fixture
def job(values: dict[str, Any], config_file: Callable[[Any], str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return config_file(values)


def detached(server: FakeJobServer, job: str) -> str:
    assert submitted(server, job, "--detach") == 0
    return next(reversed(server.jobs))


def test_the_log_of_a_later_job_of_the_same_id_is_never_shown(
    server: FakeJobServer, job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def started_anew() -> None:
        log = f"another beginning, as long as the first\n{END}\n{RUN}\n"
        server.jobs[job_id] = Job(server.jobs[job_id].body, log=log, started=time.time() + 60)
        server.end(job_id)

    job_id = detached(server, job)
    server.jobs[job_id].log = "the first beginning\n"
    once_followed(server, started_anew)
    capsys.readouterr()
    assert submitted(server, job) == 1
    seen = capsys.readouterr()
    assert seen.out == ""
    assert "another beginning" not in seen.err
    assert "was replaced: the head was restarted" in seen.err.splitlines()[-1]


def test_a_job_that_has_failed_ends_the_following_though_its_log_is_gone(
    server: FakeJobServer, job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.machine_gone = True
    job_id = detached(server, job)
    once_followed(server, lambda: server.end(job_id, "FAILED", None))
    assert submitted(server, job) == 1
    assert f"job {job_id}: failed" in capsys.readouterr().err


def test_a_job_whose_machine_gives_no_log_ends_the_following(
    server: FakeJobServer, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "LOST_SECONDS", 0.3)
    job_id = detached(server, job)
    server.machine_gone = True
    with pytest.raises(Stopped, match="returns no log") as stopped:
        follow(JobServer(server.address), job_id, lambda text: None)
    assert stopped.value.exit_code == 1


def test_a_log_that_comes_a_moment_after_its_server_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    now, shown = [0.0], list[str]()
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.append(now.pop() + max(1, seconds)))
    monkeypatch.setattr(following, "time", clock)

    def answer(since: float, value: Any) -> Any:
        if now[0] < since:
            raise ClusterError("cluster-away", "no answer")
        return value

    def status(job_id: str) -> job_server.SubmittedJob:
        return answer(60, job_server.SubmittedJob(job_id, "RUNNING" if now[0] < 70 else "SUCCEEDED", {}, "", 0, 1.0))

    server: Any = SimpleNamespace(address="http://head", job=status, log=lambda job_id: answer(65, "words"))
    assert follow(server, "a", shown.append).ended
    assert shown == ["words"]


def test_a_head_that_is_started_anew_ends_the_following(server: FakeJobServer, job: str) -> None:
    job_id = detached(server, job)
    once_followed(server, server.jobs.clear)
    with pytest.raises(Stopped, match="is unknown: the head was restarted"):
        follow(JobServer(server.address), job_id, lambda text: None)


def test_that_the_server_is_away_is_said(server: FakeJobServer, job: str, capsys: pytest.CaptureFixture[str]) -> None:
    job_id = detached(server, job)
    client = JobServer(server.address)
    server.__exit__()
    try:
        said: list[str] = []
        with pytest.raises(Stopped, match="may work on"):
            follow(client, job_id, lambda text: None, patience=0.6, note=said.append)
        assert said == [f"the job server {server.address} does not answer; it is asked again for 0.6 s"]
    finally:
        server.__enter__()

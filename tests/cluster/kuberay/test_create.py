"""The pod that creates a night's RayJob, against a Kubernetes API that is faked at the wire."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from cluster.kuberay import create
from cluster.kuberay.create import AWAY, FAILED, RayJobApi, filled, follow, main, night
from tests.support.cluster.certificates import own_certificate
from tests.support.cluster.clock import Clock

NIGHT = {"kind": "RayJob", "metadata": {"name": "nightly-2026-01-31", "namespace": "dmqr"}, "spec": {"backoffLimit": 2}}
ROOT = Path(__file__).resolve().parents[3]


class FakeApi(ThreadingHTTPServer):
    """RayJobs by name, with the states that each look at one finds next.

    `answers` are given instead, first: a status, or how an answer breaks off.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.jobs: dict[str, Any] = {}
        self.states: list[dict[str, Any]] = []
        self.answers: list[int | str] = []
        self.seen: list[tuple[str, str, str]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answer(BaseHTTPRequestHandler):
    server: FakeApi

    def log_message(self, *_: Any) -> None:
        pass

    def _give(self, code: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _first(self) -> bool:
        self.server.seen.append((self.command, self.path, self.headers["Authorization"]))
        if not self.server.answers:
            return False
        answer = self.server.answers.pop(0)
        if isinstance(answer, int):
            self._give(answer, {"message": "not now"})
        else:
            self._break_off(answer)
        return True

    def _break_off(self, how: str) -> None:
        self.close_connection = True
        self.send_response(403 if how == "in a refusal" else 200)
        if how != "without a length":
            self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b'{"status": {"jobDeploy')

    def do_POST(self) -> None:
        job = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._first():
            return
        name = job["metadata"]["name"]
        there = name in self.server.jobs
        self.server.jobs.setdefault(name, job)
        self._give(409 if there else 201, job)

    def do_GET(self) -> None:
        if self._first():
            return
        states = self.server.states
        if self.path.rpartition("/")[2] in self.server.jobs:
            self._give(200, {"status": states.pop(0) if len(states) > 1 else states[0]})
        else:
            self._give(404, {"message": "not found"})


@pytest.fixture
def server() -> Iterator[FakeApi]:
    api = FakeApi()
    thread = Thread(target=api.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield api
    api.shutdown()
    thread.join()
    api.server_close()


@pytest.fixture
def api(server: FakeApi, tmp_path: Path) -> RayJobApi:
    (tmp_path / "token").write_text("the-token\n")
    return RayJobApi(server.address, "dmqr", tmp_path, patience=60)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create, "time", Clock())


def state(deployment: str, job: str = "", **more: str) -> dict[str, Any]:
    return {"jobDeploymentStatus": deployment, "jobStatus": job, **more}


def test_a_night_is_created_and_waited_for(server: FakeApi, api: RayJobApi) -> None:
    server.states = [{}, state("Initializing"), state("Running", "RUNNING"), state("Complete", "SUCCEEDED")]
    assert follow(api, NIGHT, 0.01) == 0
    assert server.jobs == {"nightly-2026-01-31": NIGHT}
    folder = "/apis/ray.io/v1/namespaces/dmqr/rayjobs"
    assert server.seen[:2] == [
        ("POST", folder, "Bearer the-token"), ("GET", f"{folder}/nightly-2026-01-31", "Bearer the-token")
    ]  # fmt: skip
    assert len(server.seen) == 5


def test_a_night_that_is_there_is_followed(server: FakeApi, api: RayJobApi, capfd: pytest.CaptureFixture[str]) -> None:
    server.jobs["nightly-2026-01-31"] = "another pod's"
    server.states = [state("Running", "RUNNING"), state("Complete", "SUCCEEDED")]
    assert follow(api, NIGHT, 0.01) == 0
    assert server.jobs == {"nightly-2026-01-31": "another pod's"}
    assert "is there already" in capfd.readouterr().err


def test_a_retry_is_no_end_and_a_failure_says_why(server: FakeApi, api: RayJobApi, capfd: pytest.CaptureFixture[str]) -> None:
    server.states = [state("Running"), state("Retrying"), state("Running"),
                     state("Failed", "RUNNING", reason="DeadlineExceeded", message="it took too long")]  # fmt: skip
    assert follow(api, NIGHT, 0.01) == FAILED
    assert "DeadlineExceeded: it took too long" in capfd.readouterr().err


def test_an_end_that_is_no_success_is_a_failure(server: FakeApi, api: RayJobApi) -> None:
    server.states = [state("Complete", "STOPPED")]
    assert follow(api, NIGHT, 0.01) == FAILED


def test_an_api_that_is_away_is_asked_again(server: FakeApi, api: RayJobApi) -> None:
    server.answers, server.states = [503, 429], [state("Complete", "SUCCEEDED")]
    assert follow(api, NIGHT, 0.01) == 0
    assert [method for method, *_ in server.seen] == ["POST", "POST", "POST", "GET"]


@pytest.mark.parametrize("how", ["before its length", "without a length"])
def test_an_answer_that_breaks_off_is_asked_for_again(server: FakeApi, api: RayJobApi, how: str) -> None:
    server.answers, server.states = [how, 409, how], [state("Complete", "SUCCEEDED")]
    server.jobs["nightly-2026-01-31"] = "created by the first request"
    assert follow(api, NIGHT, 0.01) == 0
    assert [method for method, *_ in server.seen] == ["POST", "POST", "GET", "GET"]


def test_a_refusal_that_breaks_off_is_one(server: FakeApi, api: RayJobApi) -> None:
    server.answers = ["in a refusal"]
    with pytest.raises(PermissionError, match=r"refused \(403\): Forbidden"):
        follow(api, NIGHT, 0.01)
    assert len(server.seen) == 1


def test_a_refusal_is_not_repeated(server: FakeApi, api: RayJobApi) -> None:
    server.answers = [403]
    with pytest.raises(PermissionError, match=r"refused \(403\): .*not now"):
        follow(api, NIGHT, 0.01)
    assert len(server.seen) == 1


def test_a_night_that_was_deleted_is_not_waited_for(server: FakeApi, api: RayJobApi) -> None:
    server.states = [state("Running")]
    api.create(NIGHT)
    server.jobs.clear()
    with pytest.raises(PermissionError, match="404"):
        api.status("nightly-2026-01-31")


def test_patience_ends(server: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a")
    server.answers = [500] * 9
    with pytest.raises(ConnectionError, match="does not answer"):
        follow(RayJobApi(server.address, "dmqr", tmp_path, patience=0.5), NIGHT, 0.01)


def test_dates_are_filled_wherever_they_stand() -> None:
    manifest = {"name": "a-{date}", "words": ["{date}", 1, None], "more": {"b": "x{date}y{date}"}}
    assert filled(manifest, "2026-01-31") == {
        "name": "a-2026-01-31", "words": ["2026-01-31", 1, None], "more": {"b": "x2026-01-31y2026-01-31"}
    }  # fmt: skip


# ---------------------------------------------------------------- the date, and the pod as a whole

EVENING = datetime(2026, 2, 1, 23, 50, tzinfo=UTC)
SCHEDULED = f"nightly-cron-{int(EVENING.timestamp()) // 60}"


@pytest.mark.parametrize(
    ("job", "now", "date"),
    [
        (SCHEDULED, EVENING, "2026-01-31"),
        (SCHEDULED, EVENING + timedelta(minutes=20), "2026-01-31"),  # another pod, after midnight
        (SCHEDULED, EVENING + timedelta(days=3), "2026-01-31"),
        (SCHEDULED, EVENING - timedelta(seconds=5), "2026-01-31"),  # the node's clock is behind
        ("nightly-now", EVENING, "2026-01-31"),
        ("nightly-now", EVENING + timedelta(minutes=20), "2026-02-01"),
        ("nightly-20260115", EVENING, "2026-01-31"),  # made by hand, under a name that ends in a number
        ("nightly-cron-" + 40 * "9", EVENING, "2026-01-31"),
        ("", EVENING, "2026-01-31"),
    ],
)
def test_the_night_is_that_for_which_the_job_was_scheduled(job: str, now: datetime, date: str) -> None:
    assert night(job, now) == date


@pytest.fixture
def pod(server: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a pod's account; the API answers by TLS, where a pod's variables say."""
    _, context = own_certificate(tmp_path, "kubernetes", "IP:127.0.0.1")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    (tmp_path / "token").write_text("the-token\n")
    (tmp_path / "rayjob.json").write_text(json.dumps(NIGHT | {"metadata": {"name": "nightly-{date}", "namespace": "dmqr"}}))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.server_address[1]))
    return tmp_path


def test_a_pod_creates_the_night_of_its_job_and_ends_by_its_end(
    server: FakeApi, pod: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    scheduled = datetime.now(UTC) - timedelta(days=1)
    monkeypatch.setenv("JOB_NAME", f"nightly-cron-{int(scheduled.timestamp()) // 60}")
    server.states = [state("Complete", "SUCCEEDED")]
    assert main(str(pod / "rayjob.json"), pod) == 0
    assert list(server.jobs) == [f"nightly-{(scheduled - timedelta(days=1)).date()}"]
    server.states = [state("Complete", "FAILED")]
    assert main(str(pod / "rayjob.json"), pod) == FAILED
    server.answers = [403]
    assert main(str(pod / "rayjob.json"), pod) == FAILED
    assert "refused (403)" in capfd.readouterr().err
    server.answers = [500]
    assert main(str(pod / "rayjob.json"), pod, patience=0) == AWAY
    assert len(server.jobs) == 1


def test_it_needs_the_standard_library_only() -> None:
    code = "import sys, cluster.kuberay.create; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) - sys.stdlib_module_names <= {"cluster", "__main__"}

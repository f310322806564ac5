"""submit, logs, stop and status against a job server at the wire: ids, repeats, following, exit codes, refusals, secrets."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.run.job_server import JobServer
from jobs.__main__ import main
from tests.support.cluster.certificates import own_certificate
from tests.support.jobs.fake_job_server import END, RUN, FakeJobServer, Job, once_followed, submitted

SECRET = "s3cr3t-value-of-a-key"
TABLE = f"queries  2\nreport   {RUN}/report.html\n{RUN}\n"


@pytest.fixture(autouse=True)
def _addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # what is given counts, not what Ray would prefer


@pytest.fixture
def job(values: dict[str, Any], config_file: Callable[[Any], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A config with a strategy, a vocabulary and prices of its own, beside it; the current folder is theirs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "strategies").mkdir()
    (tmp_path / "strategies" / "medical.yaml").write_text(
        "label: Medical Rewriting\nprompt: |-\n  Rewrite it in medical terms.\n\n  Query: {query}\n"
    )
    (tmp_path / "prices.yaml").write_text("cpu_worker_hour: 0.05\n")
    values["rewrite"]["strategies"] = ["general", "./strategies/medical.yaml"]
    return config_file(values)


def finish(one: Job) -> None:
    one.log, one.status, one.code = f'{{"event": "log", "message": "log A"}}\n{END}\n{TABLE}', "SUCCEEDED", 0


def fail(code: int, status: str = "FAILED") -> Callable[[Job], None]:
    def play(one: Job) -> None:
        one.log = f"dmqr run: why with code {code}\n"
        one.status, one.code, one.message = status, code, f"Job entrypoint command failed with exit code {code}, last available"

    return play


# ---------------------------------------------------------------- what is sent


@pytest.mark.slow
def test_a_job_is_its_packages_its_config_and_the_small_files_that_it_names(job: str, tmp_path: Path) -> None:
    with FakeJobServer() as server:
        assert submitted(server, job, "--detach", "--set", "fuse.k=61") == 0
    (job_id,) = server.jobs
    body, sent = server.jobs[job_id].body, server.sent(job_id)
    assert list(body["runtime_env"]) == ["working_dir"]
    assert body["entrypoint"] == "python -m jobs run submitted/config.yaml --log json"
    assert {path.partition("/")[0] for path in sent} - {"submitted"} >= {"cluster", "jobs", "retrievers", "rewriters"}
    assert not [path for path in sent if "__pycache__" in path]
    assert sent["submitted/prices.yaml"] == (tmp_path / "prices.yaml").read_bytes()
    assert sent["submitted/files/1/medical.yaml"] == (tmp_path / "strategies" / "medical.yaml").read_bytes()
    config = yaml.safe_load(sent["submitted/config.yaml"])
    assert config["rewrite"]["strategies"] == ["general", "submitted/files/1/medical.yaml"]
    assert (config["fuse"]["k"], config["cluster"]) == (61, {"address": "auto"})
    assert config["log"]["path"] == str(tmp_path / "log.parquet")
    assert config["output"] == str(tmp_path / "runs")


def test_no_secret_is_sent_listed_or_printed(
    server: FakeJobServer, job: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "ELASTICSEARCH_API_KEY", "HF_TOKEN", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, SECRET)
    server.play = finish
    assert submitted(server, job) == 0
    (job_id,) = server.jobs
    assert not [path for _, path, body in server.requests if SECRET in path or SECRET.encode() in body]
    assert not [path for path, content in server.sent(job_id).items() if SECRET.encode() in content]
    assert SECRET not in "".join(capfd.readouterr())
    Path("more.txt").write_text(f"--index-url https://me:{SECRET}@host/simple\nsix\n")
    assert submitted(server, job, "--set", "fuse.k=9", "--pip", "more.txt") == 2
    assert len(server.jobs) == 1
    assert SECRET not in "".join(capfd.readouterr())


# ---------------------------------------------------------------- ids


def test_one_night_submitted_twice_is_one_job_and_follows(server: FakeJobServer, job: str) -> None:
    assert submitted(server, job, "--detach") == 0
    (job_id,) = server.jobs
    once_followed(server, lambda: server.end(job_id, log=f"{END}\n{TABLE}"))
    assert submitted(server, job) == 0
    assert list(server.jobs) == [job_id]


@pytest.mark.slow
def test_another_job_has_another_id(server: FakeJobServer, job: str) -> None:
    changes: list[tuple[str, ...]] = [
        (), ("--label", "b"), ("--set", "name=other"), ("--set", "output=elsewhere"), ("--set", "fuse.k=9"), ("--ablate",),
        ("--set", "log.path=other.parquet"), ("--set", "rerank.kind=cross_encoder", "--set", "rerank.model=org/other"),
        ("--set", "rewrite.engine.path=other.jsonl"),
    ]  # fmt: skip
    for number, change in enumerate(changes, start=1):
        assert submitted(server, job, "--detach", *change) == 0
        assert len(server.jobs) == number, change
    assert submitted(server, job, "--detach", "--set", "limits.error_rate=0.5") == 0
    assert len(server.jobs) == len(changes)


def test_two_that_submit_at_the_same_moment_end_as_one(
    server: FakeJobServer, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert submitted(server, job, "--detach") == 0
    real, calls = JobServer.jobs, []

    def too_early(self: JobServer) -> Any:
        calls.append(1)
        return [] if len(calls) == 1 else real(self)

    monkeypatch.setattr(JobServer, "jobs", too_early)
    assert submitted(server, job, "--detach") == 0
    assert len(server.jobs) == 1


# ---------------------------------------------------------------- following


@pytest.mark.parametrize(
    ("options", "shown"), [([], "log A\nfinished\n"), (["--log", "json"], f'{{"event": "log", "message": "log A"}}\n{END}\n')]
)
def test_the_log_is_text_or_json_and_the_table_goes_to_standard_output(
    server: FakeJobServer, job: str, options: list[str], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.play = finish
    assert submitted(server, job, *options) == 0
    seen = capsys.readouterr()
    assert (seen.out, seen.err.partition("\n")[2]) == (TABLE, shown)
    assert next(iter(server.jobs.values())).body["entrypoint"] == "python -m jobs run submitted/config.yaml --log json"
    assert main(["logs", job, "--no-follow", "--address", server.address, *options]) == 0
    assert capsys.readouterr().out == shown + TABLE


@pytest.mark.parametrize("code", [2, 130])
def test_the_exit_code_of_the_job_is_handed_on(
    server: FakeJobServer, job: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    server.play = fail(code)
    assert submitted(server, job) == code
    seen = capsys.readouterr()
    assert seen.out == ""
    assert f"dmqr run: why with code {code}\n" in seen.err


def test_nothing_is_shown_twice_though_the_log_is_away_for_a_while(
    server: FakeJobServer, job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "".join(f"line {n}\n" for n in range(100))

    def gone() -> None:
        server.machine_gone = True
        time.sleep(0.1)
        server.machine_gone = False
        server.end(next(iter(server.jobs)), log="the last\n")

    def play(one: Job) -> None:
        one.log = lines
        once_followed(server, gone)

    server.play = play
    assert submitted(server, job) == 0
    shown = capsys.readouterr().err
    assert lines + "the last\n" in shown
    assert shown.count("line 1\n") == 1


# ---------------------------------------------------------------- logs, stop, status


@pytest.mark.slow
def test_logs_and_stop_find_a_job_by_config_by_folder_by_name_and_by_id(
    server: FakeJobServer, job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.play = fail(1)
    assert submitted(server, job, "--label", "a") == 1
    server.play = lambda one: setattr(one, "log", "the second\n")
    assert submitted(server, job, "--label", "a", "--detach") == 0
    first, second = server.jobs
    place = tmp_path / "runs"
    targets = ([job, "--label", "a"], [f"{place}/small-a-0123456789ab"], [f"{place}/small"], [first], [second], ["runs/small"])
    for target in targets:
        capsys.readouterr()
        assert main(["logs", *target, "--no-follow", "--address", server.address]) == 0
        assert capsys.readouterr().out == "the second\n", target
    assert main(["stop", job, "--label", "a", "--address", server.address]) == 0
    assert server.stopped == [second]
    assert capsys.readouterr().out == f"{second}: stopped\n"
    assert main(["stop", second, "--address", server.address, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"job": second, "status": "STOPPED", "worked": False}
    assert server.stopped == [second]


@pytest.mark.slow
def test_jobs_that_are_not_there_or_not_one(server: FakeJobServer, job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stop", "small-0123456789ab", "--address", server.address]) == 2
    assert "knows no such job (its last ones: none)" in capsys.readouterr().err
    assert submitted(server, job, "--detach") == submitted(server, job, "--detach", "--set", "fuse.k=9") == 0
    assert main(["stop", "runs/small", "--address", server.address]) == 2
    assert "several jobs" in capsys.readouterr().err


# ---------------------------------------------------------------- refusals, before anything is sent


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--set", "fuse.kk=1"], "unknown key"),
        (["--set", "rewrite.strategies=[./none.yaml]"], "none.yaml"),
        (["--set", "limits.max_cost_usd=1"], "there is no prices.yaml"),
        (["--pip", "none.txt"], "No such file or directory"),
        (["--pip", "six", "--uv", "six"], "one of them"),
        (["--date", "yesterday"], "is not a date"),
    ],
)
def test_what_this_machine_can_see_is_refused_before_anything_is_sent(
    server: FakeJobServer, job: str, tmp_path: Path, more: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prices.yaml").unlink()
    assert submitted(server, job, *more) == 2
    assert words in capsys.readouterr().err
    assert server.requests == []


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:8265", "is not the address of a job server"),
        ("ray://head:10001", "is not the address of a job server"),
        (f"http://me:{SECRET}@head:8265", "holds a user or a password"),
        ("http://127.0.0.1:9", "no job server answers"),
    ],
)
def test_addresses(job: str, address: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", job, "--address", address]) == 2
    seen = capsys.readouterr().err
    assert words in seen
    assert SECRET not in seen


def test_without_an_address(job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS")
    assert main(["submit", job]) == 2
    assert "--address is missing" in capsys.readouterr().err


def test_a_missing_client_is_named(job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "ray.job_submission", None)
    assert main(["submit", job, "--address", "http://127.0.0.1:9"]) == 2
    assert 'pip install "dmqr[ray]"' in capsys.readouterr().err


# ---------------------------------------------------------------- token and TLS, read once by Ray: in processes of their own


def typed(job: str, address: str, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    command = [sys.executable, "-m", "jobs", "submit", job, "--address", address, "--detach"]
    return subprocess.run(command, env=known | environment, capture_output=True, text=True, timeout=400, check=False)


@pytest.mark.slow
def test_a_token_is_asked_for_refused_and_taken(job: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(SECRET)
    with FakeJobServer(token=SECRET) as server:
        without = typed(job, server.address, RAY_AUTH_MODE="disabled")
        wrong = typed(job, server.address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="another")
        unset = typed(job, server.address, RAY_AUTH_MODE="token", HOME=str(tmp_path))
        absent = typed(job, server.address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(tmp_path / "no"))
        right = typed(job, server.address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(tmp_path / "token"))
        assert (without.returncode, wrong.returncode, right.returncode) == (2, 2, 0), right.stderr
        assert "asks for a token; set RAY_AUTH_MODE=token" in without.stderr
        assert "refuses the token" in wrong.stderr
        for one in (unset, absent):
            assert (one.returncode, one.stderr.count("\n")) == (2, 1), one.stderr
            assert "RAY_AUTH_MODE is token, and no token is found here; set" in one.stderr
        assert len(server.jobs) == 1
        assert SECRET not in without.stderr + wrong.stderr + right.stderr
        assert not [path for _, path, body in server.requests if SECRET.encode() in body]


@pytest.mark.slow
def test_tls_with_an_authority_of_ones_own(job: str, tmp_path: Path) -> None:
    certificate, context = own_certificate(tmp_path)
    with FakeJobServer(tls=context) as server:
        unknown = typed(job, server.address, RAY_AUTH_MODE="disabled")
        assert unknown.returncode == 2
        assert "TLS failed" in unknown.stderr
        assert typed(job, server.address, RAY_AUTH_MODE="disabled", SSL_CERT_FILE=str(certificate)).returncode == 0
        assert len(server.jobs) == 1

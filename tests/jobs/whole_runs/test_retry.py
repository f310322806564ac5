"""`dmqr run CONFIG --retry REASON`: queries with errors are asked again; everything else comes from the store."""

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ClusterError
from dmqr.command_line import program
from jobs.__main__ import main
from jobs.runs.folder import RunFolder, open_run
from tests.support.jobs.in_process_runs import record, rows
from tests.support.jobs.nights import QUERIES, log
from tests.support.rewriters.fake_server import Body, FakeServer, Reply, refusal

REFUSED = "I'm sorry, but I can't help with that request."
BAD, WORSE = QUERIES[1], QUERIES[4]


class Llm:
    """A server that answers `faulty` queries with the texts given for them, one after the other, then well."""

    def __init__(self) -> None:
        self.faulty: dict[str, list[str]] = {}
        self.away: set[str] = set()
        self.status = 400  # of queries that are away
        self.asked: Counter[str] = Counter()
        self.server = FakeServer(text=self.text, answer=self.answer)

    def text(self, body: Body) -> str:
        query = _query_of(body)
        self.asked[query] += 1
        if left := self.faulty.get(query, []):
            return left.pop(0)
        return json.dumps({"general": f"all about {query}", "keyword": f"{query} words"})

    def answer(self, body: Body) -> Reply | None:
        return refusal(self.status, "no") if _query_of(body) in self.away else None


def _query_of(body: Body) -> str:
    return str(body["messages"][0]["content"]).rpartition("Query: ")[2]


class Job:
    """Runs of one config in this process, by the command line."""

    def __init__(self, path: str, llm: Llm) -> None:
        self.path, self.llm = path, llm

    def run(self, *words: str, code: int = 0) -> Counter[str]:
        """Runs it; returns how often each query was asked."""
        self.llm.asked.clear()
        assert main(["run", self.path, *words]) == code
        return Counter(self.llm.asked)

    def found(self, label: str) -> RunFolder:
        (path,) = Path("runs").glob(f"small-{label}-????????????" if label else "small-????????????")
        return open_run(str(path))


@pytest.fixture
def llm() -> Iterator[Llm]:
    made = Llm()
    with made.server:
        yield made


@pytest.fixture
def job(small_job: Callable[..., str], llm: Llm) -> Job:
    engine = {"kind": "openai", "model": "tiny", "base_url": llm.server.address}
    rewrite = {"engine": engine, "strategies": ["general", "keyword"], "retries": 0}
    path = small_job(rewrite=rewrite, cluster={"shard_size": 2})
    log([*QUERIES, QUERIES[0]])
    return Job(path, llm)


def texts(run: RunFolder) -> dict[str, dict[str, str]]:
    """Query -> strategy -> its text."""
    shown = {one["query_id"]: one["query"] for one in rows(run, "queries")}
    found: dict[str, dict[str, str]] = {}
    for one in rows(run, "rewrites"):
        found.setdefault(shown[one["query_id"]], {})[one["strategy"]] = one["text"]
    return found


def failed(run: RunFolder) -> set[str]:
    return {one["reason"] for one in rows(run, "errors")}


def test_only_queries_with_the_reason_are_asked_again(job: Job, llm: Llm, capfd: pytest.CaptureFixture[str]) -> None:
    llm.faulty = {BAD: [REFUSED], WORSE: ["{"]}
    assert job.run() == dict.fromkeys(QUERIES, 1)
    first = job.found("")
    assert failed(first) == {"refusal", "unparsable"}
    capfd.readouterr()
    assert job.run("--retry", "refusal") == {BAD: 1}
    assert " ".join(f"retry 1 query of {first.record['run_id']}: refusal 1, now 0".split()) in " ".join(
        capfd.readouterr().out.split()
    )
    retry = job.found("retry-1")
    assert retry.record["retry"] == {
        "of": first.record["run_id"], "path": first.storage.root, "reasons": {"refusal": 1}, "queries": 1
    }  # fmt: skip
    assert retry.record["identity"] == first.record["identity"]
    assert failed(retry) == {"unparsable"}
    assert set(texts(retry)) - set(texts(first)) == {BAD}
    assert texts(retry).items() >= texts(first).items()
    assert retry.plan.counts == first.plan.counts
    assert json.loads(Path("runs/small/latest.json").read_text())["run_id"] == retry.record["run_id"]
    assert main(["runs", "runs"]) == 0
    assert f"retryof{first.record['run_id']}:refusal" in "".join(capfd.readouterr().out.split())
    assert job.run("--label", "later") == {}  # it reads the new answer
    assert texts(job.found("later")) == texts(retry)


def test_a_retry_is_retried_and_all_stands_for_every_error(job: Job, llm: Llm) -> None:
    llm.faulty, llm.away = {BAD: [REFUSED, REFUSED]}, {WORSE}
    job.run("--label", "night")
    assert job.run("--label", "night", "--retry", "all").keys() == {BAD}  # the other is refused before an answer
    assert failed(job.found("night-retry-1")) >= {"refusal"}
    llm.away = set()
    assert job.run("--label", "night", "--retry", "all") == {BAD: 1, WORSE: 1}
    second = job.found("night-retry-2")
    assert second.record["retry"]["of"] == job.found("night-retry-1").record["run_id"]
    assert failed(second) == set()
    assert texts(second).keys() == set(QUERIES)


def test_a_retry_that_was_stopped_goes_on(job: Job, llm: Llm, monkeypatch: pytest.MonkeyPatch) -> None:
    llm.faulty = {BAD: [REFUSED], WORSE: [REFUSED]}
    job.run()

    def broken(*_: Any) -> Any:
        raise ClusterError("storage-refused", "the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr("jobs.chain.stages.write.Write.__call__", broken)
        sent = job.run("--retry", "refusal", code=1)
    job.run("--retry", "unparsable", code=2)
    sent += job.run("--retry", "refusal")
    assert sent == {BAD: 1, WORSE: 1}
    retry = job.found("retry-1")
    assert retry.finished
    assert retry.record["retry"]["queries"] == 2
    assert failed(retry) == set()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--retry", "refusal"], "no query of {run} has it; did you mean"),
        (["--retry", "x"], "no query of {run} has it"),
        (["--retry", "refusal", "--set", "store=null"], "--retry: `store` is null"),
        (["--retry", "refusal", "--set", "fuse.k=9"], "no run at"),
    ],
)
def test_refused(job: Job, llm: Llm, words: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    llm.faulty = {BAD: ["{"]}
    job.run()
    capfd.readouterr()
    assert job.run(*words, code=2) == {}
    said = capfd.readouterr().err
    assert message.format(run=job.found("").storage.root).partition("; did")[0] in said
    assert not list(Path("runs/store").glob("v1/forgotten/*"))


def test_what_an_outage_failed_is_asked_again_by_the_same_command(
    job: Job, llm: Llm, capfd: pytest.CaptureFixture[str]
) -> None:
    llm.away, llm.status, llm.faulty = set(QUERIES[:4]), 500, {WORSE: ["{"]}
    words = ("--set", "limits.error_rate=0.5")
    job.run(*words, code=1)
    stopped, out = job.found(""), capfd.readouterr()
    again = shlex.join([*shlex.split(program()), "run", job.path, *words])
    assert "5 of 6 queries have errors (83.3%, limits.error_rate is 50.0%), most often rewrite/general/server_error" in out.err
    assert f"; 4 of them failed because a server did not answer; retry them with: {again}; to accept them, resume " in out.err
    assert "server_error 4" in out.out  # the table of what there is
    assert out.out.splitlines()[-1] == stopped.storage.root
    assert stopped.storage.get("report.html") is not None
    assert (stopped.finished, stopped.record["status"], Path("runs/small/latest.json").exists()) == (False, "stopped", False)
    sent = len(llm.server.bodies)

    llm.away = set()
    assert job.run(*words) == dict.fromkeys(QUERIES[:4], 1)  # the others are known
    done = job.found("")
    assert (done.storage.root, done.finished, failed(done)) == (stopped.storage.root, True, {"unparsable"})
    assert texts(done).keys() == set(QUERIES) - {WORSE}
    assert "answers again" not in capfd.readouterr().err
    costs = [row for row in rows(done, "costs") if row["stage"] == "rewrite"]
    assert sum(row["requests"] for row in costs) == len(llm.server.bodies) == sent + 4  # failed ones are not forgotten


def test_other_errors_are_not_asked_again_and_a_complete_run_is_shown(
    job: Job, llm: Llm, capfd: pytest.CaptureFixture[str]
) -> None:
    llm.faulty = {query: ["{", "{"] for query in QUERIES[:4]}
    words = ("--set", "limits.error_rate=0.5")
    job.run(*words, code=1)
    capfd.readouterr()
    assert job.run(*words, "--json", code=1) == {}
    out = capfd.readouterr()
    assert json.loads(out.out)["folder"] == job.found("").storage.root
    assert "4 of 6 queries have errors" in out.err
    assert "asked again" not in out.err
    assert job.run("--set", "limits.error_rate=0.7") == {}
    assert job.found("").finished


def test_a_recording_is_not_asked_again(small_job: Callable[..., str], capfd: pytest.CaptureFixture[str]) -> None:
    path = small_job(rewrite={"retries": 2})
    record({QUERIES[0]: {"dmqr": REFUSED}})
    log(QUERIES[:1])
    assert main(["run", path]) == 0
    out = capfd.readouterr()
    assert "a recording has one answer to each request" in out.err
    costs = [row for row in rows(open_run(out.out.splitlines()[-1]), "costs") if row["stage"] == "rewrite"]
    assert sum(row["requests"] for row in costs) == 1
    assert main(["run", path, "--retry", "all"]) == 2
    assert "--retry all: a recording has one answer to each request" in capfd.readouterr().err
    assert main(["run", path, "--label", "other", "--retry", "all"]) == 2
    assert "start one without --retry [run-missing]" in capfd.readouterr().err

"""A storage that is full, broken or refuses is no query's fault: the run waits, or ends and goes on, and loses nothing."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.errors import DmqrError, Stopped
from cluster.storage import copies, open_storage
from jobs.config.load import load_config
from jobs.job.prepare import Prepared, prepare
from tests.support.cluster.s3_proxy import Fault, proxied
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.in_process_runs import record, run_in_process
from tests.support.jobs.nights import log
from tests.support.jobs.whole_runs import check_same_rows, fetched, rows

QUERIES = 40  # in two shards: of the 20 queries of one, one may be at fault
Make = Callable[..., Prepared]


@pytest.fixture
def make(small_job: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """A small job, with settings."""
    monkeypatch.setenv(copies.FOLDER, str(tmp_path / "cache"))
    path, queries = small_job(cluster={"shard_size": 20}), [f"lamp {number}" for number in range(QUERIES)]
    log(queries)
    record({query: {"dmqr": json.dumps({"general": f"about {query}"})} for query in queries})
    return lambda *settings: prepare(load_config(path, list(settings)), path)


def until_finished(prepared: Prepared, starts: int) -> list[Exception]:
    """Starts the run until it is finished; returns how the starts before ended."""
    ended: list[Exception] = []
    while len(ended) < starts:
        try:
            run_in_process(prepared)
        except (Stopped, OSError) as error:  # both are exit code 1
            ended.append(error)
        except DmqrError as error:
            pytest.fail(f"refused: {error}")
        else:
            return ended
    pytest.fail(f"not finished: {ended[-1]}")


def full(monkeypatch: pytest.MonkeyPatch, folder: str, number: int, times: int) -> list[str]:
    """Lets the system refuse to write files of a folder so often; returns those that it has refused."""
    refused: list[str] = []
    fsync = os.fsync

    def failing(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if f"/{folder}/" in path and len(refused) < times:
            refused.append(path)
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    return refused


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "folder", "times"),
    [
        (errno.ENOSPC, "runs", 8),
        (errno.EIO, "runs", 1),
        (errno.ESTALE, "runs", 1),
        (errno.EROFS, "runs", 1),
        (errno.EDQUOT, "results", 2),
        (errno.EIO, "completions", 2),
    ],
)
def test_a_file_system_that_fails_costs_no_query_its_results(
    make: Make, monkeypatch: pytest.MonkeyPatch, number: int, folder: str, times: int
) -> None:
    calm, bad = make("output=calm"), make("output=bad")
    run_in_process(calm)
    refused = full(monkeypatch, folder, number, times)
    ended = until_finished(bad, starts=times + 1)
    assert [getattr(error, "errno", None) for error in ended] == [number] * times == [number] * len(refused)
    assert rows(Path(bad.storage.root), "errors") == []
    check_same_rows(Path(bad.storage.root), Path(calm.storage.root))
    assert not list(Path(bad.storage.root).rglob(".*.tmp")), "a temporary file was left behind"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["expired", "denied"])
def test_a_store_that_refuses_for_a_while_costs_no_query_its_results(
    make: Make, s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    calm = make("output=calm")
    run_in_process(calm)
    with proxied(s3) as (proxy, address):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
        bad = make(f"output={s3.fresh('bad')}")
        proxy.faults = [Fault(kind, path="/runs/shard", times=3)]
        ended = until_finished(bad, starts=4)
        assert len(proxy.did) == 3
    assert {getattr(error, "code", "") for error in ended} == {"storage-refused"}
    check_same_rows(fetched(open_storage(bad.storage.root), tmp_path / "fetched"), Path(calm.storage.root))

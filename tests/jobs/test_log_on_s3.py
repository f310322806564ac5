"""The log on S3: the same files, rows and refusals as in a folder; read in pieces, and known again by its version."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from s3_proxy import Fault, proxied
from s3_server import S3Server

from cluster import ClusterError, UnavailableError, s3_client, s3_duckdb
from cluster.shards import Plan, check_inputs
from cluster.storage import Storage, open_storage
from jobs import index
from jobs.judgements import read_qrels
from jobs.log import LogColumns, check_log
from jobs.log_files import LogError, find_log_files
from jobs.log_rows import read_log
from jobs.part import ConfigError
from retrievers.corpus import corpus_schema

COLUMNS = LogColumns("query", "id")


@pytest.fixture
def both(s3: S3Server, tmp_path: Path) -> tuple[Path, Storage]:
    """A log of two days in a folder, and the same on S3."""
    here, there = tmp_path / "log", open_storage(s3.fresh("log"))
    for day in ("2026-01-30", "2026-01-31"):
        folder = here / f"date={day}" / "tld=%2Eorg"
        folder.mkdir(parents=True)
        rows = {"query": [f"query {n % 700} of {day}" for n in range(30_000)], "id": [f"{day}-{n}" for n in range(30_000)]}
        pq.write_table(pa.table(rows), folder / "part-0.parquet", row_group_size=10_000)
        (folder / "_temporary.parquet").write_bytes(b"x")
        (folder / "read.me").write_bytes(b"x")
    (here / "_old").mkdir()
    (here / "_old" / "x.parquet").write_bytes(b"x")
    for path in here.rglob("*.*"):
        if path.is_file():
            there.upload(path, path.relative_to(here).as_posix())
    return here, there


def texts(url: str, columns: LogColumns = COLUMNS) -> list[tuple[str, str]]:
    found = []
    for piece in read_log(find_log_files(url), columns):
        named = np.array([*piece.texts.to_pylist(), None], object)[piece.codes]
        found += list(zip(piece.log_ids.to_pylist(), named.tolist(), strict=True))
    return found


def test_the_same_files_and_rows_as_in_a_folder(both: tuple[Path, Storage]) -> None:
    here, there = both
    for path, url in ((str(here), there.root), (f"{here}/date=2026-01-31", f"{there.root}/date=2026-01-31/")):
        local, remote = find_log_files(path), find_log_files(url)
        assert [(f.name, f.size, dict(f.partitions)["date"], dict(f.partitions)["tld"]) for f in remote] == [
            (f.name, f.size, dict(f.partitions)["date"], dict(f.partitions)["tld"]) for f in local
        ]
        assert check_log(remote, COLUMNS) == check_log(local, COLUMNS)
        assert texts(url) == texts(path)


def test_rows_without_an_id_are_named_alike(both: tuple[Path, Storage]) -> None:
    here, there = both
    columns = dataclasses.replace(COLUMNS, id_column=None)
    assert texts(there.root, columns) == texts(str(here), columns)
    file = "date=2026-01-30/tld=%2Eorg/part-0.parquet"
    assert texts(there.url(file), columns)[0][0] == "part-0.parquet#0"


def test_a_list_of_paths_names_files_from_what_they_share(both: tuple[Path, Storage]) -> None:
    _, there = both
    files = find_log_files([f"{there.root}/date=2026-01-31", there.url("date=2026-01-30/tld=%2Eorg/part-0.parquet")])
    assert [file.name for file in files] == [f"date=2026-01-{day}/tld=%2Eorg/part-0.parquet" for day in (30, 31)]


def test_faults_while_it_is_read_change_nothing(
    both: tuple[Path, Storage], s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_client, "rests", lambda: lambda: None)
    here, there = both
    with proxied(s3) as (proxy, address):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
        proxy.faults = [Fault(kind, method="GET", times=4, every=3) for kind in ("cut", "reset", "slow_down")]
        assert texts(there.root) == texts(str(here))
        assert len(proxy.did) > 2


def test_a_store_that_is_away_is_told_as_that_and_as_nothing_else(
    both: tuple[Path, Storage], s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as a damaged file that is to be copied again, nor as another that is to be named."""
    _, there = both
    there.put("qrels.tsv", b"l1\td1\t2\n")
    for patience in ("PATIENCE_SECONDS", "DOUBT_SECONDS"):
        monkeypatch.setattr(s3_client, patience, 0.0)
    monkeypatch.setattr("cluster.s3_file.TAIL", 1 << 10)
    files = find_log_files(there.root)
    with proxied(s3) as (proxy, address):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
        corpus = index.corpus_objects(there.root)
        rows = read_log(files, COLUMNS)
        next(rows)
        proxy.faults = [Fault("slow_down", method="GET", times=10**6)]
        for reads in (
            lambda: list(rows),
            lambda: check_log(files, COLUMNS),
            lambda: corpus_schema(corpus),
            lambda: read_qrels(there.url("qrels.tsv")),
        ):
            with pytest.raises(UnavailableError, match="answers 503 SlowDown for 0 s"):
                reads()
        with duckdb.connect() as connection:
            s3_duckdb.attach(connection)
            with pytest.raises(duckdb.Error) as failed:
                connection.sql(f"from read_parquet('{files[0].path}')").fetchall()
        with pytest.raises(UnavailableError, match=r"^s3://.*answers 503 SlowDown for 0 s$"):
            s3_duckdb.reason(failed.value)


def test_a_log_that_is_replaced_after_it_was_listed_is_not_read(both: tuple[Path, Storage]) -> None:
    here, there = both
    files = find_log_files(there.root)
    there.upload(next(here.rglob("date=2026-01-31/*/part-0.parquet")), "date=2026-01-30/tld=%2Eorg/part-0.parquet")
    for reads in (lambda: check_log(files, COLUMNS), lambda: list(read_log(files, COLUMNS))):
        with pytest.raises(LogError, match=r"2026-01-30/.*: was replaced since it was listed; start again"):
            reads()


def test_a_file_of_the_log_is_opened_once_to_be_checked(
    both: tuple[Path, Storage], s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, there = both
    files = find_log_files(there.root)
    with proxied(s3) as (proxy, address):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
        check_log(files, COLUMNS)
        assert len(proxy.requests) == len(files)


def test_another_version_is_a_changed_log(both: tuple[Path, Storage]) -> None:
    _, there = both
    planned = [file.version for file in find_log_files(there.root)]
    assert all(version.keys() == {"path", "size", "etag"} for version in planned)
    plan = Plan(planned, {}, 1, {}, [])
    check_inputs(plan, [file.version for file in find_log_files(there.root)], "run")
    key = "date=2026-01-31/tld=%2Eorg/part-0.parquet"
    data = bytearray(there.get(key) or b"")
    data[100] ^= 1
    there.put(key, bytes(data))
    with pytest.raises(ClusterError, match=r"part-0\.parquet has changed since run was started"):
        check_inputs(plan, [file.version for file in find_log_files(there.root)], "run")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda data: b"", "not a Parquet file: it is empty (0 bytes); copy it again, or remove it"),
        (lambda data: b"id,query\n1,sea\n" * 9, "not a Parquet file: it starts with 'id,query"),
        (lambda data: data[:-100], "truncated Parquet: the footer at the end of its "),
        (lambda data: data[:-30] + b"\xff" * 22 + data[-8:], "damaged Parquet: "),
    ],
)
def test_what_is_no_parquet_is_said_as_of_a_file(
    both: tuple[Path, Storage], spoil: Callable[[bytes], bytes], words: str
) -> None:
    _, there = both
    key = "date=2026-01-31/tld=%2Eorg/part-0.parquet"
    there.put(key, spoil(there.get(key) or b""))
    with pytest.raises(LogError) as refused:
        check_log(find_log_files(there.root), COLUMNS)
    assert str(refused.value).startswith(f"log file {there.url(key)}: {words}")
    assert "\n" not in str(refused.value)


def test_a_folder_without_parquet_says_what_is_in_it(s3: S3Server) -> None:
    there = open_storage(s3.fresh("log"))
    with pytest.raises(
        LogError, match=r"log.path s3://.*: no Parquet file .* in this folder, nothing lies there; name another"
    ):
        find_log_files(there.root)
    there.put("a.csv", b"x")
    with pytest.raises(LogError, match=r"found a\.csv; name another"):
        find_log_files(f"{there.root}/")


def test_judgements_on_s3(s3: S3Server) -> None:
    there = open_storage(s3.fresh("qrels"))
    there.put("qrels.tsv", "\ufeffl1\td1\t2\nl1\td2\t0\n".encode())
    assert read_qrels(there.url("qrels.tsv")).grades == {"l1": {"d1": 2, "d2": 0}}
    with pytest.raises(ConfigError, match=r"evaluate.qrels: s3://.*none.tsv: cannot be read: no such object"):
        read_qrels(there.url("none.tsv"))
    there.put("bad.tsv", b"l1\td1\t\xff\n")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        read_qrels(there.url("bad.tsv"))

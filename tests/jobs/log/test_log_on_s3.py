"""The log on S3: the same files, rows and refusals as in a folder; read in pieces, and known again by its version."""

import dataclasses
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError, UnavailableError
from cluster.storage import Storage, files_at, open_file, open_storage, s3_client, s3_duckdb
from cluster.storage.s3_client import take_traffic
from jobs.index import sources
from jobs.log.check import LogColumns, check_log
from jobs.log.dedup import dedup
from jobs.log.files import LogFile, find_log_files
from jobs.log.judgements import read_qrels
from jobs.log.rows import read_rows
from retrievers.corpora.files import Source, corpus_schema
from tests.support.cluster.s3_proxy import Fault, proxied
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.logs import rows_of

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


def read_log(files: list[LogFile], columns: LogColumns = COLUMNS) -> Iterator[pa.Table]:
    return read_rows(check_log(files, columns), columns)


def texts(url: str, columns: LogColumns = COLUMNS) -> list[tuple[str, bytes]]:
    pieces = [piece.to_pydict() for piece in read_log(find_log_files(url), columns)]
    return [row for piece in pieces for row in zip(piece["log_id"], piece["text"], strict=True)]


def test_the_same_files_and_rows_as_in_a_folder(both: tuple[Path, Storage]) -> None:
    here, there = both
    for path, url in ((str(here), there.root), (f"{here}/date=2026-01-31", f"{there.root}/date=2026-01-31/")):
        local, remote = find_log_files(path), find_log_files(url)
        assert [(f.name, f.size, dict(f.partitions)["date"], dict(f.partitions)["tld"]) for f in remote] == [
            (f.name, f.size, dict(f.partitions)["date"], dict(f.partitions)["tld"]) for f in local
        ]
        assert [group[1:] for group in check_log(remote, COLUMNS)] == [group[1:] for group in check_log(local, COLUMNS)]
        assert texts(url) == texts(path)


def test_a_list_of_paths_names_files_from_what_they_share(both: tuple[Path, Storage]) -> None:
    _, there = both
    files = find_log_files([f"{there.root}/date=2026-01-31", there.url("date=2026-01-30/tld=%2Eorg/part-0.parquet")])
    assert [file.name for file in files] == [f"date=2026-01-{day}/tld=%2Eorg/part-0.parquet" for day in (30, 31)]


@pytest.mark.slow
def test_faults_while_it_is_read_change_nothing(
    both: tuple[Path, Storage], s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.outages.pause", lambda *_: 0.0)
    here, there = both
    with proxied(s3) as (proxy, address):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
        proxy.faults = [Fault(kind, method="GET", times=4, every=3) for kind in ("cut", "reset", "slow_down")]
        assert texts(there.root) == texts(str(here))
        assert len(proxy.did) > 2


@pytest.mark.slow
def test_a_store_that_is_away_is_told_as_that_and_as_nothing_else(
    both: tuple[Path, Storage], s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as a damaged file that is to be copied again, nor as another that is to be named."""
    _, there = both
    there.put("qrels.tsv", b"l1\td1\t2\n")
    for patience in ("RETRY_SECONDS", "SHORT_RETRY_SECONDS"):
        monkeypatch.setattr(s3_client, patience, 0.0)
    monkeypatch.setattr("cluster.storage.s3_file.TAIL", 1 << 10)
    monkeypatch.setattr("jobs.log.rows.BATCH_ROWS", 1000)
    monkeypatch.setattr("jobs.log.rows.PIECE_BYTES", 1)
    files = find_log_files(there.root)
    with proxied(s3) as (proxy, address):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
        files_of_corpus = sources.table_files(there.root, files_at(there.root))
        corpus = [Source(file.path, partial(open_file, file.path)) for file in files_of_corpus]
        rows = read_log(files, COLUMNS)
        next(rows)
        proxy.faults = [Fault("slow_down", method="GET", times=10**6)]
        for reads in (
            lambda: list(rows),
            lambda: check_log(files, COLUMNS),
            lambda: corpus_schema(corpus),
            lambda: read_qrels(there.url("qrels.tsv")),
        ):
            with pytest.raises(UnavailableError, match=r"answers 503 SlowDown for \d+ s"):
                reads()
        with s3_duckdb.open_duckdb() as connection, pytest.raises(duckdb.Error) as failed:
            connection.sql(f"from read_parquet('{files[0].path}')").fetchall()
        with pytest.raises(UnavailableError, match=r"^s3://.*answers 503 SlowDown for \d+ s$"):
            s3_duckdb.reason(failed.value)


@pytest.mark.slow
@pytest.mark.parametrize("id_column", ["id", None])
def test_tables_on_s3_are_those_of_a_folder(
    both: tuple[Path, Storage], s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, id_column: str | None
) -> None:
    here, there = both
    monkeypatch.setattr("jobs.log.dedup.PART_ROWS", 20_000)
    monkeypatch.setattr("jobs.log.dedup.RANGE_ROWS", 1000)
    columns = dataclasses.replace(COLUMNS, id_column=id_column)
    found = []
    for log, storage in ((str(here), open_storage(str(tmp_path / "out"))), (there.root, open_storage(s3.fresh("out")))):
        summary = dedup(find_log_files(log), columns, storage, 100)
        named = [file for files in summary.tables.values() for file in files]
        assert [(entry.key, entry.size) for entry in storage.list()] == sorted((file.key, file.size) for file in named)
        found.append((rows_of(summary, storage), [shard[2:] for shard in summary.shards], summary.counts))
    assert found[0] == found[1]
    assert (found[0][2]["log_rows"], found[0][2]["queries"]) == (60_000, 1400)


@pytest.mark.slow
def test_a_range_of_ids_fetches_little_of_each_part(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 240_000
    pq.write_table(pa.table({"query": [f"query number {n} of a log" for n in range(rows)]}), tmp_path / "log.parquet")
    monkeypatch.setattr("jobs.log.dedup.PART_ROWS", rows // 2)
    monkeypatch.setattr("jobs.log.dedup.PART_FILES", 1)
    pq.write_table(pa.table({"query": [f"another {n} of a log" for n in range(rows)]}), tmp_path / "more.parquet")
    monkeypatch.setattr("jobs.log.dedup.RANGE_ROWS", rows // 8)
    take_traffic()
    dedup(find_log_files(str(tmp_path)), LogColumns("query"), open_storage(s3.fresh("out")), 1000)
    taken = take_traffic()
    assert taken["received_bytes"] < 2 * taken["sent_bytes"]
    pairs = 2 * 9  # files of texts x ranges, each read to count and to merge
    assert taken["get"] < 2 * pairs * 20


def test_a_file_of_the_log_is_opened_once_to_be_checked(
    both: tuple[Path, Storage], s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, there = both
    files = find_log_files(there.root)
    with proxied(s3) as (proxy, address):
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
        check_log(files, COLUMNS)
        assert len(proxy.requests) == len(files)


def test_judgements_on_s3(s3: S3Server) -> None:
    there = open_storage(s3.fresh("qrels"))
    there.put("qrels.tsv", "\ufeffl1\td1\t2\nl1\td2\t0\n".encode())
    assert read_qrels(there.url("qrels.tsv")).grades == {"l1": {"d1": 2, "d2": 0}}
    with pytest.raises(ConfigError, match=r"evaluate.qrels: s3://.*none.tsv: no such file or folder; give another file"):
        read_qrels(there.url("none.tsv"))
    there.put("bad.tsv", b"l1\td1\t\xff\n")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        read_qrels(there.url("bad.tsv"))

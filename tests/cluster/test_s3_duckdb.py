"""DuckDB over S3: the same rows as over files, in ranges, from several threads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.storage import Storage, open_storage
from cluster.storage.copies import cache_folder
from cluster.storage.s3_duckdb import bounded_duckdb, kept_duckdb, open_duckdb, reason
from tests.support.cluster.s3_server import S3Server

ROWS = 600_000
QUERY = """SELECT count(*), sum(n), count(DISTINCT text), sum(length(text)), max(file_row_number), count(DISTINCT filename)
FROM read_parquet(?, filename = true, file_row_number = true) WHERE n % 3 = 1"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.parquet"
    rows = pa.table(
        {"n": range(ROWS), "text": [f"{n * 2654435761 % 2**32:x} {n}" for n in range(ROWS)], "rest": ["r" * 50] * ROWS}
    )
    pq.write_table(rows, path, row_group_size=20_000, compression="zstd", use_dictionary=False)
    return path


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_duckdb({"threads": "4", "memory_limit": "256MB"}) as connection:
        yield connection


def test_a_query_that_takes_long_draws_nothing(connection: duckdb.DuckDBPyConnection) -> None:
    assert connection.sql("SELECT current_setting('enable_progress_bar')").fetchall() == [(False,)]  # drawn after 2 s


def test_a_database_that_is_kept_is_opened_once_for_each_of_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[dict[str, object]] = []

    def counted(config: dict[str, object]) -> duckdb.DuckDBPyConnection:
        opened.append(config)
        return connect(config=config)

    connect = duckdb.connect
    monkeypatch.setattr("duckdb.connect", counted)
    with kept_duckdb():
        with bounded_duckdb("100MB", 1) as one, bounded_duckdb("100MB", 1) as other:
            for connection, number in ((one, 1), (other, 2)):
                connection.execute(f"CREATE TEMP TABLE mine AS SELECT {number} AS n")
                connection.register("given", pa.table({"n": [number]}))
                assert connection.execute("SELECT current_setting('enable_progress_bar')").fetchall() == [(False,)]
            for connection, number in ((one, 1), (other, 2)):
                assert connection.execute("SELECT mine.n, given.n FROM mine, given").fetchall() == [(number, number)]
        with bounded_duckdb("100MB", 1) as third, pytest.raises(duckdb.CatalogException):
            third.execute("FROM mine")
        assert len(opened) == 1
        with bounded_duckdb("200MB", 1) as wide:
            assert wide.execute("SELECT current_setting('memory_limit')").fetchall() == [("190.7 MiB",)]
        assert len(opened) == 2
        folders = [Path(str(one["temp_directory"])) for one in opened]
        assert {one.parent for one in folders} == {cache_folder() / "work"}  # is swept after a kill
        assert all(folder.is_dir() for folder in folders)
    assert not any(folder.exists() for folder in folders)
    with bounded_duckdb("100MB", 1):
        assert len(opened) == 3


@pytest.fixture
def store(s3: S3Server, table: Path) -> Storage:
    storage = open_storage(s3.fresh("tables [x] date=1"))
    for name in ("a", "b"):
        storage.upload(table, f"results/{name}.parquet")
    return storage


def test_the_same_rows_as_from_files(connection: duckdb.DuckDBPyConnection, store: Storage, table: Path) -> None:
    here = connection.execute(QUERY, [[str(table)]]).fetchone()
    assert here is not None
    for _ in range(3):
        there = connection.execute(QUERY, [[store.url("results/a.parquet")]]).fetchone()
        assert there == here
    both = connection.execute(QUERY, [[store.url(f"results/{name}.parquet") for name in "ab"]]).fetchone()
    assert both == (2 * here[0], 2 * here[1], here[2], 2 * here[3], here[4], 2)


def test_what_no_waiting_mends_is_told_of_duckdb_as_of_everything(connection: duckdb.DuckDBPyConnection, s3: S3Server) -> None:
    with pytest.raises(duckdb.Error) as failed:
        connection.execute("SELECT 1 FROM read_parquet('s3://no-such-bucket-here/a.parquet')")
    assert reason(failed.value).startswith("s3://no-such-bucket-here/a.parquet: there is no bucket s3://no-such-bucket-here at")

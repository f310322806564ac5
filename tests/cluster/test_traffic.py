"""S3 beneath DuckDB and pyarrow: the same rows as from files, and every request counted once, by kind, with its bytes."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.costs import STORAGE, STORAGE_REQUESTS
from cluster.storage import open_storage
from cluster.storage.copies import cache_folder
from cluster.storage.s3 import PART, S3Storage
from cluster.storage.s3_client import add_traffic, take_traffic
from cluster.storage.s3_duckdb import bounded_duckdb, kept_duckdb, open_duckdb, reason
from tests.support.cluster.s3_proxy import Fault, Proxy
from tests.support.cluster.s3_server import S3Server


@pytest.fixture
def store(proxy: Proxy) -> S3Storage:
    return S3Storage(proxy.server.fresh())


def requests(taken: dict[str, float]) -> Counter[str]:
    return Counter({name: int(n) for name, n in taken.items() if name in STORAGE_REQUESTS})


def test_all_kinds_of_requests_are_counted_as_they_come_to_the_server(store: S3Storage, proxy: Proxy, tmp_path: Path) -> None:
    assert store.put_if_absent("a", b"x" * 1000)
    assert not store.put_if_absent("a", b"other")  # asks whose it is
    (tmp_path / "large").write_bytes(b"y" * (2 * PART))
    store.upload(tmp_path / "large", "large")
    assert store.get("a") == b"x" * 1000
    assert store.get("none") is None
    assert [entry.key for entry in store.list()] == ["a", "large"]
    store.delete("a", "large")
    taken = take_traffic()
    assert requests(taken) == proxy.kinds()
    assert {name for name in taken if name in STORAGE_REQUESTS} == set(STORAGE_REQUESTS)
    assert taken["sent_bytes"] >= 1000 + 2 * PART
    assert taken["received_bytes"] == 1000
    assert take_traffic() == {}


def test_what_duckdb_and_pyarrow_read_is_counted(store: S3Storage, proxy: Proxy) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": list(range(200_000))}), sink, row_group_size=10_000, compression="none", use_dictionary=False)
    store.put("t.parquet", sink.getvalue().to_pybytes())
    with open_duckdb() as connection:
        (found,) = connection.execute(f"SELECT sum(n) FROM read_parquet('{store.url('t.parquet')}')").fetchone() or (None,)
    with store.open("t.parquet") as file:
        assert found == pq.ParquetFile(file).read().column("n").to_numpy().sum()
    taken = take_traffic()
    assert requests(taken) == proxy.kinds()
    assert taken["get"] > 2
    assert taken["received_bytes"] >= 200_000 * 8


def test_each_attempt_of_a_request_is_one(store: S3Storage, proxy: Proxy) -> None:
    proxy.faults = [Fault("slow_down", times=2), Fault("cut", method="GET", times=1)]
    store.put("a", b"x" * 10)
    assert store.get("a") == b"x" * 10
    taken = take_traffic()
    assert requests(taken) == proxy.kinds() == Counter(put=3, get=2)
    assert taken["sent_bytes"] == 30


def test_what_another_process_has_counted_is_given_out_once() -> None:
    take_traffic()
    add_traffic({"put": 1, "sent_bytes": 5, "delete": 1, "received_bytes": 7})
    add_traffic({"get": 2, "received_bytes": 3.0})
    assert take_traffic() == {"put": 1, "sent_bytes": 5, "delete": 1, "received_bytes": 10, "get": 2}
    assert take_traffic() == {}
    assert {"put", "sent_bytes", "delete", "received_bytes", "get"} < set(STORAGE)


ROWS = 60_000

QUERY = """SELECT count(*), sum(n), count(DISTINCT text), sum(length(text)), max(file_row_number), count(DISTINCT filename)
FROM read_parquet(?, filename = true, file_row_number = true) WHERE n % 3 = 1"""


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with open_duckdb({"threads": "4", "memory_limit": "256MB"}) as connection:
        yield connection


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


def test_the_same_rows_as_from_files(connection: duckdb.DuckDBPyConnection, s3: S3Server, tmp_path: Path) -> None:
    texts, path = [f"{n * 2654435761 % 2**32:x} {n}" for n in range(ROWS)], tmp_path / "t.parquet"
    rows = pa.table({"n": range(ROWS), "text": texts, "rest": ["r" * 50] * ROWS})
    pq.write_table(rows, path, row_group_size=2_000, compression="zstd", use_dictionary=False)
    storage = open_storage(s3.fresh("tables [x] date=1"))
    for name in ("a", "b"):
        storage.upload(path, f"results/{name}.parquet")
    here = connection.execute(QUERY, [[str(path)]]).fetchone()
    assert here is not None
    for _ in range(3):
        assert connection.execute(QUERY, [[storage.url("results/a.parquet")]]).fetchone() == here
    both = connection.execute(QUERY, [[storage.url(f"results/{name}.parquet") for name in "ab"]]).fetchone()
    assert both == (2 * here[0], 2 * here[1], here[2], 2 * here[3], here[4], 2)
    drawn = connection.execute("SELECT current_setting('enable_progress_bar')").fetchall()
    assert drawn == [(False,)], "a query that takes 2 s would draw a bar"


def test_what_no_waiting_mends_is_told_of_duckdb_as_of_everything(connection: duckdb.DuckDBPyConnection, s3: S3Server) -> None:
    with pytest.raises(duckdb.Error) as failed:
        connection.execute("SELECT 1 FROM read_parquet('s3://no-such-bucket-here/a.parquet')")
    assert reason(failed.value).startswith("s3://no-such-bucket-here/a.parquet: there is no bucket s3://no-such-bucket-here at")

"""The log on S3: the same files, rows and refusals as in a folder; read in pieces, and known again by its version."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError
from cluster.storage import Storage, open_storage
from jobs.log.check import LogColumns, check_log
from jobs.log.files import LogFile, find_log_files
from jobs.log.judgements import read_qrels
from jobs.log.rows import read_rows
from tests.support.cluster.s3_proxy import proxied
from tests.support.cluster.s3_server import S3Server

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

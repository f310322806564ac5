"""A log of User Behavior Insights on S3: the same tables and clicks as of a folder; an object that was replaced is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from cluster.errors import LogError
from cluster.storage import Storage, open_storage
from jobs.clicks.export import EventChoice
from jobs.clicks.interactions import clicked, read_interactions
from jobs.log.check import LogColumns, check_log
from jobs.log.dedup import dedup
from jobs.log.files import log_files
from jobs.log.rows import read_rows
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.ubi_exports import NESTED, event, search, ubi_config, write_lines, write_parquet

COLUMNS = LogColumns("user_query", "query_id")


@pytest.fixture
def both(s3: S3Server, tmp_path: Path) -> tuple[Path, Storage]:
    """Searches in two files, one packed, and events as Parquet and as lines; in a folder, and the same on S3."""
    here, there = tmp_path / "log", open_storage(s3.fresh("ubi"))
    searches = [search(f"q{n}", f"Query {n % 50}", ["a", "b", "c"][n % 3 :], f"c{n}") for n in range(3000)]
    write_lines(here / "ubi_queries" / "0.ndjson", searches[:1500])
    write_lines(here / "ubi_queries" / "1.json.gz", searches[1500:], wrapped=True)
    write_parquet(here / "ubi_events" / "0.parquet", [event(f"q{n}", "c", 3) for n in range(0, 3000, 7)], NESTED)
    write_lines(here / "ubi_events" / "1.ndjson", [event(f"q{n}", "b", 2) for n in range(0, 3000, 11)])
    for path in here.rglob("*.*"):
        there.upload(path, path.relative_to(here).as_posix())
    return here, there


def tables(path: str, out: Path) -> dict[str, list[dict[str, Any]]]:
    summary = dedup(log_files(ubi_config(path).log), COLUMNS, open_storage(str(out)), 10)
    return {
        name: [row for file in of for row in pq.read_table(out / file.key).to_pylist()] for name, of in summary.tables.items()
    }


@pytest.mark.slow
def test_the_same_tables_and_clicks_as_of_a_folder(both: tuple[Path, Storage], tmp_path: Path) -> None:
    here, there = both
    assert tables(there.root, tmp_path / "a") == tables(str(here), tmp_path / "b")
    local, remote = (read_interactions(ubi_config(path), EventChoice()) for path in (str(here), f"{there.root}/ubi_queries"))
    assert remote.cells.pairs.equals(local.cells.pairs)
    for column in ("pair", "rank", "shown", "clicked"):
        assert (getattr(remote.cells, column) == getattr(local.cells, column)).all()
    assert (remote.used, remote.dropped) == (local.used, local.dropped)
    assert clicked(ubi_config(there.root)) == clicked(ubi_config(str(here)))


def test_an_object_that_was_replaced_is_refused(both: tuple[Path, Storage]) -> None:
    _, there = both
    files = log_files(ubi_config(there.url("ubi_queries/0.ndjson")).log)
    groups = check_log(files, COLUMNS)
    content = there.get("ubi_queries/0.ndjson")
    assert content is not None
    there.put("ubi_queries/0.ndjson", content[::-1])
    for reads in (lambda: check_log(files, COLUMNS), lambda: list(read_rows(groups, COLUMNS))):
        with pytest.raises(LogError, match="was replaced since it was listed") as error:
            reads()
        assert error.value.code == "log-changed"

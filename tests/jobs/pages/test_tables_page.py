"""The examples of docs/results-and-tables.md on the quickstart's run without its encoder; whole: test_examples.py."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from jobs.__main__ import main
from jobs.chain.drift import DRIFT
from jobs.runs.folder import open_run
from rewriters.guards import preserve
from rewriters.guards.guards import NEAR_DUPLICATE, REPAIRED
from rewriters.normalise import query_id
from rewriters.reasons import CUT, FLAGS, MASKED, OTHER_SCRIPT
from tests.support.jobs.tables_page import PAGE, cells, example
from tests.support.jobs.whole_runs import ROOT, rows

ONLY_BM25 = "retrieve.retrievers={bm25: {kind: local, index: index/sample}}"


def test_the_pages_name_every_flag_of_a_text() -> None:
    (row,) = re.findall(r"^\| `guards` \|.*$", PAGE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == {"guards", *FLAGS}
    strategies = (ROOT / "docs/strategies.md").read_text(encoding="utf-8")
    table = strategies[strategies.index("| guard | in `rewrites.guards` |") :].partition("\n\n")[0]
    assert set(FLAGS) <= {*re.findall(r"`(\w+)`", table)}
    assert {
        *(preserve.NUMBER, preserve.NAME, preserve.PHRASE),
        REPAIRED,
        NEAR_DUPLICATE,
        MASKED,
        CUT,
        OTHER_SCRIPT,
        DRIFT,
    } < set(FLAGS)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reader")
    (folder / "configs").symlink_to(ROOT / "configs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        config = ["configs/quickstart.yaml", "--set", ONLY_BM25, "--set", "cluster.address=none"]
        assert main(["index", *config, "--corpus", "configs/sample/corpus.parquet"]) == 0
        assert main(["run", *config]) == 0
    return folder


def test_every_example_runs_and_finds_its_rows(place: Path) -> None:
    printed = cells(example(place))
    assert ["bee42934aeb07bcbc440f344827289a3"] in printed
    assert ["log", "NULL", "empty", "9"] in printed
    assert ["keyword", "143", "23", "7", "2"] in printed  # of rewrites by the way in which they were read
    assert any(row[1:] == ["176"] for row in printed)  # results, queries


def test_the_public_function_gives_the_ids_of_the_tables(place: Path) -> None:
    run = Path(open_run(str(place / "runs" / "quickstart")).storage.root)
    queries = rows(run, "queries")
    assert [query_id(row["query"]) for row in queries] == [row["query_id"] for row in queries]
    log = pq.read_table(place / "configs/sample/log.parquet").to_pylist()
    of_log = {row["log_id"]: row["query_id"] for row in rows(run, "query_map")}
    known = {row["id"]: row["query"] for row in log if of_log[row["id"]] is not None}
    assert {log_id: query_id(text) for log_id, text in known.items()} == {log_id: of_log[log_id] for log_id in known}
    wrong = f"SELECT count(*) FROM '{run}/queries/*.parquet' WHERE left(sha256(normalised), 32) != query_id"
    with duckdb.connect() as connection:  # of its own: what another test has left unread does not matter
        assert connection.sql(wrong).fetchall() == [(0,)]

"""Closing a run: every balance that does not hold is named, and what stays is exactly what counts."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from cluster.errors import ClusterError
from cluster.run.shards import SUCCESS, File, Manifest, Plan, Shard, commit, write_table
from cluster.storage.files import FileStorage
from jobs.config.config import Config
from jobs.job.prepare import Prepared
from jobs.log.check import LogColumns
from jobs.run.finish import check_balances, finish, put_latest, run_balances
from jobs.tables import STORED

# 5 log rows, 1 rejected, 3 distinct queries, 2 strategies: 5 rewrites and 1 error; one query without hits.
COUNTS = {
    "queries": 3, "rewrites": 5, "rewrite_errors": 1, "queries_with_results": 2, "error/fuse//no_hits": 1,
    "error/rewrite/keyword/truncated": 1,
}  # fmt: skip
ROWS = {"queries": 3, "query_map": 5, "rewrites": 5, "runs": 9, "scores": 7, "results": 4, "costs": 9, "errors": 3}
PLAN = Plan(
    [], {"log_rows": 5, "queries": 3, "rejected": 1}, 10,
    {"queries": [File("queries/p.parquet", 3, 1)], "query_map": [File("query_map/p.parquet", 5, 1)],
     "errors": [File("errors/p.parquet", 1, 1)]},
    [Shard(0, "queries/p.parquet", 0, 3)],
)  # fmt: skip


@pytest.fixture
def prepared(values: dict[str, Any], tmp_path: Path) -> Prepared:
    values["rewrite"]["strategies"] = ["general", "keyword"]
    config = Config.model_validate(values)
    return Prepared(config, "config.yaml", [], LogColumns("query"), {}, None, {}, None, FileStorage(str(tmp_path)), "small-0f")


def tables(**changes: int) -> dict[str, list[File]]:
    return {table: [File(f"{table}/a", rows, 1)] for table, rows in (ROWS | changes).items()}


# ---------------------------------------------------------------- balances

PLANNED = "queries x planned strategies (6) are not those with rewrites + with an error + not selected + left out by a guard"


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"rewrites": 7, "further_texts": 3, "not_selected": 1},  # texts of one strategy, and one that was not selected
        {"rewrites": 4, "guarded": 1},
    ],
)
def test_balances_that_hold(prepared: Prepared, changed: dict[str, int]) -> None:
    counts = COUNTS | changed
    check_balances(prepared.storage, run_balances(prepared, PLAN, counts, tables(rewrites=counts["rewrites"])))


@pytest.mark.parametrize(
    ("counts", "changed", "words"),
    [
        ({}, {"query_map": 4}, "log rows (5) are not rows of query_map (4)"),
        ({}, {"queries": 4}, "distinct queries (3) are not rows of queries (4)"),
        ({"queries": 2}, {}, "distinct queries (3) are not queries committed (2)"),
        ({"rewrite_errors": 0}, {}, f"{PLANNED} (5)"),
        ({"not_selected": 1}, {}, f"{PLANNED} (7)"),
        ({"further_texts": 1}, {}, f"{PLANNED} (5)"),
        ({"rewrites": 4}, {"rewrites": 4}, f"{PLANNED} (5)"),
        ({}, {"answers": 2}, "answers committed (0) are not rows of answers (2)"),
        ({}, {"rewrites": 6}, "rewrites committed (5) are not rows of rewrites (6)"),
        ({"queries_with_results": 1}, {}, "queries (3) are not queries with results + without hits (2)"),
        ({"error/fuse//no_hits": 0}, {}, "queries (3) are not queries with results + without hits (2)"),
    ],
)
def test_a_balance_that_does_not_hold_is_named(
    prepared: Prepared, counts: dict[str, int], changed: dict[str, int], words: str
) -> None:
    with pytest.raises(ClusterError) as refused:
        check_balances(prepared.storage, run_balances(prepared, PLAN, COUNTS | counts, tables(**changed)))
    assert f"{prepared.storage.root}: {words}, so the run is not closed; start it under another name" == str(refused.value)


# ---------------------------------------------------------------- closing


def stored(prepared: Prepared, table: str, rows: int, shard: int = 0) -> File:
    empty = dict.fromkeys(STORED[table].names)
    return write_table(prepared.storage, table, shard, STORED[table].empty_table().from_pylist([empty] * rows, STORED[table]))


@pytest.fixture
def committed(prepared: Prepared) -> Plan:
    """A run whose one shard is committed, without a rewrite that failed or was made (no strategies)."""
    kept = {table: [stored(prepared, table, ROWS[table])] for table in ("queries", "query_map")}
    plan = Plan([], PLAN.counts, 10, kept | {"errors": [stored(prepared, "errors", 1)]}, PLAN.shards)
    files = {table: [stored(prepared, table, ROWS[table])] for table in ("rewrites", "results", "costs")}
    commit(prepared.storage, Manifest(0, 1, files, COUNTS, {}))
    return plan


def close(prepared: Prepared, plan: Plan, counts: dict[str, int]) -> None:
    schemas = {name: schema for name, schema in STORED.items() if name not in ("selections", "candidates")}
    finish(prepared.storage, plan, counts, schemas, partial(run_balances, prepared, plan, counts))


def files_of(prepared: Prepared, table: str) -> list[str]:
    return [entry.key for entry in prepared.storage.list(table)]


def test_a_closed_run_has_what_was_committed_and_one_file_for_an_empty_table(prepared: Prepared, committed: Plan) -> None:
    stored(prepared, "results", 7)  # an attempt that did not commit
    prepared.storage.put("runs/.shard-000000-x.parquet.ff.tmp", b"half")
    prepared.storage.put("plan/plan-x-00000.parquet", b"between the phases of a planning that was killed")
    close(prepared, committed, COUNTS)
    assert files_of(prepared, "plan") == []
    assert files_of(prepared, "runs") == ["runs/empty.parquet"]
    with prepared.storage.open("runs/empty.parquet") as file:
        assert pq.read_table(file).equals(STORED["runs"].empty_table())
    success = json.loads(prepared.storage.get(SUCCESS) or b"")
    assert success["counts"] == COUNTS | {"log_rows": 5, "rejected": 1}
    assert success["tables"].keys() == STORED.keys() - {"selections", "candidates"}  # every strategy rewrites every query
    for table in success["tables"]:
        assert files_of(prepared, table) == sorted(success["tables"][table]), table
    assert len(success["tables"]["results"]) == 1
    put_latest(prepared)
    latest = json.loads(prepared.output.get("small/latest.json") or b"")
    assert latest == {
        "run_id": "small-0f",
        "label": None,
        "date": None,
        "path": prepared.storage.root,
        "finished_at": success["finished_at"],
    }


def test_closing_twice_changes_nothing(prepared: Prepared, committed: Plan) -> None:
    close(prepared, committed, COUNTS)
    before = {entry.key: prepared.storage.get(entry.key) for entry in prepared.storage.list()}
    close(prepared, committed, COUNTS)
    assert {entry.key: prepared.storage.get(entry.key) for entry in prepared.storage.list()} == before


def test_a_run_that_does_not_balance_is_left_as_it_is(prepared: Prepared, committed: Plan) -> None:
    orphan = stored(prepared, "results", 7)
    with pytest.raises(ClusterError, match="queries committed"):
        close(prepared, committed, COUNTS | {"queries": 2})
    assert prepared.storage.get(SUCCESS) is None
    assert prepared.output.get("small/latest.json") is None
    assert prepared.storage.get(orphan.key) is not None


def test_latest_points_to_what_finished_last(prepared: Prepared, committed: Plan) -> None:
    close(prepared, committed, COUNTS)
    prepared.output.put("small/latest.json", json.dumps({"run_id": "small-later", "finished_at": 1e12}).encode())
    put_latest(prepared)
    assert json.loads(prepared.output.get("small/latest.json") or b"")["run_id"] == "small-later"
    prepared.output.put("small/latest.json", json.dumps({"run_id": "small-before", "finished_at": 1.0}).encode())
    put_latest(prepared)
    assert json.loads(prepared.output.get("small/latest.json") or b"")["run_id"] == "small-0f"

"""The end of a run: orphans away, balances held, `run.json`, `_SUCCESS.json`, `latest.json`."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping

import pyarrow.parquet as pq

from cluster import ClusterError
from cluster.shards import SUCCESS, File, Plan, committed_tables, manifests, put_success, remove_orphans
from cluster.storage import Storage
from jobs.prepare import Prepared
from jobs.tables import STORED


def finish(prepared: Prepared, plan: Plan, counts: Mapping[str, int], record: Callable[[], None] = lambda: None) -> None:
    """Close a run whose every shard is committed; ClusterError if anything is missing or does not add up.

    `record` is called when all is well, right before `_SUCCESS.json` says so.
    """
    storage = prepared.storage
    tables = tables_of(storage, plan, prepared.config.retrieve.keep_runs)
    check_balances(prepared, plan, counts, tables)
    for table, files in tables.items():
        if not files:  # a table without rows still has one file
            files.append(_put_empty(storage, table))
    remove_orphans(storage, tables, [file for files in tables.values() for file in files])
    record()
    put_success(storage, tables, dict(counts) | {"log_rows": plan.counts["log_rows"], "rejected": plan.counts["rejected"]})


def announce(prepared: Prepared) -> None:
    """Let `latest.json` point here, unless it points to a run that finished later; a kill may have prevented it before."""
    latest = f"{prepared.config.name}/latest.json"
    finished = json.loads(prepared.storage.get(SUCCESS) or b"{}").get("finished_at", 0.0)
    if json.loads(prepared.output.get(latest) or b"{}").get("finished_at", -1.0) < finished:
        body = {"run_id": prepared.run_id, "path": prepared.storage.root, "finished_at": finished}
        prepared.output.put(latest, json.dumps(body).encode())


def tables_of(storage: Storage, plan: Plan, keep_runs: bool) -> dict[str, list[File]]:
    """Every committed file, by table; tables without rows are there, empty."""
    found = committed_tables(plan, manifests(storage))
    return {name: found.get(name, []) for name in STORED if keep_runs or name != "runs"}


def check_balances(prepared: Prepared, plan: Plan, counts: Mapping[str, int], tables: Mapping[str, list[File]]) -> None:
    """Nothing came in that did not come out: ClusterError names the balance that does not hold, with both sides."""
    rows = {table: sum(file.rows for file in files) for table, files in tables.items()}
    no_hits = sum(n for name, n in counts.items() if name.startswith("error/") and name.endswith("/no_hits"))
    balances = [
        ("log rows", plan.counts["log_rows"], "rows of query_map", rows["query_map"]),
        ("rejected log rows", plan.counts["rejected"], "their errors", sum(f.rows for f in plan.tables["errors"])),
        ("distinct queries", plan.counts["queries"], "rows of queries", rows["queries"]),
        ("distinct queries", plan.counts["queries"], "queries committed", counts.get("queries", 0)),
        (
            "queries x planned strategies", plan.counts["queries"] * len(prepared.config.rewrite.planned),
            "rewrites + rewrite errors", counts.get("rewrites", 0) + counts.get("rewrite_errors", 0),
        ),
        ("rewrites committed", counts.get("rewrites", 0), "rows of rewrites", rows["rewrites"]),
        (
            "queries", plan.counts["queries"],
            "queries with results + without hits", counts.get("queries_with_results", 0) + no_hits,
        ),
    ]  # fmt: skip
    for left, count, right, other in balances:
        if count != other:
            raise ClusterError(
                f"{prepared.storage.root}: {left} ({count:,}) are not {right} ({other:,}); the run is not closed; "
                "start it anew under another name"
            )


def _put_empty(storage: Storage, table: str) -> File:
    buffer = io.BytesIO()
    pq.write_table(STORED[table].empty_table(), buffer)
    key = f"{table}/empty.parquet"
    storage.put(key, buffer.getvalue())
    return File(key, 0, buffer.tell())

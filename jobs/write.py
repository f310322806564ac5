"""The last stage: flatten one shard's rows into the stored tables, and commit them with one manifest."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster import costs
from cluster.shards import Manifest, commit, write_table
from cluster.storage import open_storage
from jobs.tables import COMMITTED, NOTES, STORED

ARM = "run"  # the one arm of a plain run


class Write:
    """A worker: RERANKED -> COMMITTED (one row).

    Args:
        run: the run's folder.
        planned: strategies asked for, per query.
        keep_runs: write the lists as retrieved.
        start: the start of the run that this is, from 1.
    """

    def __init__(self, run: str, planned: int, keep_runs: bool, start: int) -> None:
        self._storage = open_storage(run)
        self._planned, self._keep_runs, self._start = planned, keep_runs, start

    def __call__(self, table: pa.Table) -> pa.Table:
        began = time.perf_counter()
        shard = table.column("shard")[0].as_py()
        assert pc.count_distinct(table.column("shard")).as_py() == 1, "two shards in one block"
        tables = flatten(table, self._keep_runs)
        files = {name: write_table(self._storage, name, shard, rows) for name, rows in tables.items() if rows.num_rows}
        counts = count(table, tables, self._planned)
        entries = table.column("costs").combine_chunks().flatten()
        seconds = {"write": time.perf_counter() - began}
        spent = costs.totals(entries)
        manifest = Manifest(shard, self._start, files, counts, spent, seconds, costs.by_start(entries))
        manifest = commit(self._storage, manifest)
        return pa.table({"shard": [shard], "manifest": [json.dumps(asdict(manifest))]}, schema=COMMITTED)


def flatten(table: pa.Table, keep_runs: bool) -> dict[str, pa.Table]:
    """The stored tables of one block of RERANKED rows, in the order of its rows."""
    ids = table.column("query_id").combine_chunks()
    tables = {
        "rewrites": _stored("rewrites", _under(ids, table, "rewrites")),
        "results": _stored("results", _ranked(_under(ids, table, "hits")) | {"arm": ARM}),
        "costs": _stored("costs", _costs(_under(ids, table, "costs"))),
        "errors": _stored("errors", _under(ids, table, "errors")),
    }
    if keep_runs:
        runs = _under(ids, table, "runs")
        tables["runs"] = _stored("runs", _ranked(_nested(runs, "hits")))
    return tables


def count(table: pa.Table, tables: dict[str, pa.Table], planned: int) -> dict[str, int]:
    """What the balance of the run and its closing table are made of, summed over one shard."""
    errors = tables["errors"].select(["query_id", "stage", "component", "reason"]).to_pylist()
    failures = [error for error in errors if error["reason"] not in NOTES]
    counts: Counter[str] = Counter()
    counts["queries"] = table.num_rows
    counts["log_rows"] = pc.sum(table.column("log_count")).as_py()
    counts["planned"] = planned * table.num_rows
    counts["rewrites"] = tables["rewrites"].num_rows
    counts["rewrite_errors"] = sum(error["stage"] == "rewrite" for error in failures)
    counts["results"] = tables["results"].num_rows
    counts["queries_with_results"] = pc.count_distinct(tables["results"].column("query_id")).as_py()
    counts["failed_queries"] = len({error["query_id"] for error in failures})
    for row in tables["rewrites"].group_by(["strategy", "parsed_as"]).aggregate([([], "count_all")]).to_pylist():
        counts[f"rung/{row['strategy']}/{row['parsed_as']}"] += row["count_all"]
    for error in errors:
        counts[f"error/{error['stage']}/{error['component'] or ''}/{error['reason']}"] += 1
    return dict(counts)


Columns = dict[str, Any]


def _under(ids: pa.Array, table: pa.Table, column: str) -> Columns:
    """The structs of a list column as columns, with the query_id of the row that each stands in."""
    lists = table.column(column).combine_chunks()
    flat = lists.flatten()
    columns = {field.name: flat.field(field.name) for field in flat.type}
    return {"query_id": ids.take(pc.list_parent_indices(lists)), "@place": _places(lists)} | columns


def _nested(columns: Columns, column: str) -> Columns:
    """One level deeper: the structs of the list column `column`, with all other columns repeated."""
    lists = columns[column]
    parents = pc.list_parent_indices(lists)
    outer = {name: values.take(parents) for name, values in columns.items() if name != column}
    flat = lists.flatten()
    return outer | {field.name: flat.field(field.name) for field in flat.type} | {"@place": _places(lists)}


def _ranked(columns: Columns) -> Columns:
    return columns | {"rank": pc.add(columns["@place"], 1).cast(pa.int32())}


def _places(lists: pa.ListArray) -> pa.Array:
    """For each flattened item its place in its list, from 0."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    begins = np.repeat(np.cumsum(lengths) - lengths, lengths)
    return pa.array(np.arange(len(begins)) - begins)


def _costs(columns: Columns) -> Columns:
    """What a worker spent on starting up was put on some row, but is no query's cost."""
    own = pc.invert(pc.starts_with(columns["component"], costs.START_UP))
    return columns | {"query_id": pc.if_else(own, columns["query_id"], pa.scalar(None, pa.string()))}


def _stored(name: str, columns: Columns) -> pa.Table:
    schema = STORED[name]
    rows = len(columns["query_id"])
    arrays = []
    for field in schema:
        values = columns.get(field.name)
        if values is None or isinstance(values, str):
            values = pa.repeat(pa.scalar(values, field.type), rows)
        arrays.append(values.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)

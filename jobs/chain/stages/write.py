"""The last stage: writes one shard's rows to the stored tables and commits them with one manifest."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cluster import costs
from cluster.run.shards import File, Manifest, commit, write_table
from cluster.run.stage import shard_of
from cluster.storage import Storage, open_storage
from cluster.storage.traffic import take_traffic
from jobs.chain.chosen import COUNT
from jobs.chain.error_counts import first_failed
from jobs.chain.guard_counts import guard_counts
from jobs.chain.selection_counts import further_texts, not_selected, selection_counts
from jobs.tables import COMMITTED, LOST, NOTES, STORED
from retrievers.ranking import ranks
from rewriters.lengths import longer_cores
from rewriters.reasons import GUARDED

ARM = "run"  # the only arm of a plain run


class Write:
    """A worker of the last stage."""

    NEEDS = ("shard", "query_id", "log_count", "rewrites", "selection", "guarded", "stored", "chosen", "candidates", "hits",
             "costs", "errors", "overhead")  # fmt: skip
    GIVES = COMMITTED

    def __init__(self, run: str, planned: int, start: int, keep_candidates: bool = False) -> None:
        """Opens the run's folder.

        Args:
            run: the run's folder.
            planned: number of planned strategies.
            start: the number of this start of the run, from 1.
            keep_candidates: whether the fused candidates are written, too.
        """
        self._storage = open_storage(run)
        self._planned, self._start, self._keep_candidates = planned, start, keep_candidates

    def __call__(self, table: pa.Table) -> pa.Table:
        """Writes and commits the shard; returns one row of COMMITTED."""
        began = time.perf_counter()
        shard = shard_of(table)
        files = files_before(table)
        tables = flatten(table)
        if self._keep_candidates:
            ids = table.column("query_id").combine_chunks()
            tables["candidates"] = stored_table(STORED["candidates"], flattened(ids, table, "candidates"))
        for name, rows in tables.items():
            if rows.num_rows:
                files[name] = [write_table(self._storage, name, shard, rows)]
        counts = shard_counts(table, tables, self._planned)
        return committed_row(self._storage, table, self._start, files, counts, began)


def files_before(table: pa.Table) -> dict[str, list[File]]:
    """Returns table -> the files that earlier stages have written for a block.

    Raises:
        AssertionError: It holds more than one shard.
    """
    assert pc.count_distinct(table.column("shard")).as_py() == 1, "two shards in one block"
    files: dict[str, list[File]] = {}
    for one in table.column("stored").combine_chunks().flatten().to_pylist():
        files.setdefault(one.pop("table"), []).append(File(**one))
    return files


def committed_row(
    storage: Storage, table: pa.Table, start: int, files: dict[str, list[File]], counts: dict[str, int], began: float
) -> pa.Table:
    """Commits a shard; returns one row of COMMITTED.

    Args:
        storage: the run's folder.
        table: the block.
        start: the number of this start of the run, from 1.
        files: all files of the shard, by table.
        counts: of the shard.
        began: when the stage was given the block, by `time.perf_counter`.
    """
    shard = shard_of(table)
    entries = table.column("costs").combine_chunks().flatten()
    seconds: dict[str, float] = {}
    requests: dict[str, dict[str, float]] = {}
    for one in table.column("overhead").combine_chunks().flatten().to_pylist():
        stage, name, amount = one["stage"], one["quantity"], one["amount"]
        if name == "seconds":
            seconds[stage] = seconds.get(stage, 0.0) + amount
        else:
            own = requests.setdefault(stage, {})
            own[name] = own.get(name, 0) + int(amount)
    if sent := take_traffic():
        requests["write"] = sent
    seconds["write"] = time.perf_counter() - began
    mine = Manifest(
        shard, start, files, counts, costs.totals(entries), seconds, costs.by_start(entries), requests, first_failed(table)
    )
    manifest = commit(storage, mine)
    after = take_traffic()
    for amounts in requests.values() if manifest is not mine else ():
        after = {name: after.get(name, 0) + amounts.get(name, 0) for name in after.keys() | amounts.keys()}
    return pa.table(
        {"shard": [shard], "manifest": [json.dumps(asdict(manifest))], "traffic": [json.dumps(after)]}, schema=COMMITTED
    )


def flatten(table: pa.Table) -> dict[str, pa.Table]:
    """Returns the stored tables of one block by name, in the order of its rows."""
    ids = table.column("query_id").combine_chunks()
    tables = {
        "rewrites": stored_table(STORED["rewrites"], flattened(ids, table, "rewrites")),
        "results": stored_table(STORED["results"], flattened(ids, table, "hits") | {"arm": ARM}),
        "costs": stored_table(STORED["costs"], costs_columns(flattened(ids, table, "costs"))),
        "errors": stored_table(STORED["errors"], flattened(ids, table, "errors")),
    }
    selected = table.filter(pc.is_valid(table.column("selection")))
    if selected.num_rows:
        chosen = selected.column("selection").combine_chunks()
        columns = {field.name: chosen.field(field.name) for field in chosen.type}
        tables["selections"] = stored_table(
            STORED["selections"], {"query_id": selected.column("query_id").combine_chunks()} | columns
        )
    if "scores" in table.column_names:
        tables["scores"] = stored_table(STORED["scores"], flattened(ids, table, "scores"))
    return tables


def shard_counts(table: pa.Table, tables: dict[str, pa.Table], planned: int) -> dict[str, int]:
    """Returns the counts of one shard, as in its manifest: the run's balances and closing table are sums of them.

    Args:
        table: the block.
        tables: its stored tables, from `flatten`.
        planned: number of planned strategies.
    """
    errors = tables["errors"].select(["query_id", "stage", "component", "reason"]).to_pylist()
    failures = [error for error in errors if error["reason"] not in NOTES]
    counts: Counter[str] = Counter()
    counts["queries"] = table.num_rows
    counts["log_rows"] = pc.sum(table.column("log_count")).as_py()
    counts["planned"] = planned * table.num_rows
    counts["rewrites"] = tables["rewrites"].num_rows
    further = further_texts(tables["rewrites"])
    counts["further_texts"] = sum(further.values())
    counts["not_selected"] = not_selected(tables, planned)
    counts.update({f"further_texts/{strategy}": n for strategy, n in further.items()})
    counts.update(selection_counts(tables))
    counts["rewrite_errors"] = sum(error["stage"] == "rewrite" for error in failures)
    counts["guarded"] = sum(error["stage"] == "rewrite" and error["reason"] in GUARDED for error in errors)
    counts["results"] = tables["results"].num_rows
    counts["queries_with_results"] = pc.count_distinct(tables["results"].column("query_id")).as_py()
    counts["longer_cores"] = longer_cores(*(tables["rewrites"].column(n).to_pylist() for n in ("query_id", "strategy", "text")))
    for row in tables["rewrites"].group_by(["strategy", "parsed_as"]).aggregate([([], "count_all")]).to_pylist():
        counts[f"rung/{row['strategy']}/{row['parsed_as']}"] += row["count_all"]
    counts.update(guard_counts(table, tables["rewrites"]))
    chosen = table.column("chosen").combine_chunks().drop_null()
    counts.update(f"{COUNT}/{strategy}" for strategy in chosen.field("strategy").to_pylist())
    counts.update(loss_counts(tables))
    return dict(counts)


def loss_counts(tables: Mapping[str, pa.Table]) -> Counter[str]:
    """Returns the counts of a shard's errors, of the queries that failed, and of requests whose answers were lost.

    Args:
        tables: with the stored tables `errors` and `costs` of the shard.
    """
    errors = tables["errors"].select(["query_id", "stage", "component", "reason"]).to_pylist()
    counts: Counter[str] = Counter()
    counts["failed_queries"] = len({error["query_id"] for error in errors if error["reason"] not in NOTES})
    counts["lost_requests"] = sum(
        cost["requests"] for cost in tables["costs"].select(["error", "requests"]).to_pylist() if cost["error"] == LOST
    )
    for error in errors:
        counts[f"error/{error['stage']}/{error['component'] or ''}/{error['reason']}"] += 1
    for _, stage, reason in {(error["query_id"], error["stage"], error["reason"]) for error in errors}:
        counts[f"error_queries/{stage}/{reason}"] += 1  # one answer may fail several strategies
    return counts


Columns = dict[str, Any]


def flattened(ids: pa.Array, table: pa.Table, column: str) -> Columns:
    """Returns the structs of a list column as columns, with the query_id of their row and their rank in it, from 1."""
    lists = table.column(column).combine_chunks()
    flat = lists.flatten()
    columns = {field.name: flat.field(field.name) for field in flat.type}
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return {"query_id": ids.take(pc.list_parent_indices(lists)), "rank": pa.array(ranks(lengths))} | columns


def costs_columns(columns: Columns) -> Columns:
    """Returns the columns of costs/ with a null query_id for start-up costs, which belong to no query."""
    own = pc.invert(pc.starts_with(columns["component"], costs.START_UP))
    return columns | {"query_id": pc.if_else(own, columns["query_id"], pa.scalar(None, pa.string()))}


def stored_table(schema: pa.Schema, columns: Columns) -> pa.Table:
    """Returns a stored table; a column that is not given is null, one that is a string has it in every row."""
    rows = len(columns["query_id"])
    arrays = []
    for field in schema:
        values = columns.get(field.name)
        if values is None or isinstance(values, str):
            values = pa.repeat(pa.scalar(values, field.type), rows)
        arrays.append(values.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)

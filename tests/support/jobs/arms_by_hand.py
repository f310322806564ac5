"""An ablation's folder, written by hand: no stage, no Ray."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.run.shards import SUCCESS, File, Manifest, Plan, Shard, commit, put_plan, write_table
from cluster.storage.files import FileStorage
from jobs.config.config import Config
from jobs.runs.folder import RunFolder, open_run
from jobs.tables import OPTIONAL_QUERIES, STORED

Row = dict[str, Any]
Lists = Mapping[str, Sequence[str]]  # query_id -> doc_ids, best first

SETTINGS: Row = {
    "name": "made",
    "output": "none",
    "log": {"path": "none", "query_column": "query"},
    "rewrite": {"strategies": []},
    "retrieve": {"retrievers": {"bm25": {"kind": "local", "index": "none"}}},
    "rerank": {"kind": "none"},
}


def arm(name: str, family: str = "always", **more: Any) -> Row:
    """An arm as run.json has it."""
    made = {"name": name, "family": family, "strategies": [], "original": True, "changes": {}, "k": None, "members": []}
    return made | {"cut_from": 30} | more


def ask(query_id: str, query: str, log_count: int = 1, **more: Any) -> Row:
    """A row of queries/."""
    return {"query_id": query_id, "query": query, "normalised": query.casefold(), "log_count": log_count} | more


def ablation(
    folder: Path,
    arms: Sequence[Row],
    lists: Mapping[str, Lists],
    queries: Sequence[Row],
    log_map: Sequence[tuple[str, str | None]] | None = None,
    *,
    selections: Sequence[Row] = (),
    shard_size: int = 2,
    commits: int | None = None,
    **settings: Any,
) -> RunFolder:
    """Writes the folder of an ablation and opens it.

    Args:
        folder: where.
        arms: those of `arm`.
        lists: arm -> query_id -> doc_ids.
        queries: rows of queries/.
        log_map: log_id and query_id; by default each query's log_id is its query_id in capitals.
        selections: rows of selections/, all written with the first shard.
        shard_size: queries per shard.
        commits: shards that are committed; by default all.
        settings: sections of the config.
    """
    storage = FileStorage(str(folder / "made-0123456789ab"))
    schema = STORED["queries"]
    for field in OPTIONAL_QUERIES:
        schema = schema.append(field) if any(field.name in row for row in queries) else schema
    asked = _put(storage, "queries", pa.Table.from_pylist(list(queries), schema), shard_size)
    pairs = [(row["query_id"].upper(), row["query_id"]) for row in queries] if log_map is None else log_map
    rows = [{"log_id": log_id, "query_id": query_id} for log_id, query_id in pairs]
    mapped = _put(storage, "query_map", pa.Table.from_pylist(rows, STORED["query_map"]), 1000)
    sizes = [len(queries[begin : begin + shard_size]) for begin in range(0, len(queries), shard_size)]
    shards = [Shard(number, asked.key, number, size) for number, size in enumerate(sizes)]
    plan = put_plan(storage, Plan([], {}, shard_size, {"queries": [asked], "query_map": [mapped]}, shards))
    for shard in plan.shards[:commits]:
        mine = queries[shard.number * shard_size : (shard.number + 1) * shard_size]
        found = [row for name, of in lists.items() for one in mine for row in _results(name, one["query_id"], of)]
        files = {"results": [write_table(storage, "results", shard.number, pa.Table.from_pylist(found, STORED["results"]))]}
        if selections and shard.number == 0:
            wide = STORED["selections"].append(pa.field("arm", pa.string()))
            files["selections"] = [write_table(storage, "selections", 0, pa.Table.from_pylist(list(selections), wide))]
        commit(storage, Manifest(shard.number, 1, files, {}, {}))
    config = Config.model_validate(SETTINGS | settings)
    record = {"run_id": "made-0123456789ab", "status": "finished", "config": config.model_dump(), "indexes": {}}
    storage.put("run.json", json.dumps(record | {"ablation": {"arms": list(arms)}}).encode())
    if commits is None:
        storage.put(SUCCESS, b"{}")
    return open_run(storage.root)


def _results(name: str, query_id: str, lists: Lists) -> list[Row]:
    return [
        {"query_id": query_id, "arm": name, "rank": rank, "doc_id": doc_id, "score": 1.0 / rank, "fused_score": 1.0 / rank}
        for rank, doc_id in enumerate(lists.get(query_id, ()), 1)
    ]


def _put(storage: FileStorage, table: str, rows: pa.Table, group: int) -> File:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, row_group_size=group)
    storage.put(f"{table}/plan.parquet", sink.getvalue().to_pybytes())
    return File(f"{table}/plan.parquet", rows.num_rows, sink.getvalue().size)

"""Folders of ablations and plain runs, written by hand: their lists, candidates, results, scores and costs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.costs import Totals
from cluster.run.shards import SUCCESS, File, Manifest, Plan, Shard, commit, put_plan, write_table
from cluster.storage import Storage
from cluster.storage.files import FileStorage
from jobs.config.config import Config
from jobs.runs.folder import RunFolder, open_run
from jobs.tables import STORED

Row = dict[str, Any]
ENCODER = {"model": "models/small"}
SCHEMAS = STORED | {
    "candidates": pa.schema(
        [("query_id", pa.string()), ("rank", pa.int32()), ("doc_id", pa.string()), ("score", pa.float64())]
    ),
    "scores in an ablation": pa.schema([*STORED["scores"], ("reranker", pa.string())]),
    "rewrites in an ablation": pa.schema([*STORED["rewrites"], ("arm", pa.string())]),
}


def query_ids(count: int) -> list[str]:
    return [f"{n:032x}" for n in range(count)]


def list_row(query_id: str, strategy: str, retriever: str, doc_ids: Sequence[str], position: int = 1) -> list[Row]:
    """The rows of runs/ of one list."""
    return [
        {"query_id": query_id, "strategy": strategy, "position": position, "retriever": retriever, "doc_id": doc_id,
         "rank": rank, "score": 100.0 - rank}
        for rank, doc_id in enumerate(doc_ids, start=1)
    ]  # fmt: skip


def ranked(query_id: str, doc_ids: Sequence[str], **more: Any) -> list[Row]:
    """Rows of results/ or candidates/ of one query."""
    return [
        {"query_id": query_id, "rank": rank, "doc_id": doc_id, "score": -float(rank)} | more
        for rank, doc_id in enumerate(doc_ids, start=1)
    ]


def write_folder(
    folder: Path,
    tables: Mapping[str, Sequence[Row]],
    *,
    queries: int,
    strategies: Sequence[str] = ("general", "keyword"),
    shard_size: int = 2,
    committed: int | None = None,
    arms: Sequence[Row] | None = None,
    counts: Mapping[str, int] | None = None,
    costs: Totals | None = None,
    **settings: Any,
) -> RunFolder:
    """Writes and opens a folder whose log has the rows L0, L1, ... with one query each.

    Args:
        folder: Where the run's folder is made.
        tables: Rows of the tables that shards write; each goes to the shard of its query.
        queries: Number of queries.
        strategies: The pool.
        shard_size: Queries per shard.
        committed: Number of shards with a manifest; None: all.
        arms: Of an ablation; None: a plain run.
        counts: More counts, of the first shard's manifest.
        costs: Of the first shard.
        **settings: More sections of the config.
    """
    values: Row = {
        "name": "small", "output": str(folder), "log": {"path": "log.parquet", "query_column": "query"},
        "rewrite": {"engine": {"kind": "recorded", "path": "r.jsonl"}, "strategies": list(strategies)},
        "retrieve": {"retrievers": {name: {"kind": "local", "index": "nowhere"} for name in ("bm25", "dense")}},
        "rerank": {"kind": "none"},
    } | settings  # fmt: skip
    config = Config.model_validate(values)
    storage = FileStorage(str(folder / "small-0123456789ab"))
    ids = query_ids(queries)
    _plan(storage, ids, shard_size)
    shards = [ids[begin : begin + shard_size] for begin in range(0, queries, shard_size)]
    for number, members in enumerate(shards[:committed]):
        files = {
            name: [write_table(storage, name, number, mine)]
            for name, rows in tables.items()
            if (mine := _table(name, [row for row in rows if row["query_id"] in members], ablation=arms is not None)).num_rows
        }
        more = (counts or {}) if number == 0 else {}
        commit(storage, Manifest(number, 1, files, {"queries": len(members), **more}, (costs or {}) if number == 0 else {}))
    record: Row = {"run_id": "small-0123456789ab", "status": "finished", "config": config.model_dump(), "starts": []}
    if arms is not None:
        record["ablation"] = {"arms": list(arms), "shared": {"naive": {}, "executed": {}}}
    storage.put("run.json", json.dumps(record).encode())
    if committed is None:
        storage.put(SUCCESS, b"{}")
    return open_run(storage.root)


def arm(name: str, family: str = "always", *, members: Sequence[str] = (), reranker: str | None = None) -> Row:
    return {
        "name": name, "family": family, "strategies": [], "original": True, "changes": {}, "k": len(members) or None,
        "members": list(members), "reranker": reranker,
    }  # fmt: skip


def _table(name: str, rows: list[Row], *, ablation: bool) -> pa.Table:
    schema = SCHEMAS[f"{name} in an ablation" if ablation and f"{name} in an ablation" in SCHEMAS else name]
    return pa.Table.from_pylist(rows, schema)


def _plan(storage: Storage, ids: Sequence[str], shard_size: int) -> None:
    rows = [{"query_id": one, "query": f"query {n}", "normalised": f"query {n}", "log_count": 1} for n, one in enumerate(ids)]
    log = [{"log_id": f"L{n}", "query_id": one} for n, one in enumerate(ids)]
    files = {"queries": [_put(storage, "queries", rows, shard_size)], "query_map": [_put(storage, "query_map", log, 100)]}
    key = files["queries"][0].key
    groups = range(0, len(ids), shard_size)
    shards = [Shard(n, key, n, len(ids[begin : begin + shard_size])) for n, begin in enumerate(groups)]
    counts = {"log_rows": len(ids), "queries": len(ids), "rejected": 0}
    put_plan(storage, Plan([{"path": "log.parquet", "size": 9, "mtime_ns": 1}], counts, shard_size, files, shards))


def _put(storage: Storage, table: str, rows: list[Row], group: int) -> File:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, STORED[table]), sink, row_group_size=group)
    key = f"{table}/plan.parquet"
    storage.put(key, sink.getvalue().to_pybytes())
    return File(key, len(rows), sink.getvalue().size)

"""Folders of ablations and plain runs, written by hand: no stage, no Ray."""

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
from jobs.tables import OPTIONAL_QUERIES, STORED

Row = dict[str, Any]
Lists = Mapping[str, Sequence[str]]  # query_id -> doc_ids, best first
START: Row = {
    "start": 1, "began": "2026-03-01T01:02:03Z", "wall_seconds": 75.0, "status": "finished", "task_slots": 4, "outages": [],
    "queued": {}, "pools": {"rewrite": {"workers": 2, "cpus": 1, "gpus": 0.0}},
    "resources": {"nodes": 1, "cpus": 4.0, "gpus": 0.0},
}  # fmt: skip
ARM = pa.field("arm", pa.string())
SCHEMAS = STORED | {
    "candidates": pa.schema(
        [("query_id", pa.string()), ("rank", pa.int32()), ("doc_id", pa.string()), ("score", pa.float64())]
    ),
    "scores in an ablation": STORED["scores"].append(pa.field("reranker", pa.string())),
    "rewrites in an ablation": STORED["rewrites"].append(ARM),
    "selections in an ablation": STORED["selections"].append(ARM),
}


def query_ids(count: int) -> list[str]:
    return [f"{n:032x}" for n in range(count)]


def ask(query_id: str, query: str, log_count: int = 1, **more: Any) -> Row:
    """A row of queries/."""
    return {"query_id": query_id, "query": query, "normalised": query.casefold(), "log_count": log_count} | more


def arm(name: str, family: str = "always", **more: Any) -> Row:
    """An arm as run.json has it."""
    k = len(more.get("members", ())) or None
    made = {"name": name, "family": family, "strategies": [], "original": True, "changes": {}, "k": k, "members": []}
    return made | {"cut_from": 30, "reranker": None} | more


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


def ablation(
    folder: Path,
    arms: Sequence[Row],
    lists: Mapping[str, Lists],
    queries: Sequence[Row],
    log_map: Sequence[tuple[str, str | None]] | None = None,
    *,
    selections: Sequence[Row] | None = None,
    **more: Any,
) -> RunFolder:
    """Writes and opens the folder of an ablation with these results: arm -> query_id -> doc_ids; `more`: of `write_folder`.

    By default a query's log_id is its query_id in capitals.
    """
    results = [row for name, of in lists.items() for key, ids in of.items() for row in ranked(key, ids, arm=name)]
    pairs = [(row["query_id"].upper(), row["query_id"]) for row in queries] if log_map is None else log_map
    tables = {"results": [row | {"fused_score": row["score"]} for row in results], "selections": selections or ()}
    sections = {"retrieve": {"retrievers": {"bm25": {"kind": "local", "index": "none"}}}} | more
    return write_folder(folder, tables, queries=queries, log_map=pairs, strategies=(), arms=arms, **sections)


def write_folder(
    folder: Path,
    tables: Mapping[str, Sequence[Row]],
    *,
    queries: int | Sequence[Row],
    log_map: Sequence[tuple[str, str | None]] | None = None,
    strategies: Sequence[str] = ("general", "keyword"),
    shard_size: int = 2,
    committed: int | None = None,
    arms: Sequence[Row] | None = None,
    counts: Mapping[str, int] | None = None,
    costs: Totals | None = None,
    **settings: Any,
) -> RunFolder:
    """Writes and opens the folder of a run.

    Args:
        folder: Where the run's folder is made.
        tables: Rows of the tables that shards write; each goes to the shard of its query.
        queries: Rows of `ask`, or a number of queries.
        log_map: log_id and query_id; None: the rows L0, L1, ... with one query each.
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
    if isinstance(queries, int):
        queries = [ask(key, f"query {n}") for n, key in enumerate(query_ids(queries))]
    ids = [row["query_id"] for row in queries]
    _plan(storage, queries, [(f"L{n}", key) for n, key in enumerate(ids)] if log_map is None else log_map, shard_size)
    shards = [ids[begin : begin + shard_size] for begin in range(0, len(ids), shard_size)]
    for number, members in enumerate(shards[:committed]):
        files = {
            name: [write_table(storage, name, number, mine)]
            for name, rows in tables.items()
            if (mine := _table(name, [row for row in rows if row["query_id"] in members], ablation=arms is not None)).num_rows
        }
        more = (counts or {}) if number == 0 else {}
        commit(storage, Manifest(number, 1, files, {"queries": len(members), **more}, (costs or {}) if number == 0 else {}))
    record: Row = {
        "run_id": "small-0123456789ab", "status": "finished", "config": config.model_dump(), "config_file": "small.yaml",
        "versions": {"python": "3.11", "vllm": None}, "indexes": {}, "starts": [START],
    }  # fmt: skip
    if arms is not None:
        record["ablation"] = {"arms": list(arms), "shared": {"naive": {}, "executed": {}}}
    storage.put("run.json", json.dumps(record).encode())
    if committed is None:
        storage.put(SUCCESS, b"{}")
    return open_run(storage.root)


def _table(name: str, rows: list[Row], *, ablation: bool) -> pa.Table:
    schema = SCHEMAS[f"{name} in an ablation" if ablation and f"{name} in an ablation" in SCHEMAS else name]
    return pa.Table.from_pylist(rows, schema)


def _plan(storage: Storage, queries: Sequence[Row], log_map: Sequence[tuple[str, str | None]], shard_size: int) -> None:
    schema = pa.schema([*STORED["queries"], *(one for one in OPTIONAL_QUERIES if any(one.name in row for row in queries))])
    log = [{"log_id": log_id, "query_id": query_id} for log_id, query_id in log_map]
    asked = _put(storage, "queries", pa.Table.from_pylist(list(queries), schema), shard_size)
    files = {
        "queries": [asked],
        "query_map": [_put(storage, "query_map", pa.Table.from_pylist(log, STORED["query_map"]), 1000)],
    }
    begins = range(0, len(queries), shard_size)
    shards = [Shard(n, asked.key, n, len(queries[begin : begin + shard_size])) for n, begin in enumerate(begins)]
    counts = {"log_rows": len(log), "queries": len(queries), "rejected": 0}
    put_plan(storage, Plan([{"path": "log.parquet", "size": 9, "mtime_ns": 1}], counts, shard_size, files, shards))


def _put(storage: Storage, table: str, rows: pa.Table, group: int) -> File:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, row_group_size=group)
    key = f"{table}/plan.parquet"
    storage.put(key, sink.getvalue().to_pybytes())
    return File(key, rows.num_rows, sink.getvalue().size)

"""Flattening a block into the stored tables, against plain Python; counting it; committing it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.costs import START_UP, entry
from cluster.shards import manifests, read_manifest
from cluster.storage import open_storage
from jobs.tables import COMMITTED, QUERIES, RERANKED, STORED, with_appended
from jobs.write import Write, count, flatten

NAMES = st.sampled_from(["original", "general", "keyword"])
RETRIEVERS = st.sampled_from(["bm25", "dense"])
DOCS = st.sampled_from(["d1", "d2", "東京"])
SCORES = st.floats(-5, 5)
TEXTS = st.none() | st.text(max_size=8)
Row = dict[str, Any]


def struct(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(fields)


def some(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(items, max_size=3)


SOURCES = some(struct(strategy=NAMES, position=st.just(1), retriever=RETRIEVERS, rank=st.integers(1, 9), score=SCORES))
COST_ENTRIES = st.builds(
    lambda component, seconds: entry("rewrite", component, seconds, start=1), st.sampled_from(["dmqr", START_UP]), SCORES
)
ROW = struct(
    shard=st.just(4),
    query_id=st.text("abc0", min_size=1, max_size=3),
    query=st.text(max_size=5),
    log_count=st.integers(1, 9),
    costs=some(COST_ENTRIES),
    errors=some(
        struct(
            stage=st.sampled_from(["rewrite", "fuse"]), component=NAMES | st.none(),
            reason=st.sampled_from(["truncated", "no_hits", "original_stands_in"]), message=TEXTS, raw=TEXTS,
            attempts=st.integers(1, 2),
        )
    ),
    rewrites=some(
        struct(
            strategy=NAMES, position=st.just(1), text=st.text(max_size=5), weight=SCORES, model=st.just("m"),
            prompt_hash=st.just("h"), parsed_as=st.sampled_from(["json", "salvage"]), selected_reason=st.none(),
        )
    ),
    runs=some(
        struct(strategy=NAMES, position=st.just(1), retriever=RETRIEVERS, hits=some(struct(doc_id=DOCS, score=SCORES)))
    ),
    similarity=st.none() | st.just([1.0]),
    candidates=some(struct(doc_id=DOCS, score=SCORES, sources=SOURCES)),
    hits=some(struct(doc_id=DOCS, score=SCORES, fused_score=SCORES, sources=SOURCES)),
)  # fmt: skip
ROWS = st.lists(ROW, min_size=1, max_size=5, unique_by=lambda row: row["query_id"])


def block(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, RERANKED)


def oracle(rows: list[Row]) -> dict[str, list[Row]]:
    """The stored rows by nested loops."""
    tables: dict[str, list[Row]] = {name: [] for name in ("rewrites", "runs", "results", "costs", "errors")}
    for row in rows:
        query = {"query_id": row["query_id"]}
        tables["rewrites"] += [query | one for one in row["rewrites"]]
        tables["errors"] += [query | {"log_id": None} | one for one in row["errors"]]
        for one in row["costs"]:
            tables["costs"].append({"query_id": None if one["component"] == START_UP else row["query_id"]} | one)
        for run in row["runs"]:
            kept = {name: run[name] for name in ("strategy", "position", "retriever")}
            tables["runs"] += [query | kept | hit | {"rank": rank} for rank, hit in enumerate(run["hits"], 1)]
        tables["results"] += [query | {"arm": "run", "rank": rank} | hit for rank, hit in enumerate(row["hits"], 1)]
    return tables


@given(ROWS)
def test_flatten_is_what_nested_loops_give(rows: list[Row]) -> None:
    tables = flatten(block(rows), keep_runs=True)
    assert {name: table.to_pylist() for name, table in tables.items()} == oracle(rows)
    assert all(table.schema == STORED[name] for name, table in tables.items())


@given(ROWS, st.integers(0, 4))
def test_how_a_block_is_cut_in_memory_makes_no_difference(rows: list[Row], cut: int) -> None:
    cut = min(cut, len(rows) - 1)
    chunked = pa.concat_tables([block(rows[:1]), block(rows[:cut]), block(rows[cut:])]).slice(1)
    assert {name: table.to_pylist() for name, table in flatten(chunked, True).items()} == oracle(rows)


def test_runs_are_left_out_where_they_are_not_kept() -> None:
    row = {"shard": 0, "query_id": "a", "query": "", "log_count": 1, "costs": [], "errors": [], "rewrites": [], "hits": []}
    row |= {"runs": [{"strategy": "original", "position": 1, "retriever": "r", "hits": []}], "candidates": []}
    assert "runs" not in flatten(block([row]), keep_runs=False)


@given(ROWS, st.integers(0, 4))
def test_counts_are_the_sums_of_the_rows(rows: list[Row], planned: int) -> None:
    table = block(rows)
    found = count(table, flatten(table, True), planned)
    flat = oracle(rows)
    failures = [one for one in flat["errors"] if one["reason"] == "truncated"]  # the other reasons are notes
    assert found["queries"] == len(rows)
    assert found["log_rows"] == sum(row["log_count"] for row in rows)
    assert found["planned"] == planned * len(rows)
    assert found["rewrites"] == len(flat["rewrites"])
    assert found["rewrite_errors"] == sum(one["stage"] == "rewrite" for one in failures)
    assert found["results"] == len(flat["results"])
    assert found["queries_with_results"] == len({one["query_id"] for one in flat["results"]})
    assert found["failed_queries"] == len({one["query_id"] for one in failures})
    rungs = Counter(f"rung/{one['strategy']}/{one['parsed_as']}" for one in flat["rewrites"])
    reasons = Counter(f"error/{one['stage']}/{one['component'] or ''}/{one['reason']}" for one in flat["errors"])
    assert {name: n for name, n in found.items() if "/" in name} == rungs | reasons


# ---------------------------------------------------------------- the worker


def stored(folder: Path, table: str) -> list[Row]:
    rows: list[Row] = []
    for path in sorted(folder.glob(f"{table}/*.parquet")):
        rows += pq.read_table(path).to_pylist()
    return rows


@settings(max_examples=10)
@given(rows=ROWS)
def test_what_is_committed_is_what_was_given(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]) -> None:
    folder = tmp_path_factory.mktemp("run")
    (answer,) = Write(str(folder), planned=2, keep_runs=True, start=3)(block(rows)).to_pylist()
    manifest = read_manifest(answer["manifest"])
    assert (answer["shard"], manifest.shard, manifest.start) == (4, 4, 3)
    assert list(manifests(open_storage(str(folder)))) == [manifest]
    for table, wanted in oracle(rows).items():
        assert stored(folder, table) == wanted
        assert (table in manifest.files) == bool(wanted)  # a table without rows has no file
        assert not wanted or manifest.files[table].rows == len(wanted)
    spent = sum(one.get("seconds", 0) for stage in manifest.costs.values() for one in stage.values())
    assert spent == pytest.approx(sum(one["seconds"] for row in rows for one in row["costs"]))
    assert manifest.seconds["write"] > 0


ONE = {
    "shard": 4, "query_id": "a", "query": "q", "log_count": 1, "costs": [entry("rewrite", "dmqr", 1.0, start=1)], "errors": [],
    "rewrites": [], "runs": [], "similarity": None, "candidates": [],
    "hits": [{"doc_id": "d", "score": 1.0, "fused_score": 1.0, "sources": []}],
}  # fmt: skip


def test_a_shard_that_is_written_twice_counts_once(tmp_path: Path) -> None:
    first = Write(str(tmp_path), 0, True, 1)(block([ONE]))
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    second = Write(str(tmp_path), 0, True, 2)(block([ONE]))
    assert json.loads(second.column("manifest")[0].as_py()) == json.loads(first.column("manifest")[0].as_py())
    assert second.schema == COMMITTED
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == files


# ---------------------------------------------------------------- tables


def test_appending_keeps_what_was_there_and_the_schema() -> None:
    row = {"shard": 1, "query_id": "a", "query": "q", "log_count": 1, "costs": [entry("s", "old")], "errors": []}
    table = pa.Table.from_pylist([row, row | {"query_id": "b", "costs": []}], QUERIES)
    after = with_appended(table, "costs", [[entry("s", "new")], [entry("s", "x"), entry("s", "y")]])
    assert after.schema == QUERIES
    assert [[one["component"] for one in costs] for costs in after.column("costs").to_pylist()] == [["old", "new"], ["x", "y"]]
    assert after.drop_columns("costs") == table.drop_columns("costs")

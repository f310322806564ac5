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
from in_flight import ORDERED, UNSCORED

from cluster.costs import START_UP, entry
from cluster.run.shards import File, manifests, read_manifest, write_table
from cluster.storage import open_storage
from jobs.chain.stages.write import Write, flatten, shard_counts
from jobs.tables import COMMITTED, QUERIES, STORED, with_appended

NAMES = st.sampled_from(["original", "core_content", "keyword"])
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
            reason=st.sampled_from(["truncated", "no_hits", "original_stands_in", "near_duplicate"]), message=TEXTS, raw=TEXTS,
            attempts=st.integers(1, 2),
        )
    ),
    rewrites=some(
        struct(
            strategy=NAMES, position=st.just(1), text=st.text("ab ", max_size=5), weight=SCORES,
            search_as=st.sampled_from(["query", "passage"]), model=st.just("m"),
            prompt_hash=st.just("h"), parsed_as=st.sampled_from(["json", "salvage"]), selected_reason=st.none(),
            position_weight=SCORES,
            guards=st.lists(st.sampled_from(["lost_name", "near_duplicate"]), unique=True),
        )
    ),
    guarded=some(struct(strategy=NAMES, guard=st.just("near_duplicate"), texts=st.just(2), unsearched=st.integers(0, 1),
                        requests=st.integers(0, 1))),
    stored=st.just([]),
    candidates=some(struct(doc_id=DOCS, score=SCORES, sources=SOURCES)),
    scores=st.none() | some(struct(doc_id=DOCS, model=st.just("r"), score=SCORES)),
    hits=some(struct(doc_id=DOCS, score=SCORES, fused_score=SCORES, rerank_score=SCORES | st.none(), sources=SOURCES)),
)  # fmt: skip
ROWS = st.lists(ROW, min_size=1, max_size=5, unique_by=lambda row: row["query_id"])


def block(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, ORDERED)


def oracle(rows: list[Row]) -> dict[str, list[Row]]:
    """The stored rows by nested loops."""
    tables: dict[str, list[Row]] = {name: [] for name in ("rewrites", "results", "costs", "errors", "scores")}
    for row in rows:
        query = {"query_id": row["query_id"]}
        tables["rewrites"] += [query | one for one in row["rewrites"]]
        tables["errors"] += [query | {"log_id": None} | one for one in row["errors"]]
        for one in row["costs"]:
            tables["costs"].append({"query_id": None if one["component"] == START_UP else row["query_id"]} | one)
        tables["scores"] += [query | one for one in row["scores"] or []]
        tables["results"] += [query | {"arm": "run", "rank": rank} | hit for rank, hit in enumerate(row["hits"], 1)]
    return tables


@given(ROWS)
def test_flatten_is_what_nested_loops_give(rows: list[Row]) -> None:
    tables = flatten(block(rows))
    assert {name: table.to_pylist() for name, table in tables.items()} == oracle(rows)
    assert all(table.schema == STORED[name] for name, table in tables.items())


@given(ROWS, st.integers(0, 4))
def test_how_a_block_is_cut_in_memory_makes_no_difference(rows: list[Row], cut: int) -> None:
    cut = min(cut, len(rows) - 1)
    chunked = pa.concat_tables([block(rows[:1]), block(rows[:cut]), block(rows[cut:])]).slice(1)
    assert {name: table.to_pylist() for name, table in flatten(chunked).items()} == oracle(rows)


@given(ROWS)
def test_where_there_is_no_reranker_there_are_no_scores(rows: list[Row]) -> None:
    tables = flatten(pa.Table.from_pylist(rows, UNSCORED))
    assert {name: table.to_pylist() for name, table in tables.items()} == without(oracle(rows), "scores")


def without(tables: dict[str, list[Row]], *names: str) -> dict[str, list[Row]]:
    return {name: rows for name, rows in tables.items() if name not in names}


def cores_and_keywords(row: Row) -> list[list[str]]:
    """The words of its texts by each of the two."""
    return [[one["text"].split() for one in row["rewrites"] if one["strategy"] == name] for name in ("core_content", "keyword")]


@given(ROWS, st.integers(0, 4))
def test_counts_are_the_sums_of_the_rows(rows: list[Row], planned: int) -> None:
    table = block(rows)
    found = shard_counts(table, flatten(table), planned)
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
    assert found["longer_cores"] == sum(
        max(map(len, core), default=0) > max(map(len, keys)) for core, keys in map(cores_and_keywords, rows) if keys
    )
    rungs = Counter(f"rung/{one['strategy']}/{one['parsed_as']}" for one in flat["rewrites"])
    reasons = Counter(f"error/{one['stage']}/{one['component'] or ''}/{one['reason']}" for one in flat["errors"])
    failing = {(one["query_id"], one["stage"], one["reason"]) for one in flat["errors"]}
    queries = Counter(f"error_queries/{stage}/{reason}" for _, stage, reason in failing)
    flags = Counter(f"guard/{one['strategy']}/{flag}" for one in flat["rewrites"] for flag in one["guards"])
    left: Counter[str] = Counter()
    for one in (one for row in rows for one in row["guarded"]):
        left[f"left_out/{one['strategy']}/near_duplicate"] += 2
        left[f"unsearched/{one['strategy']}"] += one["unsearched"]
    texts = Counter((one["query_id"], one["strategy"]) for one in flat["rewrites"])
    further: Counter[str] = Counter()
    for (_, strategy), n in texts.items():
        further[f"further_texts/{strategy}"] += n - 1
    assert {name: n for name, n in found.items() if "/" in name} == rungs | reasons | queries | flags | +left | further
    assert found.get("override_requests", 0) == sum(one["requests"] for row in rows for one in row["guarded"])
    assert found["guarded"] == sum(one["stage"] == "rewrite" and one["reason"] == "near_duplicate" for one in flat["errors"])


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
    (answer,) = Write(str(folder), planned=2, start=3)(block(rows)).to_pylist()
    manifest = read_manifest(answer["manifest"])
    assert (answer["shard"], manifest.shard, manifest.start) == (4, 4, 3)
    assert list(manifests(open_storage(str(folder)))) == [manifest]
    for table, wanted in oracle(rows).items():
        assert stored(folder, table) == wanted
        assert (table in manifest.files) == bool(wanted)  # a table without rows has no file
        assert not wanted or [file.rows for file in manifest.files[table]] == [len(wanted)]
    spent = sum(one.get("seconds", 0) for stage in manifest.costs.values() for one in stage.values())
    assert spent == pytest.approx(sum(one["seconds"] for row in rows for one in row["costs"]))
    assert manifest.seconds["write"] > 0


ONE = {
    "shard": 4, "query_id": "a", "query": "q", "log_count": 1, "costs": [entry("rewrite", "dmqr", 1.0, start=1)], "errors": [],
    "rewrites": [], "stored": [], "candidates": [], "scores": [],
    "hits": [{"doc_id": "d", "score": 1.0, "fused_score": 1.0, "rerank_score": None, "sources": []}],
}  # fmt: skip


@given(rows=ROWS)
@settings(max_examples=10)
def test_candidates_are_written_where_they_are_to_be_kept(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]) -> None:
    folder = tmp_path_factory.mktemp("run")
    Write(str(folder), 2, 3, keep_candidates=True)(block(rows))
    assert stored(folder, "candidates") == [
        {"query_id": row["query_id"], "rank": rank, "doc_id": one["doc_id"], "score": one["score"]}
        for row in rows for rank, one in enumerate(row["candidates"], start=1)
    ]  # fmt: skip


def test_a_shard_that_is_written_twice_counts_once(tmp_path: Path) -> None:
    first = Write(str(tmp_path), 0, 1)(block([ONE]))
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    second = Write(str(tmp_path), 0, 2)(block([ONE]))
    assert json.loads(second.column("manifest")[0].as_py()) == json.loads(first.column("manifest")[0].as_py())
    assert second.schema == COMMITTED
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == files


def lists(folder: Path, *doc_ids: str) -> Row:
    """Writes a file of runs/ as the retrieval stage does; what it says of it in `stored`."""
    rows = [
        {"query_id": "a", "strategy": "original", "position": 1, "retriever": "r", "doc_id": doc_id, "rank": 1, "score": 1.0}
        for doc_id in doc_ids
    ]
    file = write_table(open_storage(str(folder)), "runs", 4, pa.Table.from_pylist(rows, STORED["runs"]))
    return {"table": "runs"} | file._asdict()


def test_what_earlier_stages_have_written_is_named_however_many_files_it_is(tmp_path: Path) -> None:
    one, two, three = lists(tmp_path, "x"), lists(tmp_path, "y", "z"), lists(tmp_path)
    rows = [ONE | {"stored": [one, two]}, ONE | {"query_id": "b", "stored": []}, ONE | {"query_id": "c", "stored": [three]}]
    (answer,) = Write(str(tmp_path), 0, 1)(block(rows)).to_pylist()
    manifest = read_manifest(answer["manifest"])
    assert manifest.files["runs"] == [File(file["key"], file["rows"], file["size"]) for file in (one, two, three)]
    assert [file.rows for file in manifest.files["runs"]] == [1, 2, 0]
    assert sorted(manifest.files) == ["costs", "results", "runs"]


def test_lists_of_an_attempt_that_came_too_late_go(tmp_path: Path) -> None:
    first, second = lists(tmp_path, "x"), lists(tmp_path, "x")
    Write(str(tmp_path), 0, 1)(block([ONE | {"stored": [first]}]))
    Write(str(tmp_path), 0, 2)(block([ONE | {"stored": [second]}]))
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.glob("runs/*")] == [first["key"]]


# ---------------------------------------------------------------- tables


def test_appending_keeps_what_was_there_and_the_schema() -> None:
    row = {"shard": 1, "query_id": "a", "query": "q", "log_count": 1, "costs": [entry("s", "old")], "errors": []}
    table = pa.Table.from_pylist([row, row | {"query_id": "b", "costs": []}], QUERIES)
    after = with_appended(table, "costs", [[entry("s", "new")], [entry("s", "x"), entry("s", "y")]])
    assert after.schema == QUERIES
    assert [[one["component"] for one in costs] for costs in after.column("costs").to_pylist()] == [["old", "new"], ["x", "y"]]
    assert after.drop_columns("costs") == table.drop_columns("costs")

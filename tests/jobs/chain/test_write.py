"""The first and the last stage: reading a shard; flattening a block into the stored tables, counting it, committing it."""

import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.costs import START_UP, entry
from cluster.run.shards import File, manifests, read_manifest, write_table
from cluster.storage import open_storage
from jobs.chain.stages.read import Read
from jobs.chain.stages.write import Write
from jobs.chain.worker import WorkerJob
from jobs.tables import COMMITTED, ELAPSED, QUERIES, SHARD, STORED
from tests.support.jobs.workers import fused, job, scored

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
            arm=st.just("run"),
        )
    ),
    guarded=some(struct(strategy=NAMES, guard=st.just("near_duplicate"), texts=st.just(2), requests=st.integers(0, 1))),
    stored=st.just([]),
    found=st.lists(st.tuples(DOCS, SCORES, SOURCES, SCORES, SCORES), max_size=3, unique_by=lambda one: one[0]),
    failed=st.booleans(),
)  # fmt: skip
ROWS = st.lists(ROW, min_size=1, max_size=5, unique_by=lambda row: row["query_id"])


def plain_row(row: Row, *, reranked: bool = True) -> Row:
    """The row with `candidates` and `scores`; its results are all candidates, in the order of their ranks."""
    candidates = [{"doc_id": doc_id, "score": score, "sources": sources} for doc_id, score, sources, *_ in row["found"]]
    scores = None if row["failed"] else [{"doc_id": doc_id, "score": score} for doc_id, *_, score, _ in row["found"]]
    given = {name: value for name, value in row.items() if name not in ("found", "failed")}
    return given | {"candidates": candidates} | ({"scores": scores} if reranked else {})


def block(rows: list[Row], *, reranked: bool = True) -> pa.Table:
    made = [plain_row(row, reranked=reranked) for row in rows]
    return scored(made) if reranked else fused(made)


def oracle(rows: list[Row], *, reranked: bool = True) -> dict[str, list[Row]]:
    """The stored rows by nested loops."""
    names = ("rewrites", "results", "costs", "errors", "scores", "selections", "candidates")
    tables: dict[str, list[Row]] = {name: [] for name in names}
    for row in rows:
        query = {"query_id": row["query_id"]}
        tables["rewrites"] += [query | {name: one[name] for name in one if name != "arm"} for one in row["rewrites"]]
        nothing = {"stage": "fuse", "component": None, "reason": "no_hits", "raw": None, "attempts": 1,
                   "message": "no list that takes part in fusion has a hit for this query"}  # fmt: skip
        errors = row["errors"] + ([] if row["found"] else [nothing])
        tables["errors"] += [query | {"log_id": None} | one for one in errors]
        for one in row["costs"]:
            tables["costs"].append({"query_id": None if one["component"] == START_UP else row["query_id"]} | one)
        scores = None if row["failed"] or not reranked else {doc_id: score for doc_id, *_, score, _ in row["found"]}
        tables["scores"] += [query | {"doc_id": name, "model": "m", "score": score} for name, score in (scores or {}).items()]
        places = list(enumerate(row["found"]))
        tables["candidates"] += [
            query | {"rank": rank, "doc_id": doc_id, "score": score} for rank, (doc_id, score, *_) in enumerate(row["found"], 1)
        ]
        if scores is not None:
            places.sort(key=lambda one: (-scores[one[1][0]], one[1][0]))
        for rank, (_, (doc_id, score, sources, *_)) in enumerate(places, start=1):
            mine = None if scores is None else scores[doc_id]
            tables["results"].append(
                query | {"arm": "run", "rank": rank, "doc_id": doc_id, "score": score if mine is None else mine,
                         "fused_score": score, "rerank_score": mine, "sources": sources}
            )  # fmt: skip
    return tables


def write(folder: Path, table: pa.Table, start: int = 3, *, reranked: bool = True, keep_candidates: bool = False) -> Row:
    """The answer of a worker of a run with two strategies planned."""
    rerank = {"kind": "server", "base_url": "http://none", "model": "m", "combine": "replace"} if reranked else {"kind": "none"}
    work = job(rerank=rerank, rewrite={"strategies": ["core_content", "keyword"]})
    (answer,) = Write(WorkerJob(replace(work, keep_candidates=keep_candidates), str(folder), start=start))(table).to_pylist()
    return dict(answer)


def tables_of(folder: Path) -> dict[str, list[Row]]:
    return {name: stored(folder, name) for name in oracle([])}


@settings(max_examples=settings.default.max_examples // 4)
@given(ROWS, st.integers(0, 4), st.booleans())
def test_what_is_committed_is_what_nested_loops_give_however_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], cut: int, reranked: bool
) -> None:
    folder, cut = tmp_path_factory.mktemp("run"), min(cut, len(rows) - 1)
    table = block(rows, reranked=reranked)
    table = pa.concat_tables([table.slice(0, 1), table.slice(0, cut), table.slice(cut)]).slice(1)
    answer = write(folder, table, reranked=reranked, keep_candidates=True)
    manifest = read_manifest(answer["manifest"])
    assert (answer["shard"], manifest.shard, manifest.start) == (4, 4, 3)
    assert list(manifests(open_storage(str(folder)))) == [manifest]
    found, wanted = tables_of(folder), oracle(rows, reranked=reranked)
    for name in wanted:
        assert (
            sorted(found[name], key=str) == sorted(wanted[name], key=str) if name == "scores" else found[name] == wanted[name]
        )
        assert (name in manifest.files) == bool(wanted[name])  # a table without rows has no file
        assert not wanted[name] or [file.rows for file in manifest.files[name]] == [len(wanted[name])]
        assert all(pq.read_schema(path) == STORED[name] for path in folder.glob(f"{name}/*.parquet"))
    spent = sum(one.get("seconds", 0) for stage in manifest.costs.values() for one in stage.values())
    assert spent == pytest.approx(sum(one["seconds"] for row in rows for one in row["costs"]))
    assert manifest.seconds["write"] > 0


@settings(max_examples=settings.default.max_examples // 4)
@given(ROWS)
def test_counts_are_the_sums_of_the_rows(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]) -> None:
    found = read_manifest(write(tmp_path_factory.mktemp("run"), block(rows))["manifest"]).counts
    flat = oracle(rows)
    failures = [one for one in flat["errors"] if one["reason"] == "truncated"]  # the other reasons are notes
    assert found["queries"] == len(rows)
    assert found["log_rows"] == sum(row["log_count"] for row in rows)
    assert found["planned"] == 2 * len(rows)
    assert found["rewrites"] == len(flat["rewrites"])
    assert found["rewrite_errors"] == sum(one["stage"] == "rewrite" for one in failures)
    assert found["results"] == len(flat["results"])
    assert found["queries_with_results"] == len({one["query_id"] for one in flat["results"]})
    assert found["failed_queries"] == len({one["query_id"] for one in failures})
    rungs = Counter(f"rung/{one['strategy']}/{one['parsed_as']}" for one in flat["rewrites"])
    reasons = Counter(f"error/{one['stage']}/{one['component'] or ''}/{one['reason']}" for one in flat["errors"])
    failing = {(one["query_id"], one["stage"], one["reason"]) for one in flat["errors"]}
    queries = Counter(f"error_queries/{stage}/{reason}" for _, stage, reason in failing)
    flags = Counter(f"guard/{one['strategy']}/{flag}" for one in flat["rewrites"] for flag in one["guards"])
    left: Counter[str] = Counter()
    for one in (one for row in rows for one in row["guarded"]):
        left[f"left_out/{one['strategy']}/near_duplicate"] += 2
    texts = Counter((one["query_id"], one["strategy"]) for one in flat["rewrites"])
    further: Counter[str] = Counter()
    for (_, strategy), n in texts.items():
        further[f"further_texts/{strategy}"] += n - 1
    assert {name: n for name, n in found.items() if "/" in name} == rungs | reasons | queries | flags | +left | further
    assert found["guarded"] == sum(one["stage"] == "rewrite" and one["reason"] == "near_duplicate" for one in flat["errors"])


# ---------------------------------------------------------------- the worker


def stored(folder: Path, table: str) -> list[Row]:
    rows: list[Row] = []
    for path in sorted(folder.glob(f"{table}/*.parquet")):
        rows += pq.read_table(path).to_pylist()
    return rows


ONE: Row = {
    "shard": 4, "query_id": "a", "query": "q", "log_count": 1, "costs": [entry("rewrite", "dmqr", 1.0, start=1)], "errors": [],
    "rewrites": [], "guarded": [], "stored": [], "found": [("d", 1.0, [], 1.0, 0.0)], "failed": True,
}  # fmt: skip


def test_each_query_has_the_seconds_since_its_shard_was_read(tmp_path: Path) -> None:
    began = {"stage": "read", "quantity": ELAPSED, "amount": time.time() - 30}
    table = block([ONE, ONE | {"query_id": "b"}])
    place = table.schema.get_field_index("overhead")
    field = table.schema.field(place)
    answer = write(tmp_path, table.set_column(place, field, pa.array([[began], []], field.type)))
    elapsed = {row["query_id"]: row for row in stored(tmp_path, "costs") if row["stage"] == ELAPSED}
    assert {name: 30 <= row["latency"] < 90 for name, row in elapsed.items()} == {"a": True, "b": True}
    assert {(row["seconds"], row["start"]) for row in elapsed.values()} == {(0.0, 3)}
    manifest = read_manifest(answer["manifest"])
    assert ELAPSED not in {*manifest.costs, *(name for amounts in manifest.storage.values() for name in amounts)}


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
    manifest = read_manifest(write(tmp_path, block(rows))["manifest"])
    assert manifest.files["runs"] == [File(file["key"], file["rows"], file["size"]) for file in (one, two, three)]
    assert [file.rows for file in manifest.files["runs"]] == [1, 2, 0]
    assert sorted(manifest.files) == ["costs", "results", "runs"]


def test_a_shard_that_is_written_twice_counts_once(tmp_path: Path) -> None:
    first = write(tmp_path, block([ONE | {"stored": [lists(tmp_path, "x")]}]), 1)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    second = write(tmp_path, block([ONE | {"stored": [lists(tmp_path, "x")]}]), 2)
    assert json.loads(second["manifest"]) == json.loads(first["manifest"])
    assert list(second) == COMMITTED.names
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == files  # lists that came too late are gone, too


# ---------------------------------------------------------------- the reading worker


@pytest.mark.parametrize(("row_group", "count"), [(0, 2), (2, 1)])
def test_a_shard_is_a_row_group_of_a_planned_file(tmp_path: Path, row_group: int, count: int) -> None:
    planned = [{"query_id": f"id{n}", "query": f"q {n} 東京", "log_count": n + 1} for n in range(5)]
    table = pa.Table.from_pylist(planned, STORED["queries"])
    pq.write_table(table, tmp_path / "plan-x.parquet", row_group_size=2, store_schema=False)
    shard = pa.table({"shard": [17], "key": ["plan-x.parquet"], "row_group": [row_group]}, schema=SHARD)
    read = Read(WorkerJob(job(), str(tmp_path)))(shard)
    assert read.schema == QUERIES
    none = {"context": None, "values": None, "costs": [], "errors": []}
    ((began,), *others) = read.column("overhead").to_pylist()
    rows = planned[2 * row_group : 2 * row_group + count]
    assert read.drop_columns(["overhead"]).to_pylist() == [{"shard": 17, **row, **none} for row in rows]
    assert (began["stage"], began["quantity"]) == ("read", ELAPSED)
    assert time.time() - 60 < began["amount"] <= time.time()
    assert others == [[]] * (count - 1)

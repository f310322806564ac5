"""The files of dedup, the fate of a row, and the real logs."""

import datetime
import os
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import LogError
from cluster.storage.s3_duckdb import no_room
from jobs.log.check import LogColumns
from jobs.log.rejections import rejected_words
from jobs.log.rows import contexts, values
from jobs.tables import STORED
from tests.support.jobs.logs import deduped, refused, write_log

# ---------------------------------------------------------------- files


def test_columns_and_compression_are_exact(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.parquet", {"query": ["a", "B", "b ", "A", None]})
    summary, tables = deduped(log, tmp_path / "out")
    assert {table: [file.rows for file in files] for table, files in summary.tables.items()} == {
        "queries": [2], "query_map": [5], "errors": [1]
    }  # fmt: skip
    for table, (file,) in summary.tables.items():
        metadata = pq.read_metadata(tmp_path / "out" / file.key)
        assert metadata.schema.to_arrow_schema() == STORED[table]
        assert {metadata.row_group(0).column(i).compression for i in range(metadata.num_columns)} == {"ZSTD"}
        assert (metadata.num_rows, os.stat(tmp_path / "out" / file.key).st_size) == (file.rows, file.size)
    assert tables["errors"] == [
        {"query_id": None, "log_id": "log.parquet#4", "stage": "log", "component": None, "reason": "empty",
         "message": "the query is null", "raw": None, "attempts": 1}
    ]  # fmt: skip
    assert {(row["query"], row["normalised"]) for row in tables["queries"]} == {("A", "a"), ("B", "b")}
    (same,) = duckdb.sql(f"SELECT count(*), count(query_id) FROM '{tmp_path}/out/query_map/*.parquet'").fetchall()
    assert same == (5, 4)


@pytest.mark.slow
def test_a_shard_is_a_row_group_and_a_file_holds_64(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.parquet", {"query": [f"query {i}" for i in range(650)]})
    summary, tables = deduped(log, tmp_path / "out", shard_size=5)
    assert [file.rows for file in summary.tables["queries"]] == [320, 320, 10]
    assert [s.rows for s in summary.shards] == [5] * 130
    assert [s.number for s in summary.shards] == list(range(130))
    seen = []
    for shard in summary.shards:
        group = pq.ParquetFile(tmp_path / "out" / shard.key).read_row_group(shard.row_group)
        assert group.num_rows == shard.rows
        seen += group["query_id"].to_pylist()
    assert seen == sorted(seen) == [row["query_id"] for row in tables["queries"]]
    last, _ = deduped(log, tmp_path / "out", shard_size=649)
    assert [s.rows for s in last.shards] == [649, 1]


@pytest.mark.slow
def test_a_row_group_of_query_map_is_small(tmp_path: Path) -> None:
    """A scanning thread holds one whole: with a piece in each, the check of the ids ran out of memory at 3 million rows."""
    rows = 150_000
    log = write_log(
        tmp_path / "log.parquet", {"query": [f"q{i}" for i in range(rows)], "id": [f"{i:050d}" for i in range(rows)]}
    )
    summary, _ = deduped(log, tmp_path / "out", LogColumns("query", "id"), 1000)
    (file,) = summary.tables["query_map"]
    metadata = pq.read_metadata(tmp_path / "out" / file.key)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    assert [sum(group.column(place).total_uncompressed_size for place in range(2)) < 8 << 20 for group in groups] == [
        True
    ] * len(groups)
    assert max(group.num_rows for group in groups) <= 1 << 16
    assert sum(group.num_rows for group in groups) == rows


def test_the_line_says_whether_memory_or_disk_ran_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = write_log(tmp_path / "log.parquet", {"query": [f"query {i}" for i in range(20_000)]})
    monkeypatch.setattr("jobs.log.parts.MEMORY", "1MB")
    with pytest.raises(
        LogError, match=r"needs more memory than its 1MB .*; lower log\.max_chars, or leave out log\.id_column$"
    ):
        deduped(log, tmp_path / "out")
    full = duckdb.OutOfMemoryException(
        "failed to offload a block. This limit was set by the 'max_temp_directory_size' setting."
    )
    assert str(no_room("it failed", full, "1MB", "-")).endswith("; free space there")


# ---------------------------------------------------------------- what a row is


def test_rejected_rows_say_why_and_show_their_beginning(tmp_path: Path) -> None:
    rows = [None, "", " \u3000", "ok", "z" * 2001, "é" * 2000]
    _, tables = deduped(write_log(tmp_path / "log.parquet", {"query": rows}), tmp_path / "out")
    assert [(r["log_id"][-1], r["reason"], r["message"], r["raw"]) for r in tables["errors"]] == [
        ("0", "empty", "the query is null", None),
        ("1", "empty", "the query is empty", ""),
        ("2", "empty", "the query is only white space", " \u3000"),
        ("4", "too_long", "the query has 2,001 characters, log.max_chars is 2,000", "z" * 200),
    ]
    assert {q["query"] for q in tables["queries"]} == {"ok", "é" * 2000}


def test_text_that_is_not_utf8_is_one_rejected_row(tmp_path: Path) -> None:
    raw = [b"fine", b"caf\xe9 menu", b"\xed\xa0\x80", b"also \xf0\x9f\x98\x80", None]
    for name, options in (("plain", {"use_dictionary": False}), ("dictionary", {})):
        log = write_log(tmp_path / f"{name}.parquet", {"query": pa.array(raw, pa.binary()).view(pa.string())}, **options)
        summary, tables = deduped(log, tmp_path / name)
        assert rejected_words(summary.counts) == "3 rejected (1 empty, 2 not_utf8)"
        assert [(r["reason"], r["message"], r["raw"]) for r in tables["errors"]] == [
            ("not_utf8", "the query is not UTF-8 (byte 3)", "caf\ufffd menu"),
            ("not_utf8", "the query is not UTF-8 (byte 0)", "\ufffd\ufffd\ufffd"),
            ("empty", "the query is null", None),
        ]
        assert {q["query"] for q in tables["queries"]} == {"fine", "also 😀"}


def test_an_id_may_repeat_with_its_query_but_not_with_another(tmp_path: Path) -> None:
    repeated = {"query": ["Rome", "rome ", None, "x"], "id": ["a", "a", "a", "b"]}
    _, tables = deduped(write_log(tmp_path / "fine.parquet", repeated), tmp_path / "out", LogColumns("query", "id"))
    assert [row["log_id"] for row in tables["query_map"]] == ["a", "a", "a", "b"]
    log = write_log(tmp_path / "log.parquet", {"query": ["rome", "milan", "turin", "x", "y"], "id": [7, 7, 7, 8, 8]})
    assert str(refused(log, LogColumns("query", "id"))) == (
        "column 'id' (log.id_column) is not unique: id '7' stands for 3 different queries;"
        " name a unique column, or none (id_column: null) to have rows named by file and row"
    )


def test_hive_partitions_order_rows_name_them_and_are_columns(tmp_path: Path) -> None:
    for day, rows in (("2020-01-02", ["b", "c"]), ("2020-01-01", ["a"]), ("__HIVE_DEFAULT_PARTITION__", ["d"])):
        write_log(tmp_path / "log" / f"date={day}" / "lang=en%2Fus" / "part-0.parquet", {"query": rows})
    (tmp_path / "log" / "_SUCCESS").write_text("")
    write_log(tmp_path / "log" / "_old" / "part-0.parquet", {"query": ["never"]})
    _, tables = deduped(str(tmp_path / "log"), tmp_path / "out")
    assert [row["log_id"] for row in tables["query_map"]] == [
        "date=2020-01-01/lang=en%2Fus/part-0.parquet#0",
        "date=2020-01-02/lang=en%2Fus/part-0.parquet#0",
        "date=2020-01-02/lang=en%2Fus/part-0.parquet#1",
        "date=__HIVE_DEFAULT_PARTITION__/lang=en%2Fus/part-0.parquet#0",
    ]
    _, tables = deduped(str(tmp_path / "log"), tmp_path / "out", LogColumns("lang"))
    assert [(q["query"], q["log_count"]) for q in tables["queries"]] == [("en/us", 4)]
    summary, _ = deduped(str(tmp_path / "log"), tmp_path / "out", LogColumns("date"))
    assert (summary.counts["queries"], rejected_words(summary.counts)) == (2, "1 rejected (1 empty)")


# ---------------------------------------------------------------- contexts


AFTER = LogColumns("query", context_column="turns")
KINDS = [pa.list_(pa.string()), pa.large_list(pa.large_string()), pa.list_(pa.string(), 2), pa.list_(pa.string_view())]


@pytest.mark.parametrize("kind", KINDS)  # Polars writes the last
def test_lists_of_text_are_joined(kind: pa.DataType) -> None:
    column = pa.array([["any trains?", "yes"], None, [None, "any trains?"], [None, None]], kind)
    assert contexts(column, 100).to_pylist() == [b"any trains?\nyes", None, b"any trains?", None]
    assert values(column).to_pylist() == ["any trains?; yes", None, "any trains?", None]


def test_a_row_with_a_context_that_is_not_utf8_is_rejected(tmp_path: Path) -> None:
    raw = pa.array([b"fine", b"caf\xe9", None, b"caf\xe9" + b"x" * 9000], pa.binary()).view(pa.string())
    rows = {"query": ["a", "b", "c", None], "turns": raw}
    summary, found = deduped(write_log(tmp_path / "log.parquet", rows), tmp_path / "out", AFTER)
    assert rejected_words(summary.counts) == "2 rejected (1 empty, 1 not_utf8)"
    assert [(row["log_id"], row["message"], row["raw"]) for row in found["errors"]] == [
        ("log.parquet#1", "the context is not UTF-8 (byte 3)", "caf\ufffd"), ("log.parquet#3", "the query is null", None)
    ]  # fmt: skip
    assert {row["query"] for row in found["queries"]} == {"a", "c"}


# ---------------------------------------------------------------- values


def test_values_of_every_kind_become_text(tmp_path: Path) -> None:
    uuid, when = UUID(int=7), datetime.datetime(2020, 1, 31, 12, 30)
    kinds = {
        "text": (pa.array(["é"]), "é"), "large": (pa.array(["x"], pa.large_string()), "x"),
        "coded": (pa.array(["x"]).dictionary_encode(), "x"), "list": (pa.array([["a", None, "b"]]), "a; b"),
        "empty": (pa.array([[]], pa.list_(pa.string())), None), "number": (pa.array([1.5]), "1.5"),
        "whole": (pa.array([7], pa.uint8()), "7"), "yes": (pa.array([True]), "true"),
        "day": (pa.array([when.date()]), "2020-01-31"), "clock": (pa.array([when.time()]), "12:30:00.000000"),
        "uuid": (pa.array([uuid.bytes], pa.uuid()), str(uuid)), "none": (pa.array([None], pa.string()), None),
        "bytes": (pa.array([b"caf\xe9"]).view(pa.string()), "caf\ufffd"),
        "big": (pa.array([2**64 - 1], pa.uint64()), str(2**64 - 1)),
        "time": (pa.array([when]), "2020-01-31 12:30:00.000000"), "price": (pa.array([Decimal("12.50")]), "12.50"),
    }  # fmt: skip
    log = write_log(tmp_path / "log.parquet", {"query": ["q"]} | {name: column for name, (column, _) in kinds.items()})
    _, found = deduped(log, tmp_path / "out", LogColumns("query", values=tuple(kinds)))
    assert found["queries"][0]["values"] == {name: text for name, (_, text) in kinds.items()}


# ---------------------------------------------------------------- types


def by_length(queries: list[str]) -> list[str]:
    return ["long" if len(query.split()) >= 3 else "short" for query in queries]


def test_a_classifier_tells_the_type_of_the_shown_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.log.dedup.RANGE_ROWS", 2)
    rows = {"query": ["sea", "why is the sea salt", "Sea", "tides", "SEA  "], "market": ["de"] * 5}
    columns = LogColumns("query", values=("market",), classify=by_length)
    summary, found = deduped(write_log(tmp_path / "log.parquet", rows), tmp_path / "out", columns)
    assert {row["query"]: row["query_type"] for row in found["queries"]} == {
        "why is the sea salt": "long", "SEA  ": "short", "tides": "short"
    }  # fmt: skip
    schema = pq.read_schema(tmp_path / "out" / summary.tables["queries"][0].key)
    assert schema.names == [*STORED["queries"].names, "query_type", "values"]

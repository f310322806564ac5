"""A log of JSON lines: the same tables as from Parquet, and what is refused."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import LogError
from cluster.storage import open_storage
from jobs.log import dedup as dedup_module
from jobs.log.check import LogColumns, check_log
from jobs.log.dedup import dedup
from jobs.log.files import LogFile, log_files
from jobs.log.json_lines import json_batches
from jobs.log.settings import LogSettings

Row = dict[str, Any]
COLUMNS = LogColumns("user_query", "query_id")


def search(log_id: str, text: str | None) -> Row:
    return {"query_id": log_id, "user_query": text, "hits": ["a", "b"]}


def write_lines(path: Path, rows: Sequence[Row], *, wrapped: bool = False) -> None:
    """Writes lines of JSON, packed if the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps({"_source": row} if wrapped else row, ensure_ascii=False) + "\n" for row in rows)
    path.write_bytes(gzip.compress(lines.encode()) if path.suffix == ".gz" else lines.encode())


ROWS = [
    search("q1", "Red  Shoes"), search("q2", "red shoes"), search("q3", None), search("q4", " \t"), search("q5", "größe 42"),
    search("q6", "x" * 60), search("q7", 'quo"te, \\ and 日本'),
]  # fmt: skip
Tables = dict[str, list[dict[str, Any]]]


def tables(files: list[LogFile], out: Path, columns: LogColumns = COLUMNS) -> Tables:
    """The tables of a log; log_ids of rows without one begin with `file`."""
    summary = dedup(files, dataclasses.replace(columns, max_chars=50), open_storage(str(out)), 10)
    return {
        name: [row for file in of for row in pq.read_table(out / file.key).to_pylist()] for name, of in summary.tables.items()
    }


def files_of(path: Path) -> list[LogFile]:
    return log_files(LogSettings(path=str(path), query_column="user_query"))


@pytest.mark.parametrize("ending", ["ndjson", "jsonl", "json", "json.gz", "ndjson.zst"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "hits"])
def test_lines_of_json_give_the_tables_of_parquet(tmp_path: Path, ending: str, wrapped: bool) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "queries.parquet")
    expected = tables(files_of(tmp_path / "queries.parquet"), tmp_path / "expected")
    assert [len(expected[name]) for name in ("queries", "query_map", "errors")] == [3, 7, 3]
    path = tmp_path / f"queries.{ending}"
    write_lines(path, ROWS, wrapped=wrapped)
    if ending.endswith(".zst"):
        path.write_bytes(pa.Codec("zstd").compress(path.read_bytes(), asbytes=True))
    assert tables(files_of(path), tmp_path / "found") == expected


def test_columns_of_every_kind(tmp_path: Path) -> None:
    more: list[Row] = [
        {"turns": ["a", None, "b"], "n": 3, "market": "de", "sizes": [41, 42.5], "flag": True},
        {"turns": "one text", "n": "2", "market": None, "sizes": [], "flag": False},
        {},
    ]
    rows = [search(f"q{n}", f"query {n}") | one for n, one in enumerate(more)]
    write_lines(tmp_path / "log" / "country=is" / "queries.json", rows)
    columns = LogColumns("user_query", "query_id", "n", context_column="turns", values=("market", "sizes", "flag", "country"))
    found = {row["query"]: row for row in tables(files_of(tmp_path / "log"), tmp_path / "out", columns)["queries"]}
    assert [found[f"query {n}"]["log_count"] for n in range(3)] == [3, 2, 1]
    assert [found[f"query {n}"]["context"] for n in range(3)] == ["a\nb", "one text", None]
    assert [dict(found[f"query {n}"]["values"]) for n in range(3)] == [
        {"market": "de", "sizes": "41; 42.5", "flag": "true", "country": "is"},
        {"market": None, "sizes": None, "flag": "false", "country": "is"},
        {"market": None, "sizes": None, "flag": None, "country": "is"},
    ]


def test_rows_without_an_id_are_named_by_file_and_object(tmp_path: Path) -> None:
    log = tmp_path / "log" / "b.jsonl"
    write_lines(log, [{"user_query": "x", "query_id": None}, {"user_query": "y", "query_id": 7}])
    log.write_text("\n" + log.read_text() + "\n\n")
    found = tables(files_of(log.parent), tmp_path / "out")
    assert [row["log_id"] for row in found["query_map"]] == ["b.jsonl#0", "7"]
    found = tables(files_of(log.parent), tmp_path / "other", LogColumns("user_query"))
    assert [row["log_id"] for row in found["query_map"]] == ["b.jsonl#0", "b.jsonl#1"]


@pytest.mark.slow
def test_many_files_in_parts_give_one_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [search(f"q{n}", f"query {n % 37}") for n in range(400)]
    for start in range(0, 400, 50):
        write_lines(tmp_path / "log" / f"queries-{start:03d}.ndjson", rows[start : start + 50])
    write_lines(tmp_path / "log" / "queries-empty.ndjson", [])
    whole = tables(files_of(tmp_path / "log"), tmp_path / "whole")
    monkeypatch.setattr(dedup_module, "PART_ROWS", 10)
    monkeypatch.setattr("jobs.log.rows.BATCH_ROWS", 16)
    assert tables(files_of(tmp_path / "log"), tmp_path / "parts") == whole
    assert [row["log_id"] for row in whole["query_map"]] == [row["query_id"] for row in rows]
    assert {row["log_count"] for row in whole["queries"]} == {10, 11}


@pytest.mark.slow
def test_the_order_of_a_large_file_is_kept(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.ndjson.gz", [{"user_query": f"query {n}", "pad": "x" * 300} for n in range(60_000)])
    (file,) = files_of(tmp_path)
    texts = [text for batch in json_batches(file, ["user_query"], [], 1000) for text in batch.column(0).to_pylist()]
    assert texts == [f"query {n}" for n in range(60_000)]


@pytest.mark.parametrize("before", [0, 3000], ids=["in the head", "later"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "hits"])
def test_text_that_is_not_utf8_is_one_rejected_row(tmp_path: Path, before: int, wrapped: bool) -> None:
    """Half a surrogate pair is what exporters write of a text that was cut in an emoji; DuckDB refuses such a file."""
    good = {"tags": ["a", None, 1.5], "size": 42, "all": {"é": [1, True]}}
    rows = [search(f"q{n}", f"query {n}") | good for n in range(before)]
    odd = [{"user_query": text, "query_id": f"odd{n}"} | good for n, text in enumerate(("cut %", "caf@", "whole \U0001f600"))]
    write_lines(tmp_path / "log" / "a.ndjson.gz", [*rows, *odd, search("last", "query 1") | good], wrapped=wrapped)
    path = tmp_path / "log" / "a.ndjson.gz"
    lines = gzip.decompress(path.read_bytes()).replace(b"%", b"\\ud83d").replace(b"@", b"\xe9").replace(b"\n", b"\n\n")
    path.write_bytes(gzip.compress(lines.replace(b'"last"', b'"x", "query_id": "last"')))  # of a key twice, the last holds
    columns = LogColumns("user_query", "query_id", values=("all", "size", "tags"))
    found = tables(files_of(tmp_path / "log"), tmp_path / "out", columns)
    assert sorted((row["reason"], row["message"], row["raw"], row["log_id"]) for row in found["errors"]) == [
        ("not_utf8", "the query is not UTF-8 (byte 3)", "caf\ufffd", "odd1"),
        ("not_utf8", "the query is not UTF-8 (byte 4)", "cut \ufffd\ufffd\ufffd", "odd0"),
    ]
    assert [row["log_id"] for row in found["query_map"]] == [*(f"q{n}" for n in range(before)), "odd0", "odd1", "odd2", "last"]
    assert {json.dumps(dict(row["values"]), ensure_ascii=False) for row in found["queries"]} == {
        json.dumps({"all": '{"é":[1,true]}', "size": "42", "tags": "a; 1.5"}, ensure_ascii=False)
    }
    assert "whole \U0001f600" in {row["query"] for row in found["queries"]}


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (
            "user_query,query_id\nx,1\n",
            "log-unreadable",
            "line 1: no JSON: it begins with 'user_query,query_id'; write an object a line",
        ),
        ('{\n "user_query": "x"\n}\n', "log-unreadable", "line 1: an object or array over several lines"),
        ('[{"user_query": "x"}]', "log-unreadable", "line 1: a JSON array, wanted an object"),
        (
            '{"took": 3, "hits": {"hits": []}}',
            "log-unreadable",
            "line 1: a whole answer of a search; write an object a line",
        ),
        (
            '{"index": {"_index": "queries"}}\n{"user_query": "x"}',
            "log-unreadable",
            "line 1: an action of the bulk API",
        ),
        (
            '{"user_query": "x"}\n{"_source": {"user_query": "y"}}',
            "log-unreadable",
            "line 2: some objects are wrapped in _source, some",
        ),
        (
            '{"userquery": "x"}',
            "log-column",
            "no field 'user_query' (log.query_column) in its first 1,000 objects; did you mean",
        ),
        ('{"user_query": "x"}\n{"user_que', "log-unreadable", "line 2: no JSON: it begins with '{\"user_que'"),
        ("\n \n", "log-empty", "the log is empty"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, content: str, code: str, words: str) -> None:
    (tmp_path / "queries.json").write_text(content)
    with pytest.raises(LogError) as error:
        check_log(files_of(tmp_path), LogColumns("user_query"))
    assert error.value.code == code
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_breaks_off_later_is_refused_when_it_is_read(tmp_path: Path) -> None:
    lines = "".join(f'{{"user_query": "query {n}"}}\n' for n in range(3000))
    (tmp_path / "a.json").write_text(lines + '{"user_query": "que')
    with pytest.raises(LogError, match=r"log file .*a\.json: .*Malformed JSON") as error:
        tables(files_of(tmp_path), tmp_path / "out", LogColumns("user_query"))
    assert error.value.code == "log-unreadable"
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(lines.encode())[:-40])
    with pytest.raises(LogError, match=r"log file .*b\.json\.gz: "):
        tables(files_of(tmp_path / "b.json.gz"), tmp_path / "out", LogColumns("user_query"))


def test_a_file_that_was_replaced_is_refused(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.json", ROWS)
    files = files_of(tmp_path)
    groups = check_log(files, COLUMNS)
    write_lines(tmp_path / "a.json", ROWS[:2])
    with pytest.raises(LogError, match="was replaced since it was listed") as error:
        list(json_batches(groups[0].file, ["user_query"], [], 10))
    assert error.value.code == "run-changed"

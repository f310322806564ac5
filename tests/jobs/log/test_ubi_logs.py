"""A log of User Behavior Insights: the same tables from JSON lines as from Parquet, its files, and what is refused."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import LogError
from cluster.storage import open_storage
from jobs.config.config import Config
from jobs.log import dedup as dedup_module
from jobs.log.check import LogColumns, check_log
from jobs.log.dedup import dedup
from jobs.log.files import LogFile, event_files, log_files
from jobs.log.json_lines import json_batches
from jobs.log.settings import LogSettings
from tests.support.jobs.ubi_exports import QUERIES, Row, event, search, ubi_config, write_lines, write_parquet

COLUMNS = LogColumns("user_query", "query_id")
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


def files_of(path: Path | list[str], **log: Any) -> list[LogFile]:
    return log_files(
        LogSettings.model_validate({"path": str(path) if isinstance(path, Path) else path, "format": "ubi", **log})
    )


@pytest.mark.parametrize("ending", ["ndjson", "jsonl", "json", "json.gz", "ndjson.zst"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "hits"])
def test_lines_of_json_give_the_tables_of_parquet(tmp_path: Path, ending: str, wrapped: bool) -> None:
    write_parquet(tmp_path / "ubi_queries.parquet", ROWS, QUERIES)
    expected = tables(files_of(tmp_path / "ubi_queries.parquet"), tmp_path / "expected")
    assert [len(expected[name]) for name in ("queries", "query_map", "errors")] == [3, 7, 3]
    path = tmp_path / f"ubi_queries.{ending}"
    write_lines(path, ROWS, wrapped=wrapped)
    if ending.endswith(".zst"):
        path.write_bytes(pa.Codec("zstd").compress(path.read_bytes(), asbytes=True))
    assert tables(files_of(path), tmp_path / "found") == expected


def test_columns_beside_those_of_ubi(tmp_path: Path) -> None:
    more: list[Row] = [
        {"turns": ["a", None, "b"], "n": 3, "market": "de", "sizes": [41, 42.5], "flag": True},
        {"turns": "one text", "n": "2", "market": None, "sizes": [], "flag": False},
        {},
    ]
    rows = [search(f"q{n}", f"query {n}") | one for n, one in enumerate(more)]
    write_lines(tmp_path / "log" / "country=is" / "ubi_queries.json", rows)
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
        write_lines(tmp_path / "log" / f"ubi_queries-{start:03d}.ndjson", rows[start : start + 50])
    write_lines(tmp_path / "log" / "ubi_queries-empty.ndjson", [])
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
    columns = LogColumns("user_query", "query_id", values=("tags", "size", "all"))
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


def test_which_files_are_queries_and_which_are_events(tmp_path: Path) -> None:
    for name in ("ubi_queries/a.ndjson", "ubi_queries-b.parquet", "ubi_events/a.ndjson", "ubi_events-b.json.gz", "other.json",
                 "notes.txt", "_x.json", ".ubi_queries.json"):  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(gzip.compress(b"x"))

    def names(files: list[LogFile]) -> list[str]:
        return sorted(Path(file.path).relative_to(tmp_path).as_posix() for file in files)

    assert names(files_of(tmp_path)) == ["other.json", "ubi_queries-b.parquet", "ubi_queries/a.ndjson"]
    log = LogSettings(path=str(tmp_path), format="ubi")  # type: ignore[call-arg]
    assert names(event_files(log)) == ["ubi_events-b.json.gz", "ubi_events/a.ndjson"]
    for path, events in (("ubi_queries", "ubi_events/a.ndjson"), ("ubi_queries/a.ndjson", "ubi_events/a.ndjson")):
        assert names(event_files(log.model_copy(update={"path": str(tmp_path / path)}))) == [events]
    elsewhere = log.model_copy(update={"events": str(tmp_path / "other.json")})
    assert names(event_files(elsewhere)) == ["other.json"]


def test_the_columns_of_ubi_need_not_be_named() -> None:
    log = ubi_config("log").log
    assert (log.query_column, log.id_column) == ("user_query", "query_id")
    named = ubi_config("log", query_column="text", id_column=None).log
    assert (named.query_column, named.id_column) == ("text", None)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ({"path": "l"}, "query_column"),
        ({"path": "l", "query_column": "q", "events": "e"}, "only a log of format: ubi has them"),
        ({"path": "l", "format": "csv"}, "Input should be 'table', 'parquet' or 'ubi'"),
    ],
)
def test_settings_that_are_refused(log: Row, words: str) -> None:
    values = ubi_config("log").model_dump() | {"log": log}
    with pytest.raises(ValueError, match=words):
        Config.model_validate(values)


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (
            "user_query,query_id\nx,1\n",
            "log-ubi",
            "line 1: no JSON: it begins with 'user_query,query_id'; write an object a line",
        ),
        ('{\n "user_query": "x"\n}\n', "log-ubi", "line 1: an object or array over several lines"),
        ('[{"user_query": "x"}]', "log-ubi", "line 1: a JSON array, wanted an object"),
        ('{"took": 3, "hits": {"hits": []}}', "log-ubi", "line 1: a whole answer of a search; write an object a line, as jq"),
        ('{"index": {"_index": "ubi_queries"}}\n{"user_query": "x"}', "log-ubi", "line 1: an action of the bulk API; export"),
        (
            '{"user_query": "x"}\n{"_source": {"user_query": "y"}}',
            "log-ubi",
            "line 2: some objects are wrapped in _source, some",
        ),
        (
            '{"userquery": "x"}',
            "log-column",
            "no field 'user_query' (log.query_column) in its first 1,000 objects; did you mean",
        ),
        (json.dumps(event("q", "d")), "log-column", "it holds UBI's events: let log.path name the queries, log.events these"),
        ('{"user_query": "x"}\n{"user_que', "log-ubi", "line 2: no JSON: it begins with '{\"user_que'"),
        ("\n \n", "log-empty", "the log is empty"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, content: str, code: str, words: str) -> None:
    (tmp_path / "ubi_queries.json").write_text(content)
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
    assert error.value.code == "log-changed"


@pytest.mark.parametrize(
    ("path", "log", "words"),
    [
        ("a.txt", {}, "neither Parquet nor lines of JSON by its name; let it end in one of .parquet, .json, "),
        ("empty", {}, "no Parquet or JSON lines file (*.parquet, *.json, *.jsonl, *.ndjson) in this folder, it is empty"),
        ("none", {}, "no such file or folder"),
    ],
)
def test_paths_that_are_refused(tmp_path: Path, path: str, log: Row, words: str) -> None:
    (tmp_path / "a.txt").write_text("{}")
    (tmp_path / "empty").mkdir()
    with pytest.raises(LogError) as error:
        files_of(tmp_path / path, **log)
    assert words in str(error.value)


def test_events_that_are_not_found(tmp_path: Path) -> None:
    write_lines(tmp_path / "ubi_queries.json", ROWS)
    write_lines(tmp_path / "other.json", ROWS)
    for path, words in (
        ("ubi_queries.json", f"log.events (by log.path) {tmp_path}/ubi_events.json: no such file or folder"),
        ("other.json", "other.json: where the events lie does not follow from it; let log.events name them"),
        ("", "no ubi_events* in this folder; let log.events name them"),
    ):
        with pytest.raises(LogError) as error:
            event_files(ubi_config(tmp_path / path).log)
        assert words in str(error.value)
        assert error.value.code == "log-missing"

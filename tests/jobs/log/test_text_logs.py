"""Logs that are lines of JSON or CSV: the tables that the same rows give as Parquet, and what is refused, with its line."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.errors import LogError
from cluster.storage import open_storage
from jobs.log.check import LogColumns, check_log, has_values
from jobs.log.dedup import dedup
from jobs.log.files import find_log_files
from tests.support.cluster.s3_server import S3Server

QUERY = LogColumns("query")
COLUMNS = LogColumns("query", "id", "n", context_column="turns", values=("market",))
NAMES = ("id", "query", "n", "turns", "market")
Row = tuple[str | None, ...]


def as_csv(rows: Sequence[Row], delimiter: str = ",", newline: str = "\n", quoted: bool = False) -> bytes:
    """The rows, with their header, as Python's own writer has them; None is an empty field."""
    text = io.StringIO(newline="")
    for row in (NAMES, *rows):  # Python 3.11 leaves a carriage return without quotes
        quoting = csv.QUOTE_ALL if quoted or any("\r" in (field or "") for field in row) else csv.QUOTE_MINIMAL
        csv.writer(text, delimiter=delimiter, lineterminator=newline, quoting=quoting).writerow(row)
    return text.getvalue().encode()


def as_lines(rows: Sequence[Row]) -> bytes:
    return "".join(json.dumps(dict(zip(NAMES, row, strict=True))) + "\n" for row in rows).encode()


def as_parquet(rows: Sequence[Row]) -> bytes:
    columns = dict(zip(NAMES, zip(*rows, strict=True), strict=True))
    kinds = {name: pa.string() for name in NAMES} | {"n": pa.int64()}
    columns["n"] = tuple(None if one is None else int(one) for one in columns["n"])
    out = io.BytesIO()
    pq.write_table(pa.table({name: pa.array(columns[name], kinds[name]) for name in NAMES}), out)
    return out.getvalue()


def tables(path: str, out: Path, columns: LogColumns = COLUMNS) -> dict[str, list[dict[str, Any]]]:
    """The rows of queries, query_map and errors that dedup makes of a log."""
    summary = dedup(find_log_files(path), columns, open_storage(str(out)), 100)
    return {
        name: [row for file in files for row in pq.read_table(out / file.key).to_pylist()]
        for name, files in summary.tables.items()
    }


def refusal(path: str | list[str], out: Path, columns: LogColumns = QUERY) -> LogError:
    """What a log is refused with, before any work or by dedup itself, which leaves nothing behind."""
    with pytest.raises(LogError) as error:
        dedup(find_log_files(path), columns, open_storage(str(out)), 10)
    assert [path for path in out.rglob("*") if path.is_file()] == []
    assert "\n" not in str(error.value)
    return error.value


TEXT = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12),
    st.sampled_from(
        ['say "hi"', '"', "a,b", "a;b", "a\tb", "two\nlines", "two\r\nlines", "null", "NA", " tea ", "007", "1e3", "é"]
    ),
)
ROW = st.tuples(st.none() | TEXT, st.none() | TEXT, st.none() | st.integers(0, 9).map(str), st.none() | TEXT, st.none() | TEXT)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROW, min_size=1, max_size=12))
def test_the_same_rows_give_the_same_tables(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> None:
    rows = [(f"{place}{one[0] or ''}", *one[1:]) for place, one in enumerate(rows)]  # unique ids
    rows.append(("last", "why is the sky blue", None, None, "de"))  # a log needs one query
    place, found = tmp_path_factory.mktemp("forms"), []
    for name, data in (("log.parquet", as_parquet(rows)), ("log.jsonl", as_lines(rows)), ("log.csv", as_csv(rows))):
        (place / name).write_bytes(data)
        found.append(tables(str(place / name), place / f"of-{name}"))
    assert found[1] == found[0]
    assert found[2] == found[0]


ROWS: list[Row] = [
    ("007", "tea", "2", None, "de"),
    ("008", 'milk, "hot"', None, "hi\nthere", None),
    ("9", "Tea ", "1", None, "de"),
]


@pytest.mark.parametrize("name", ["log[1].csv", "log*.csv", "log[1].jsonl", "log?.jsonl", "[a].parquet"])
def test_a_file_whose_name_looks_like_a_pattern_is_read_alone(name: str, tmp_path: Path) -> None:
    made = {"csv": as_csv, "jsonl": as_lines, "parquet": as_parquet}[name.rpartition(".")[2]]
    (tmp_path / name).write_bytes(made(ROWS))
    for other in ("log1", "log2", "a"):
        (tmp_path / f"{other}{Path(name).suffix}").write_bytes(made([("x", "another log", "1", None, None)]))
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "log.csv").write_bytes(as_csv(ROWS))
    assert tables(str(tmp_path / name), tmp_path / "out") == tables(str(tmp_path / "plain" / "log.csv"), tmp_path / "of-plain")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("log.csv", as_csv(ROWS)),
        ("log.csv", b"\xef\xbb\xbf" + as_csv(ROWS, newline="\r\n")),
        ("log.csv", as_csv(ROWS, delimiter=";")),
        ("log.csv", as_csv(ROWS, delimiter="\t")),
        ("LOG.CSV", as_csv(ROWS)),
        ("log.tsv", as_csv(ROWS, delimiter="\t", quoted=True)),
        ("log.csv.gz", gzip.compress(as_csv(ROWS), mtime=0)),
        ("log.tsv.zst", pa.compress(as_csv(ROWS, delimiter="\t", quoted=True), "zstd", asbytes=True)),
        ("log.jsonl", as_lines(ROWS)),
        ("log.ndjson", as_lines(ROWS).replace(b"}\n", b"}\n\n")),
        ("log.json.gz", gzip.compress(as_lines(ROWS), mtime=0)),
        ("log[1].csv", as_csv(ROWS)),
        ("log'*.jsonl", as_lines(ROWS)),
    ],
)
def test_a_file_is_read_in_the_form_that_its_ending_says(name: str, data: bytes, tmp_path: Path) -> None:
    (tmp_path / "as").mkdir()
    (tmp_path / "as" / name).write_bytes(data)
    (tmp_path / "log.parquet").write_bytes(as_parquet(ROWS))
    expected = tables(str(tmp_path / "log.parquet"), tmp_path / "a")
    assert tables(str(tmp_path / "as"), tmp_path / "b") == expected
    assert tables(str(tmp_path / "as" / name), tmp_path / "c") == expected
    assert [row["log_id"] for row in expected["query_map"]] == ["007", "008", "9"]
    assert [(row["query"], row["log_count"]) for row in expected["queries"] if row["normalised"] == "tea"] == [("tea", 3)]


UNQUOTED = ['"fixed loop knot', "how to join two ropes", 'onions "', '"sheet bend"', '"fixed loop" knot', 'water on the road"']


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("further", [b"", b"x\tcaf\xe9"])  # Python reads what is not UTF-8
def test_a_tsv_without_quotes_has_a_record_in_each_line(further: bytes, ending: str, tmp_path: Path) -> None:
    lines = ["id\tquery", *(f"{place}\t{query}" for place, query in enumerate(UNQUOTED))]
    (tmp_path / "log.tsv").write_bytes((ending.join(lines) + ending).encode() + further + ending.encode() * bool(further))
    found = tables(str(tmp_path / "log.tsv"), tmp_path / "out", LogColumns("query", "id"))
    assert sorted(row["query"] for row in found["queries"]) == sorted(UNQUOTED)
    assert len(found["query_map"]) == len(UNQUOTED) + bool(further)


def test_rows_are_named_by_file_and_row_and_partitions_are_columns(tmp_path: Path) -> None:
    for day, text in (("01", "query\ntea\n\nmilk\n"), ("02", "query\ntea\n")):
        (tmp_path / "log" / f"day={day}").mkdir(parents=True)
        (tmp_path / "log" / f"day={day}" / "x.csv").write_text(text)
    found = tables(str(tmp_path / "log"), tmp_path / "out", LogColumns("query", values=("day",)))
    assert [row["log_id"] for row in found["query_map"]] == [
        "day=01/x.csv#0",
        "day=01/x.csv#1",
        "day=01/x.csv#2",
        "day=02/x.csv#0",
    ]
    assert [(row["log_id"], row["reason"]) for row in found["errors"]] == [("day=01/x.csv#1", "empty")]  # a blank line
    assert {row["query"]: dict(row["values"]) for row in found["queries"]} == {"tea": {"day": "01"}, "milk": {"day": "01"}}
    (file, _) = find_log_files(str(tmp_path / "log"))
    assert (has_values(file, COLUMNS, "day"), has_values(file, COLUMNS, "query"), has_values(file, COLUMNS, "x")) == (
        True, True, False,
    )  # fmt: skip


@pytest.mark.parametrize("empty", ["id", "query", "n", "turns", "market", "none of its rows"])
def test_a_column_of_nulls_in_one_shard_has_no_type(empty: str, tmp_path: Path) -> None:
    tables_of = []
    for kind in (pa.null(), pa.string()):
        folder = tmp_path / str(kind)
        folder.mkdir()
        (folder / "part-0.parquet").write_bytes(as_parquet(ROWS))
        second = pq.read_table(io.BytesIO(as_parquet([("x", "coffee", "2", "milk", "en")])))
        for name in NAMES if empty not in NAMES else (empty,):
            to = pa.list_(kind) if name in ("turns", "market") else pa.int64() if (name, kind) == ("n", pa.string()) else kind
            second = second.set_column(second.column_names.index(name), name, pa.nulls(len(second), to))
        pq.write_table(second if empty in NAMES else second.slice(0, 0), folder / "part-1.parquet")
        tables_of.append(tables(str(folder), tmp_path / f"of-{kind}"))
    assert tables_of[0] == tables_of[1]
    assert len(tables_of[0]["query_map"]) == len(ROWS) + (empty in NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 70_000])  # the latter in a later batch than the first
def test_text_that_is_not_utf8_rejects_its_row_alone(rows: int, tmp_path: Path) -> None:
    lines = [b"%d,q%d" % (place, place % 5) for place in range(rows)]
    (tmp_path / "log.csv").write_bytes(
        b"\n".join([b"id,query", *lines, b"a,caf\xe9", b'b,"two\nlines"', b"c,", b"d,tea"]) + b"\n"
    )
    found = tables(str(tmp_path / "log.csv"), tmp_path / "out", LogColumns("query", "id"))
    assert [row["log_id"] for row in found["query_map"]] == [*map(str, range(rows)), "a", "b", "c", "d"]
    assert [(row["log_id"], row["reason"]) for row in found["errors"]] == [("a", "not_utf8"), ("c", "empty")]
    assert {"two\nlines", "tea"} <= {row["query"] for row in found["queries"]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("query,id\ntea,1\nmilk\n", "line 3: has 1 fields, and the header 2; correct it, or put a field in quotes"),
        ("query,id\ntea,1\nmilk,hot,2\n", "line 3: has 3 fields, and the header 2"),
        ('query,id\ntea,1\n"milk" hot,2\n', "line 3: a quote that is not closed, or text behind one that is"),
        ('query,id\ntea,1\n"milk,2\ncoffee,3\n', "line 3: a quote that is not closed, or text behind one that is"),
        ('query,"id\ntea,1\n', "line 1: a quote that is not closed"),
        ("\nquery,id\n", "line 1: is blank; let it name the columns"),
        ("\ufeffquery,id\n".encode("utf-16").decode("latin-1"), "is UTF-16; write it as UTF-8"),
        ("qu\xe9ry,id\ntea,1\n", "line 1: is not UTF-8; write the file as UTF-8"),
        ("query,id\n\xe9,1\nmilk\n", "line 3: has 1 fields, and the header 2"),
        ('query,id\n\xe9,1\n"milk" x,2\n', "line 3: a quote that is not closed"),
        ("query,query\ntea,1\n", "column 'query' (log.query_column) stands in it more than once; name another"),
        ("Query,id\ntea,1\n", "no column 'query' (log.query_column); did you mean 'Query'?"),
    ],
)
def test_csv_that_is_wrong_is_refused_with_its_line(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(text.encode("latin-1"))
    error = refusal(str(tmp_path / "log.csv"), tmp_path / "out")
    assert f"log file {tmp_path}/log.csv" in str(error)
    assert words in str(error)
    assert error.code in ("log-unreadable", "log-column")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('query\tid\ntea\t1\n"milk ""hot"""\t2\n', "line 3: has a field in the quotes of CSV; name the file .csv"),
        ('query\tid\ntea\t1\n""\t2\n', "line 3: has a field in the quotes of CSV"),
        ('query\tid\n\xe9\t1\n"milk ""hot"""\t2\n', "line 3: has a field in the quotes of CSV"),  # Python reads it
        ('query\tid\n"milk\nhot"\t2\n', "line 2: has 1 fields, and the header 2; correct it, or name the file .csv, if its"),
        ('query\tid\n\xe9\t1\n"milk\thot"\t2\n', "line 3: has 3 fields, and the header 2; correct it, or name the file .csv"),
    ],
)
def test_a_tsv_with_quotes_in_its_fields_alone_is_refused_with_its_line(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "log.tsv").write_bytes(text.encode("latin-1"))
    assert words in str(refusal(str(tmp_path / "log.tsv"), tmp_path / "out"))


@pytest.mark.parametrize("text", ["", "query\n", "\n\n", "query,id\n\n\n"])
def test_csv_without_rows_is_empty(text: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(text)
    assert refusal(str(tmp_path / "log.csv"), tmp_path / "out").code == "log-empty"


@pytest.mark.parametrize(
    ("name", "text", "columns", "words"),
    [
        ("log.jsonl", '{"query": "tea"}\n{"query": {"text": "milk"}}\n', QUERY,
         "line 2: field 'query' (log.query_column) holds an object, wanted text or whole numbers"),
        ("log.jsonl", '{"query": "tea", "id": 1.5}\n', LogColumns("query", "id"),
         "line 1: field 'id' (log.id_column) holds a number with a fraction"),
        ("log.jsonl", '{"query": "tea"}\n{"que', QUERY, "line 2: no JSON: it begins with"),
        ("log.json", '[{"query": "tea"}]', QUERY, "line 1: a JSON array, wanted an object"),
        ("log.jsonl", '{"action_name": "x"}\n', QUERY, "no field 'query' (log.query_column) in its first 1,000 obj"),
        ("log.csv", "query,n\ntea,1\nmilk,two\n", LogColumns("query", count_column="n"),
         "row 1: column 'n' (log.count_column): Failed to parse string: 'two'"),
        ("log.csv", "query,n\ntea,1\nmilk,-2\n", LogColumns("query", count_column="n"),
         "row 1: column 'n' (log.count_column) is -2"),
    ],
)  # fmt: skip
def test_values_that_cannot_be_are_refused_with_their_row(
    name: str, text: str, columns: LogColumns, words: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    assert words in str(refusal(str(tmp_path / name), tmp_path / "out", columns))


def test_whole_numbers_in_json_keep_their_form(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(
        '{"id": "007", "query": "tea"}\n{"id": 7, "query": 2024}\n{"id": 18446744073709551615, "query": "x"}\n'
    )
    found = tables(str(tmp_path / "log.jsonl"), tmp_path / "out", LogColumns("query", "id"))
    assert [row["log_id"] for row in found["query_map"]] == ["007", "7", "18446744073709551615"]
    assert {row["query"] for row in found["queries"]} == {"tea", "2024", "x"}


def test_beside_parquet_nothing_else_of_a_folder_counts(tmp_path: Path) -> None:
    (tmp_path / "log.parquet").write_bytes(as_parquet(ROWS))
    (tmp_path / "log.csv").write_bytes(as_csv(ROWS))
    assert [file.name for file in find_log_files(str(tmp_path))] == ["log.parquet"]
    assert len(find_log_files([str(tmp_path), str(tmp_path / "log.csv")])) == 2  # what is named itself counts


def test_two_forms_in_a_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(as_csv(ROWS))
    (tmp_path / "a.jsonl").write_bytes(as_lines(ROWS))
    assert str(refusal(str(tmp_path), tmp_path / "out")) == (
        f"log.path {tmp_path}: holds lines of JSON and CSV, which may be the same rows (a.csv, a.jsonl); "
        "name the files, or a folder of one form"
    )


def test_a_log_on_s3(s3: S3Server, tmp_path: Path) -> None:
    there = open_storage(s3.fresh("text-log"))
    for name, data in (("a/0.csv.gz", gzip.compress(as_csv(ROWS))), ("a/1.csv", as_csv([("x", "coffee", None, None, None)]))):
        (tmp_path / "here" / "a").mkdir(parents=True, exist_ok=True)
        (tmp_path / "here" / name).write_bytes(data)
        there.put(name, data)
    assert tables(there.root, tmp_path / "a") == tables(str(tmp_path / "here"), tmp_path / "b")
    files = find_log_files(there.root)
    groups = check_log(files, COLUMNS)
    there.put("a/1.csv", as_csv(ROWS[:1]))
    assert len(groups) == 2
    with pytest.raises(LogError, match="was replaced since it was listed"):
        dedup(files, COLUMNS, open_storage(str(tmp_path / "c")), 10)

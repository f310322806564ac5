"""One table of formats for all inputs: what the same rows give in any form, and what is refused, with its line."""

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

from cluster.errors import LogError, RetrieverError
from cluster.storage import open_storage
from jobs.index.sources import passages
from jobs.log.check import LogColumns, check_log, has_values
from jobs.log.files import find_log_files
from jobs.log.judgements import read_answers, read_qrels
from jobs.log.rows import read_rows
from jobs.log.table_file import FORMS, TableFault, open_table
from retrievers.corpora.corpus import content_of
from retrievers.settings import CorpusSettings
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.logs import QUERY, Tables, refused, tables_of

Row = tuple[str | None, ...]


def as_form(name: str, names: Sequence[str], rows: Sequence[Row], *, delimiter: str = ",", newline: str = "\n") -> bytes:
    """The rows: TSV without quotes; in CSV a null is an empty field, and an empty text stands in quotes, as in pandas."""
    form, _, packed = name.lower().partition(".")[2].partition(".")
    if form in ("parquet", "pq"):
        columns = zip(names, zip(*rows, strict=True), strict=True)
        out = io.BytesIO()
        pq.write_table(pa.table({name: pa.array(column, pa.string()) for name, column in columns}), out)
        return out.getvalue()
    if form == "csv":
        fields = (("" if one is None else '"' + one.replace('"', '""') + '"' for one in row) for row in (names, *rows))
        lines = [delimiter.join(row) for row in fields]
    elif form == "tsv":
        lines = ["\t".join(one or "" for one in row) for row in (names, *rows)]
    else:
        lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows]
    data = "".join(line + newline for line in lines).encode()
    return gzip.compress(data) if packed == "gz" else pa.compress(data, "zstd", asbytes=True) if packed == "zst" else data


def write_form(path: Path, names: Sequence[str], rows: Sequence[Row]) -> str:
    """Writes the rows in the form that the path says; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(as_form(path.name, names, rows))
    return str(path)


ALL_COLUMNS = LogColumns("query", "id", context_column="turns", values=("market",))
COLUMNS = LogColumns("query", "id", "n", context_column="turns", values=("market",))
NAMES = ("id", "query", "n", "turns", "market")
ROWS: list[Row] = [
    ("007", "tea", "2", None, "de"), ("008", 'milk, "hot"', None, "hi there", None), ("9", "Tea ", "1", None, "de"),
]  # fmt: skip
DOCUMENTS: list[Row] = [("007", "Tides", "The moon pulls the sea."), ("7", None, 'A "bright" lamp,'), ("d 1", "Bread", "Rye")]
ENDINGS = [ending for endings in FORMS.values() for ending in endings]


def content(path: str, folder: Path, columns: CorpusSettings | None = None) -> tuple[int, str]:
    """Returns the rows of a corpus."""
    columns = columns or CorpusSettings()
    folder.mkdir(exist_ok=True)
    files = passages([path], columns, folder, lambda what, done, total: None)[0]
    return content_of(files, lambda what, done, total: None, columns)


# ---------------------------------------------------------------- any form


@pytest.fixture(scope="module")
def of_parquet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tables, tuple[int, str]]:
    """The tables of a log and the rows of a corpus in Parquet."""
    folder = tmp_path_factory.mktemp("parquet")
    log = tables_of(write_form(folder / "log.parquet", NAMES, ROWS), ALL_COLUMNS)
    corpus = write_form(folder / "c.parquet", ("doc_id", "title", "text"), DOCUMENTS)
    return log, content(corpus, folder / "made")


@pytest.mark.parametrize("ending", [*ENDINGS, ".CSV"])
def test_every_input_is_read_in_every_form(ending: str, tmp_path: Path, of_parquet: tuple[Tables, tuple[int, str]]) -> None:
    expected, documents = of_parquet
    write_form(tmp_path / "log" / f"a{ending}", NAMES, ROWS)
    assert tables_of(str(tmp_path / "log"), ALL_COLUMNS) == expected
    assert [row["log_id"] for row in expected["query_map"]] == ["007", "008", "9"]
    rows: list[Row] = [("l1", "d1", "2"), ("l1", "d2", "0.0"), ("tea", "d1", "-1")]
    for names in (("log_id", "doc_id", "grade"), ("query-id", "corpus-id", "score")):
        qrels = write_form(tmp_path / f"qrels{ending}", names, rows)
        assert read_qrels(qrels).grades == {"l1": {"d1": 2, "d2": 0}, "tea": {"d1": -1}}
    answers = write_form(tmp_path / f"answers{ending}", ("log_id", "answer"), [("l1", 'the "North"'), ("l1", "a, b")])
    assert read_answers(answers, "log_id") == {"l1": ['the "North"', "a, b"]}
    corpus = write_form(tmp_path / f"c{ending}", ("doc_id", "title", "text"), DOCUMENTS)
    assert content(corpus, tmp_path / "made") == documents


TEXT = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12),
    st.sampled_from(
        ['say "hi"', '"', "a,b", "a;b", "a\tb", "two\nlines", "two\r\nlines", "null", "NA", " tea ", "007", "1e3", "2024-01-31"]
    ),
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(*[st.none() | TEXT] * 5), min_size=1, max_size=12))
def test_the_same_rows_give_the_same_tables(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> None:
    rows = [(f"{place}{row[0] or ''}", *row[1:]) for place, row in enumerate(rows)]  # unique ids
    rows.append(("last", "why is the sky blue", None, None, "de"))  # a log needs one query
    place = tmp_path_factory.mktemp("forms")
    corpus = CorpusSettings(id_column="id", text_column="query")
    paths = [write_form(place / f"log.{form}", NAMES, rows) for form in ("parquet", "jsonl", "csv")]
    found = [tables_of(path, ALL_COLUMNS) for path in paths]
    assert found == [found[0]] * 3
    assert len({content(path, place / "made", corpus) for path in paths}) == 1


@pytest.mark.parametrize("name", ["log[1].csv", "log*.csv", "log[1].jsonl", "log?.jsonl", "[a].parquet", "log'*.jsonl"])
def test_a_file_whose_name_looks_like_a_pattern_is_read_alone(name: str, tmp_path: Path) -> None:
    for other in ("log1", "log2", "a"):
        write_form(tmp_path / f"{other}{Path(name).suffix}", NAMES, [("x", "another log", "1", None, None)])
    path = write_form(tmp_path / name, NAMES, ROWS)
    found = tables_of(path, LogColumns("query", "id"))["query_map"]
    assert [row["log_id"] for row in found] == ["007", "008", "9"]


@pytest.mark.parametrize(("delimiter", "newline", "start"), [(";", "\n", ""), ("\t", "\n", ""), (",", "\r\n", "\ufeff")])
def test_forms_of_csv(delimiter: str, newline: str, start: str, tmp_path: Path) -> None:
    data = as_form("log.csv", NAMES, ROWS, delimiter=delimiter, newline=newline)
    expected = tables_of(write_form(tmp_path / "plain.csv", NAMES, ROWS), COLUMNS)
    for name in ("log.csv", *(("quoted.tsv",) if delimiter == "\t" else ())):
        (tmp_path / name).write_bytes(start.encode() + data)
        assert tables_of(str(tmp_path / name), COLUMNS) == expected


UNQUOTED = ['"fixed loop knot', "how to join two ropes", 'onions "', '"sheet bend"', '"fixed loop" knot', 'water on the road"']


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("further", [b"", b"x\tcaf\xe9"])  # read from a copy
def test_a_tsv_without_quotes_has_a_record_in_each_line(further: bytes, ending: str, tmp_path: Path) -> None:
    rows = [(str(place), query) for place, query in enumerate(UNQUOTED)]
    data = as_form("log.tsv", ("id", "query"), rows, newline=ending)
    (tmp_path / "log.tsv").write_bytes(data + further + ending.encode() * bool(further))
    found = tables_of(str(tmp_path / "log.tsv"), LogColumns("query", "id"))
    assert sorted(row["query"] for row in found["queries"]) == sorted(UNQUOTED)
    assert len(found["query_map"]) == len(UNQUOTED) + bool(further)


def test_columns_of_json_that_are_no_text(tmp_path: Path) -> None:
    more: list[dict[str, Any]] = [
        {"id": 18446744073709551615, "turns": ["a", None, "b"], "n": 3, "market": "de", "sizes": [41, 42.5], "flag": True},
        {"id": "007", "turns": "one text", "n": "2", "market": None, "sizes": [], "flag": False, "query": 2024},
        {"id": 7},
    ]
    lines = [json.dumps({"query": f"query {n}"} | one) for n, one in enumerate(more)]
    columns = LogColumns("query", "id", "n", context_column="turns", values=("market", "sizes", "flag", "country"))
    for wrapped in (False, True):
        path = tmp_path / f"log-{wrapped}" / "country=is" / "a.json"
        path.parent.mkdir(parents=True)
        path.write_text("\n\n".join(f'{{"_source": {line}}}' if wrapped else line for line in lines))
        found = tables_of(str(path.parents[1]), columns)
        assert [row["log_id"] for row in found["query_map"]] == ["18446744073709551615", "007", "7"]
        assert {row["query"]: (row["log_count"], row["context"], dict(row["values"])) for row in found["queries"]} == {
            "query 0": (3, "a\nb", {"market": "de", "sizes": "41; 42.5", "flag": "true", "country": "is"}),
            "2024": (2, "one text", {"market": None, "sizes": None, "flag": "false", "country": "is"}),
            "query 2": (1, None, {"market": None, "sizes": None, "flag": None, "country": "is"}),
        }


def test_rows_are_named_by_file_and_row_and_partitions_are_columns(tmp_path: Path) -> None:
    for name, text in (("day=01/x.csv", "query\ntea\n\nmilk\n"), ("day=02/x.csv", "query\ntea\n")):
        (tmp_path / "log" / name).parent.mkdir(parents=True)
        (tmp_path / "log" / name).write_text(text)
    found = tables_of(str(tmp_path / "log"), LogColumns("query", values=("day",)))
    assert [row["log_id"] for row in found["query_map"]] == [
        f"day=0{day}/x.csv#{row}" for day, row in ((1, 0), (1, 1), (1, 2), (2, 0))
    ]
    assert [(row["log_id"], row["reason"]) for row in found["errors"]] == [("day=01/x.csv#1", "empty")]  # a blank line
    assert {row["query"]: dict(row["values"]) for row in found["queries"]} == {"tea": {"day": "01"}, "milk": {"day": "01"}}
    (file, _) = find_log_files(str(tmp_path / "log"))
    assert [has_values(file, name) for name in ("day", "query", "x")] == [True, True, False]
    (tmp_path / "b.jsonl").write_text('\n{"query": "x", "id": null}\n{"query": "y", "id": 7}\n\n')
    found = tables_of(str(tmp_path / "b.jsonl"), LogColumns("query", "id"))
    assert [row["log_id"] for row in found["query_map"]] == ["b.jsonl#0", "7"]


@pytest.mark.parametrize("empty", ["id", "query", "n", "turns", "market", "none of its rows"])
def test_a_column_of_nulls_in_one_shard_has_no_type(empty: str, tmp_path: Path) -> None:
    found = []
    for kind in (pa.null(), pa.string()):
        folder = tmp_path / str(kind)
        write_form(folder / "part-0.parquet", NAMES, ROWS)
        second = pq.read_table(write_form(folder / "part-1.parquet", NAMES, [("x", "coffee", "2", "milk", "en")]))
        for name in NAMES if empty not in NAMES else (empty,):
            to = pa.list_(kind) if name in ("turns", "market") else kind
            second = second.set_column(second.column_names.index(name), name, pa.nulls(len(second), to))
        pq.write_table(second if empty in NAMES else second.slice(0, 0), folder / "part-1.parquet")
        found.append(tables_of(str(folder), ALL_COLUMNS))
    assert found[0] == found[1]
    assert len(found[0]["query_map"]) == len(ROWS) + (empty in NAMES)


# ---------------------------------------------------------------- text that is not UTF-8


@pytest.mark.parametrize(
    "rows", [1, pytest.param(70_000, marks=pytest.mark.slow)]
)  # the latter in a later batch than the first
def test_csv_that_is_not_utf8_rejects_its_rows_alone(rows: int, tmp_path: Path) -> None:
    lines = [b"%d,q%d" % (place, place % 5) for place in range(rows)]
    (tmp_path / "log.csv").write_bytes(
        b"\n".join([b"id,query", *lines, b"a,caf\xe9", b'b,"two\nlines"', b"c,", b"d,tea"]) + b"\n"
    )
    found = tables_of(str(tmp_path / "log.csv"), LogColumns("query", "id"))
    assert [row["log_id"] for row in found["query_map"]] == [*map(str, range(rows)), "a", "b", "c", "d"]
    assert [(row["log_id"], row["reason"]) for row in found["errors"]] == [("a", "not_utf8"), ("c", "empty")]
    assert {"two\nlines", "tea"} <= {row["query"] for row in found["queries"]}


@pytest.mark.parametrize("before", [0, 3000], ids=["in the head", "later"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "hits"])
def test_json_that_is_not_utf8_rejects_its_rows_alone(tmp_path: Path, before: int, wrapped: bool) -> None:
    """Half a surrogate pair is what exporters write of a text that was cut in an emoji; DuckDB refuses such a file."""
    good = {"tags": ["a", None, 1.5], "size": 42, "all": {"é": [1, True]}}
    texts = [*(f"query {n}" for n in range(before)), "cut %", "caf@", "whole \U0001f600", "query 1"]
    rows = [{"query": text, "id": f"q{n}"} | good for n, text in enumerate(texts)]
    lines = "".join(json.dumps({"_source": row} if wrapped else row, ensure_ascii=False) + "\n\n" for row in rows).encode()
    lines = (
        lines.replace(b"%", b"\\ud83d").replace(b"@", b"\xe9").replace(b'"id": "q1"', b'"id": "x", "id": "q1"')
    )  # the last holds
    (tmp_path / "a.ndjson.gz").write_bytes(gzip.compress(lines))
    found = tables_of(str(tmp_path / "a.ndjson.gz"), LogColumns("query", "id", values=("all", "size", "tags")))
    assert sorted((row["reason"], row["message"], row["raw"], row["log_id"]) for row in found["errors"]) == [
        ("not_utf8", "the query is not UTF-8 (byte 3)", "caf\ufffd", f"q{before + 1}"),
        ("not_utf8", "the query is not UTF-8 (byte 4)", "cut \ufffd\ufffd\ufffd", f"q{before}"),
    ]
    assert [row["log_id"] for row in found["query_map"]] == [f"q{n}" for n in range(before + 4)]
    assert {tuple(dict(row["values"]).values()) for row in found["queries"]} == {('{"é":[1,true]}', "42", "a; 1.5")}
    assert "whole \U0001f600" in {row["query"] for row in found["queries"]}


# ---------------------------------------------------------------- what is refused


def read_first_column(path: str) -> list[pa.RecordBatch]:
    table = open_table(path)
    assert table is not None
    return list(table.batches(table.names[:1], 1000, any_bytes=True))


QUOTE = "a quote that is not closed, or text behind one that is"
FAULTS = [
    ("a.csv", 'query,id\ntea,1\n"milk" hot,2\n', 3, QUOTE),
    ("a.csv", 'query,id\ntea,1\n"milk,2\ncoffee,3\n', 3, QUOTE),
    ("a.csv", 'query,"id\ntea,1\n', 1, "a quote that is not closed"),
    ("a.csv", "\nquery,id\n", 1, "is blank; let it name the columns"),
    ("a.csv", "\ufeffquery,id\n".encode("utf-16").decode("latin-1"), None, "is UTF-16; write it as UTF-8"),
    ("a.csv", "qu\xe9ry,id\ntea,1\n", 1, "is not UTF-8; write the file as UTF-8"),
    ("a.csv", 'query,id\n\xe9,1\n"milk" x,2\n', 3, "a quote that is not closed"),
    ("a.tsv", 'query\tid\ntea\t1\n"milk ""hot"""\t2\n', 3, "has a field in the quotes of CSV; name the file .csv"),
    ("a.tsv", 'query\tid\ntea\t1\n""\t2\n', 3, "has a field in the quotes of CSV"),
    ("a.tsv", 'query\tid\n\xe9\t1\n"milk ""hot"""\t2\n', 3, "has a field in the quotes of CSV"),
    ("a.json", "query,id\nx,1\n", 1, "no JSON: it begins with 'query,id'; write an object a line"),
    ("a.json", '{\n "query": "x"\n}\n', 1, "an object or array over several lines"),
    ("a.json", '[{"query": "x"}]', 1, "a JSON array, wanted an object"),
    ("a.json", '{"took": 3, "hits": {"hits": []}}', 1, "a whole answer of a search; write an object a line"),
    ("a.json", '{"index": {"_index": "q"}}\n{"query": "x"}', 1, "an action of the bulk API"),
    ("a.json", '{"query": "x"}\n{"_source": {"query": "y"}}', 2, "some objects are wrapped in _source, some"),
    ("a.csv", 'query,id\ntea,1\n"milk\nhot",2,3\n', 3, "has 3 fields, and the header 2"),  # a quote may be wrong
    ("a.parquet", "", None, "cannot be read as Parquet: Parquet file size is 0 bytes; copy it again"),
    ("a.pq", "id,query\n", None, "cannot be read as Parquet: "),
    ("a.json.gz", '{"query": "x"}\n', None, "cannot be read (zlib inflate failed: incorrect header check); make it readable"),
]


@pytest.mark.parametrize(("name", "text", "line", "words"), FAULTS)
def test_a_table_that_is_wrong_is_refused_with_its_line(
    name: str, text: str, line: int | None, words: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(TableFault) as fault:
        read_first_column(str(path))
    assert fault.value.at == ("" if line is None else f", line {line:,}")
    assert words in fault.value.message
    error = refused(str(path))
    assert str(error).startswith(f"log file {path}{fault.value.at}: {fault.value.message}")
    assert error.code == "log-files"
    assert "\n" not in str(error)


MALFORMED = [
    ("a.csv", "query,id\ntea,1\nmilk\n", 1, 3, "has 1 fields, and the header 2; correct it, or put a field in quotes"),
    ("a.csv", "query,id\ntea,1\na,b,2\nrye,3", 1, 3, "has 3 fields, and the header 2; correct it, or put a field in quotes"),
    ("a.csv", "query,id\n\xe9,1\nmilk\ntea,2", 1, 3, "has 1 fields, and the header 2; correct it, or put a field in quotes"),
    ("a.tsv", 'query\tid\ntea\t1\n"milk\thot"\t2\n', 1, 3,
     "has 3 fields, and the header 2; correct it, or name the file .csv, if its fields are in quotes"),
    ("a.json", '{"query": "x"}\n\n{"que', 1, 3, "no JSON: it begins with '{\"que'; write an object a line, as jq -c does"),
    ("a.json", '{"query": "x"}\n' * 3000 + '\n[1]\n{"query": "y"}', 3000, 3002,
     "a JSON array, wanted an object; write an object a line, as jq -c does"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "row", "line", "words"), MALFORMED)
def test_a_line_of_a_log_that_is_no_record_is_rejected_alone(
    name: str, text: str, row: int, line: int, words: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    found = tables_of(str(tmp_path / name))
    assert [(one["log_id"], one["message"]) for one in found["errors"] if one["reason"] == "malformed"] == [
        (f"{name}#{row}", f"line {line:,}: {words}")
    ]
    records = len([one for one in text.splitlines() if one]) - (not name.endswith("json"))
    assert [one["log_id"] for one in found["query_map"]] == [f"{name}#{number}" for number in range(records)]
    table = open_table(str(tmp_path / name))
    assert table is not None
    with pytest.raises(TableFault):  # of what is no log
        list(table.batches(table.names, 1000))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("c.csv", "doc_id,text\na\n", ", line 2: has 1 fields, and the header 2"),
        ("c.csv", "doc_id,text\na,caf\xe9\n", ", line 2: is not UTF-8; write the file as UTF-8"),
        ("c.csv", "doc_id,text,text\na,b,c\n", ": two columns are called 'text'; rename one"),
        ("c.csv", "id,body\na,b\n", ": no column 'doc_id'; it has: id, body; name one of them in the config"),
        ("c.csv", "", ": no documents in it"),
        ("c.jsonl", '{"doc_id": "a", "text": "b"}\n{"doc', ", line 2: no JSON: it begins with '{\"doc'"),
        ("c.jsonl", '{"doc_id": 1.5, "text": "b"}\n', ": column 'doc_id' must be string or integer, found double"),
        ("c.jsonl", '{"doc_id": "a", "text": "b"}\n{"doc_id": 1.5}\n', ": column 'doc_id' must be string or integer"),
        ("c.jsonl", '{"doc_id": 1, "text": "b"}\n{"doc_id": 2, "text": 3}\n', ": column 'text' must be string, found ubigint"),
        ("c.jsonl", '{"doc_id": 1, "text": {"de": "b"}}\n', ": column 'text' must be string, found "),
        ("c.jsonl", '{"doc_id": 1, "text": "b", "Text": "c"}\n', ": two columns are called 'text'; rename one"),
        ("c.jsonl", '["a", "b"]\n', ", line 1: a JSON array, wanted an object"),
        ("c.jsonl", '{"doc_id": 1, "text": "caf\xe9"}\n', ", line 1: is not UTF-8; write the file as UTF-8"),
        ("c.parquet", "text", ": cannot be read as Parquet"),
    ],
)  # fmt: skip
def test_a_corpus_that_is_wrong_is_refused_with_its_line(name: str, text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(RetrieverError) as refused:
        content(str(tmp_path / name), tmp_path / "made")
    assert str(refused.value).startswith(f"corpus {tmp_path / name}{words}")


@pytest.mark.parametrize(
    ("name", "text", "columns", "words"),
    [
        ("log.jsonl", '{"query": "tea"}\n{"query": {"text": "milk"}}\n', QUERY,
         "line 2: column 'query' (log.query_column) holds an object, wanted text or whole numbers"),
        ("log.jsonl", '{"query": "tea", "id": 1.5}\n', LogColumns("query", "id"),
         "line 1: column 'id' (log.id_column) holds a number with a fraction"),
        ("log.jsonl", '{"querry": "x"}\n', QUERY, "no column 'query' (log.query_column) in its first 1,000 objects;"),
        ("log.csv", "query,n\ntea,1\nmilk,two\n", LogColumns("query", count_column="n"),
         "row 1: column 'n' (log.count_column): Failed to parse string: 'two'"),
        ("log.csv", "query,n\ntea,1\nmilk,-2\n", LogColumns("query", count_column="n"),
         "row 1: column 'n' (log.count_column) is -2"),
        ("log.csv", "query,query\ntea,1\n", QUERY, "column 'query' (log.query_column) appears more than once"),
        ("log.csv", "Query,id\ntea,1\n", QUERY, "no column 'query' (log.query_column); did you mean 'Query'?"),
        *((name, text, QUERY, "the log is empty") for name, text in (
            ("l.csv", ""), ("l.csv", "query\n"), ("l.csv", "\n\n"), ("l.csv", "query,id\n\n\n"), ("l.json", "\n \n"))),
    ],
)  # fmt: skip
def test_values_that_cannot_be_are_refused_with_their_row(
    name: str, text: str, columns: LogColumns, words: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    assert words in str(refused(str(tmp_path / name), columns))


def test_a_log_that_breaks_off_when_it_is_read_is_refused(tmp_path: Path) -> None:
    data = as_form("b.json.gz", ("query",), [(f"query {n}",) for n in range(30_000)])
    (tmp_path / "b.json.gz").write_bytes(data[:-40])
    assert str(refused(str(tmp_path / "b.json.gz"))).startswith(f"log file {tmp_path}/b.json.gz: ")


def test_of_a_folder_parquet_counts_and_two_other_forms_are_refused(tmp_path: Path) -> None:
    names: Sequence[str] = ("doc_id", "text", "query")
    for name in ("a.csv", "a.jsonl", ".hidden.parquet", "_b/x.jsonl"):
        write_form(tmp_path / "in" / name, names, [("1", "x", name)])
    words = "holds lines of JSON and CSV, which may be the same rows (a.csv, a.jsonl); name the files, or a folder of one form"
    assert str(refused(str(tmp_path / "in"))) == f"log.path {tmp_path}/in: {words}"
    with pytest.raises(RetrieverError, match=rf"^corpus {tmp_path}/in: holds lines of JSON and CSV"):
        content(str(tmp_path / "in"), tmp_path / "made")
    (tmp_path / "in" / "notes.txt").write_text("The moon pulls the sea.")
    found = passages([str(tmp_path / "in")], CorpusSettings(), tmp_path / "made", lambda *_: None)
    assert found[1] == ["1 passages of 1 documents", "left out 2 files of other kinds (1 .csv, 1 .jsonl)"]
    write_form(tmp_path / "in" / "a.parquet", names, [("1", "x", "rows")])
    assert [file.name for file in find_log_files(str(tmp_path / "in"))] == ["a.parquet"]
    assert len(find_log_files([str(tmp_path / "in"), str(tmp_path / "in" / "a.csv")])) == 2  # what is named itself counts
    assert content(str(tmp_path / "in"), tmp_path / "made")[0] == 1


# ---------------------------------------------------------------- corpora


def test_columns_of_a_json_corpus_have_the_type_of_their_values(tmp_path: Path) -> None:
    documents: list[dict[str, Any]] = [
        {"doc_id": "007", "text": "tea", "page": 3, "day": "2024-01-31", "tags": ["a", "b"], "ok": True, "size": 1},
        {"doc_id": 18446744073709551615, "text": "milk", "page": None, "day": None, "tags": [], "mixed": 7, "size": 1.5},
        {"doc_id": -7, "text": None, "mixed": "seven", "of": {"x": [1, {"y": None}]}, "nothing": None},
    ]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(one) + "\n" for one in documents))
    (source,) = passages([str(tmp_path / "c.jsonl")], CorpusSettings(), tmp_path, lambda *_: None)[0]
    assert not isinstance(source, str)
    first, second, third = pq.read_table(source.open()).to_pylist()
    assert [row["doc_id"] for row in (first, second, third)] == ["007", "18446744073709551615", "-7"]
    assert {name: first[name] for name in ("page", "day", "tags", "ok", "size", "mixed", "of")} == {
        "page": 3, "day": "2024-01-31", "tags": ["a", "b"], "ok": True, "size": 1.0, "mixed": None, "of": None,
    }  # fmt: skip
    assert (second["tags"], second["mixed"], second["size"]) == ([], "7", 1.5)
    assert (third["mixed"], json.loads(third["of"]), third["nothing"]) == ("seven", {"x": [1, {"y": None}]}, None)


# ---------------------------------------------------------------- on S3


def test_text_on_s3(s3: S3Server, tmp_path: Path) -> None:
    there = open_storage(s3.fresh("text-log"))
    names = ("doc_id", "text")
    for name, rows in (("a/0.csv.gz", ROWS), ("a/1.csv", [("x", "coffee", None, None, None)])):
        there.put(name, Path(write_form(tmp_path / "here" / name, NAMES, rows)).read_bytes())
        there.put(f"c/{name}", Path(write_form(tmp_path / "c" / name, names, [(name, "x")])).read_bytes())
    assert tables_of(there.url("a"), COLUMNS) == tables_of(str(tmp_path / "here" / "a"), COLUMNS)
    assert content(there.url("c"), tmp_path / "made") == content(str(tmp_path / "c"), tmp_path / "made")
    files = find_log_files(there.url("a"))
    groups = check_log(files, COLUMNS)
    there.put("a/1.csv", as_form("1.csv", NAMES, ROWS[:1]))
    assert len(groups) == 2
    for reads in (lambda: list(read_rows(groups, COLUMNS)), lambda: check_log(files, COLUMNS)):
        with pytest.raises(LogError, match="was replaced since it was listed") as error:
            reads()
        assert error.value.code == "run-changed"

"""`dmqr index` over corpora of JSON lines and CSV: the index that the same rows give as Parquet, types, and refusals."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.storage import open_storage
from jobs.__main__ import main
from jobs.index.sources import passages
from retrievers.corpora.corpus import open_arrow, write_documents
from retrievers.corpora.files import COLUMNS, corpus_files, corpus_schema
from retrievers.local.index import read_index
from tests.support.cluster.s3_server import S3Server

NAMES = ("doc_id", "title", "text", "topic")
Row = tuple[str | None, ...]
ROWS: list[Row] = [
    ("007", "Tides", "The moon pulls the sea twice a day.", "sea"),
    ("7", None, 'A lamp, said to be "bright",\nfar across the sea.', None),
    ("d 1", "Bread", "Rye bread keeps for a week.", "food"),
]


def as_csv(rows: Sequence[Row], delimiter: str = ",") -> bytes:
    """The rows as DuckDB and pandas write them: a null is an empty field, an empty text stands in quotes."""
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL).writerow(NAMES)
    for row in rows:
        fields = ("" if one is None else '"' + one.replace('"', '""') + '"' for one in row)
        text.write(delimiter.join(fields) + "\n")
    return text.getvalue().encode()


def as_lines(rows: Sequence[Row]) -> bytes:
    return "".join(json.dumps(dict(zip(NAMES, row, strict=True))) + "\n" for row in rows).encode()


def as_parquet(rows: Sequence[Row]) -> bytes:
    out = io.BytesIO()
    pq.write_table(
        pa.table({name: pa.array(column, pa.string()) for name, column in zip(NAMES, zip(*rows, strict=True), strict=True)}),
        out,
    )
    return out.getvalue()


def nowhere(what: str, done: int, total: int) -> None:
    assert what in ("read", "split", "convert")
    assert done <= total


def content(path: Path, folder: Path) -> str:
    """The identity that an index has of this corpus."""
    for name in ("made", "written"):
        (folder / name).mkdir(parents=True)
    files = corpus_files(passages([str(path)], COLUMNS, folder / "made", nowhere).sources)
    return write_documents(files, corpus_schema(files), folder / "written", nowhere).content


TEXT = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=12),
    st.sampled_from(['say "hi"', '"', "a,b", "two\nlines", "two\r\nlines", "NA", "null", " tea ", "007", "2024-01-31", "é"]),
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(TEXT, st.none() | TEXT, st.none() | TEXT, st.none() | TEXT), min_size=1, max_size=9))
def test_the_same_rows_are_the_same_corpus(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> None:
    rows = [(f"{place}{row[0]}", *row[1:]) for place, row in enumerate(rows)]  # unique ids
    place, found = tmp_path_factory.mktemp("forms"), []
    for name, data in (("a.parquet", as_parquet(rows)), ("a.jsonl", as_lines(rows)), ("a.csv", as_csv(rows))):
        (place / name).write_bytes(data)
        found.append(content(place / name, place / f"of-{name}"))
    assert found == [found[0]] * 3


@pytest.fixture
def config(values: dict[str, Any], config_file: Callable[[Any], str], tmp_path: Path) -> Callable[..., str]:
    """Writes a config with an index of BM25 and these settings of the corpus."""

    def write(**corpus: Any) -> str:
        bm25 = {"kind": "local", "index": str(tmp_path / "index"), "analyzer": "english"}
        return config_file(values | {"corpus": corpus, "retrieve": {"retrievers": {"bm25": bm25}}})

    return write


def rows(index: Path) -> list[dict[str, Any]]:
    data = index / read_index(index)["data"]
    return [row for batch in open_arrow(data / "documents.arrow") for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("corpus.csv", as_csv(ROWS)),
        ("corpus.tsv.gz", gzip.compress(as_csv(ROWS, "\t"), mtime=0)),
        ("corpus.csv.zst", pa.compress(as_csv(ROWS, ";"), "zstd", asbytes=True)),
        ("corpus.ndjson", as_lines(ROWS)),
        ("corpus.json.gz", gzip.compress(as_lines(ROWS), mtime=0)),
    ],
)
def test_an_index_of_any_form(
    name: str, data: bytes, config: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "as").mkdir()
    (tmp_path / "as" / name).write_bytes(data)
    (tmp_path / "corpus.parquet").write_bytes(as_parquet(ROWS))
    assert main(["index", config(), "--corpus", str(tmp_path / "as")]) == 0
    assert [row["doc_id"] for row in rows(tmp_path / "index")] == ["007", "7", "d 1"]
    assert "3 documents, built" in capsys.readouterr().out
    for other in (tmp_path / "corpus.parquet", tmp_path / "as" / name):
        assert main(["index", config(), "--corpus", str(other)]) == 0
        assert "exists already, nothing to do" in capsys.readouterr().out


def test_a_tsv_without_quotes_has_a_document_in_each_line(config: Callable[..., str], tmp_path: Path) -> None:
    texts = ['"fixed loop knot', "join two ropes", 'a road"', '"sheet bend"']
    (tmp_path / "c.tsv").write_text("doc_id\ttext\n" + "".join(f"{place}\t{text}\n" for place, text in enumerate(texts)))
    assert main(["index", config(), "--corpus", str(tmp_path / "c.tsv")]) == 0
    assert [row["text"] for row in rows(tmp_path / "index")] == texts


def test_an_index_of_a_corpus_on_s3(s3: S3Server, config: Callable[..., str], tmp_path: Path) -> None:
    there = open_storage(s3.fresh("text-corpus"))
    there.put("part/0.csv", as_csv(ROWS[:1]))
    there.put("part/1.csv.gz", gzip.compress(as_csv(ROWS[1:])))
    there.put("lines.jsonl", as_lines(ROWS))
    assert main(["index", config(), "--corpus", there.url("part")]) == 0
    of_folder = read_index(tmp_path / "index")
    assert main(["index", config(), "--corpus", there.url("lines.jsonl")]) == 0
    assert read_index(tmp_path / "index") == of_folder


def test_columns_of_json_have_the_type_that_their_values_have(config: Callable[..., str], tmp_path: Path) -> None:
    documents: list[dict[str, Any]] = [
        {"doc_id": "007", "text": "tea", "page": 3, "day": "2024-01-31", "tags": ["a", "b"], "ok": True, "size": 1},
        {"doc_id": 18446744073709551615, "text": "milk", "page": None, "day": None, "tags": [], "mixed": 7, "size": 1.5},
        {"doc_id": -7, "text": None, "mixed": "seven", "of": {"x": [1, {"y": None}]}, "nothing": None},
    ]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in documents))
    assert main(["index", config(title_column=None), "--corpus", str(path)]) == 0
    found = {row["doc_id"]: row for row in rows(tmp_path / "index")}
    assert set(found) == {"007", "18446744073709551615", "-7"}
    first, second, third = found["007"], found["18446744073709551615"], found["-7"]
    assert {name: first[name] for name in ("page", "day", "tags", "ok", "size", "mixed", "of")} == {
        "page": 3, "day": "2024-01-31", "tags": ["a", "b"], "ok": True, "size": 1.0, "mixed": None, "of": None,
    }  # fmt: skip
    assert (second["tags"], second["mixed"], second["size"]) == ([], "7", 1.5)
    assert (third["mixed"], json.loads(third["of"]), third["nothing"]) == ("seven", {"x": [1, {"y": None}]}, None)


def test_rows_of_csv_are_split(config: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "corpus.csv").write_text('id,body\n007,"' + "The spring tide comes at new moon. " * 20 + '"\n')
    path = config(id_column="id", title_column=None, text_column="body", split={"size": 120, "overlap": 30})
    assert main(["index", path, "--corpus", str(tmp_path / "corpus.csv")]) == 0
    kept = rows(tmp_path / "index")
    assert f"{len(kept)} passages of 1 documents" in capsys.readouterr().out
    assert {row["source"] for row in kept} == {"007"}
    assert {row["doc_id"] for row in kept} == {f"007#{place}" for place in range(1, len(kept) + 1)}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("c.csv", "doc_id,text\na\n", "c.csv, line 2: has 1 fields, and the header 2"),
        ("c.csv", 'doc_id,text\na,b\nc,"d\n', "c.csv, line 3: a quote that is not closed"),
        ("c.csv", "doc_id,text\na,caf\xe9\n", "c.csv, line 2: is not UTF-8; write the file as UTF-8"),
        ("c.csv", "doc_id,text,text\na,b,c\n", "c.csv: two columns are called 'text'; rename one"),
        ("c.csv", "id,body\na,b\n", "c.csv: no column 'doc_id'; it has: id, body; name one of them in the config"),
        ("c.csv", "doc_id,text\na,b\na,c\n", "doc_id 'a' is there twice; keep one"),
        ("c.csv", "doc_id,text\n,b\n", "c.csv: a null doc_id in row 0"),
        ("c.csv", "", "c.csv: no documents in it"),
        ("c.csv", "doc_id,text\n", "c.csv: no documents in it"),
        ("c.jsonl", "", "c.jsonl: no documents in it"),
        ("c.jsonl", '{"doc_id": "a", "text": "b"}\n{"doc', "c.jsonl: cannot be read as lines of JSON, an object a line: "),
        ("c.jsonl", '{"doc_id": 1.5, "text": "b"}\n', "c.jsonl: column 'doc_id' must be string or integer, found double"),
        ("c.jsonl", '{"doc_id": "a", "text": "b"}\n{"doc_id": 1.5}\n', "'doc_id' must be string or integer, found double in"),
        ("c.jsonl", '{"doc_id": 1, "text": "b"}\n{"doc_id": 2, "text": 3}\n', "'text' must be string, found ubigint in some"),
        ("c.jsonl", '{"doc_id": 1, "text": {"de": "b"}}\n', "c.jsonl: column 'text' must be string, found "),
        ("c.jsonl", '{"doc_id": 1, "text": "b", "Text": "c"}\n', "c.jsonl: two columns are called 'text'; rename one"),
        ("c.jsonl", '["a", "b"]\n', "c.jsonl: holds JSON that is no object with fields"),
        ("c.jsonl", '{"doc_id": 1, "text": "caf\xe9"}\n', "c.jsonl: cannot be read as lines of JSON"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_by_name(
    name: str, text: str, words: str, config: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    assert main(["index", config(), "--corpus", str(tmp_path / name)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count(f"corpus {tmp_path}") == 1
    assert not (tmp_path / "index").exists()


def test_of_a_folder_parquet_counts_then_documents_then_other_tables(
    config: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(as_lines(ROWS))
    (folder / ".hidden.csv").write_bytes(as_csv(ROWS))
    index = ["index", config(), "--corpus", str(folder)]
    assert main(index) == 0
    assert "3 documents, built" in capsys.readouterr().out
    (folder / "b.csv").write_bytes(as_csv(ROWS))
    assert main(index) == 2
    assert "holds lines of JSON and CSV, which may be the same rows (a.jsonl, b.csv); name the files" in capsys.readouterr().err
    (folder / "notes.txt").write_text("The moon pulls the sea.")
    assert main([*index, "--replace"]) == 0
    assert "1 passages of 1 documents; left out 2 files of other kinds (1 .jsonl, 1 .csv)" in capsys.readouterr().out
    (folder / "a.parquet").write_bytes(as_parquet(ROWS))
    assert main([*index, "--replace"]) == 0
    assert "3 documents, built, in place of the index of another corpus" in capsys.readouterr().out

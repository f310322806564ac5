"""Judgements as people and TREC write them, and what is refused of them."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from jobs.log.judgements import Key, read_answers, read_qrels

Qrels = Callable[[str], str]


@pytest.fixture
def qrels(tmp_path: Path) -> Qrels:
    def write(text: str) -> str:
        (tmp_path / "qrels.tsv").write_bytes(text.encode())
        return str(tmp_path / "qrels.tsv")

    return write


@pytest.mark.parametrize(
    "text",
    [
        "l1\td1\t2\nl1\td2\t0\nl2\td1\t1\n",
        "l1\t0\td1\t2\nl1\t0\td2\t0\nl2\t0\td1\t1\n",
        "l1 0 d1 2\nl1 Q0 d2 0\n\n  \nl2 0 d1 1",
        "l1 d1 2\r\nl1 d2 0\r\nl2\td1\t1\r\n",
        "\ufeffl1\td1\t2\nl1\td2\t0\nl2\td1\t1\n",
        "l1\td1\t2\nl1\td2\t0\nl2\td1\t1\nl1\td1\t2\n",
        "\ufefflog_id\tdoc_id\tgrade\r\nl1\td1\t2\r\nl1\td2\t0\r\nl2\td1\t1\r\n",
    ],
    ids=["three tabs", "four tabs", "TREC, blank lines", "mixed, CRLF", "byte order mark", "one twice", "header"],
)
def test_three_columns_and_four_are_read(qrels: Qrels, text: str, tmp_path: Path) -> None:
    assert read_qrels(qrels(text)).grades == {"l1": {"d1": 2, "d2": 0}, "l2": {"d1": 1}}
    (tmp_path / "qrels.tsv.gz").write_bytes(gzip.compress(text.encode()))
    assert read_qrels(str(tmp_path / "qrels.tsv.gz")).grades == {"l1": {"d1": 2, "d2": 0}, "l2": {"d1": 1}}


@pytest.mark.parametrize(("name", "doc_id"), [("log 1", "doc 1"), ("l\u2028\x0c\x851", "d\x1c1")])  # only \\n ends a line
def test_tabs_alone_part_columns_where_there_are_some(qrels: Qrels, name: str, doc_id: str) -> None:
    assert read_qrels(qrels(f"{name}\t{doc_id}\t1\n")).grades == {name: {doc_id: 1}}


EARLIER = "an earlier line gives the same document grade 1"


@pytest.mark.parametrize(
    ("key", "line", "words"),
    [
        *(("log_id", line, f"line 3 is neither 'log_id<TAB>doc_id<TAB>grade' nor TREC's four columns; correct it: {line!r}")
          for line in ("l1\td1", "l1", "l1\td1\tgood", "l1\td1\t1.5", "l1 0 d1 1 more", "log_id\tdoc_id\trelevance")),
        ("log_id", "l1\td1\t0", f"line 3: {EARLIER}; keep one: 'l1\\td1\\t0'"),
        ("log_id", "l1\td1\t1001", "line 3: grade 1001 is above 1,000"),
        ("query", "black tea d1 1", "is neither 'query<TAB>doc_id<TAB>grade' nor TREC's four columns, parted by tabs"),
        ("query", " \td1\t1", "line 3: the query is empty; correct it"),
        ("query", "L1\td1\t2", f"line 3: {EARLIER}"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named(qrels: Qrels, key: Key, line: str, words: str) -> None:
    path = qrels(f"l1\td1\t1\n\n{line}\nl2\td2\t1\n")
    with pytest.raises(ConfigError) as refused:
        read_qrels(path, key=key)
    assert str(refused.value).startswith(f"evaluate.qrels: {path}: ")
    assert words in str(refused.value)


def test_queries_are_normalised_as_those_of_the_log_are(qrels: Qrels) -> None:
    path = qrels("Why  is the SKY blue\td1\t1\nwhy is the sky blue\t0\td2\t2\n\u00c4pfel \td1\t1\n")
    found = read_qrels(path, key="query")
    assert found.grades == {"why is the sky blue": {"d1": 1, "d2": 2}, "\u00e4pfel": {"d1": 1}}
    assert found.key == "query"
    assert read_qrels(path).grades["Why  is the SKY blue"] == {"d1": 1}


def test_a_file_that_holds_nothing_or_is_not_there(qrels: Qrels, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"qrels\.tsv: holds no judgement"):
        read_qrels(qrels("\n\n"))
    with pytest.raises(ConfigError, match=r"none\.tsv: no such file or folder; give"):
        read_qrels(str(tmp_path / "none.tsv"))
    (tmp_path / "bytes.tsv").write_bytes(b"l1\t\xff\t1\n")
    with pytest.raises(ConfigError, match=r"bytes\.tsv, line 1: is not UTF-8 text \(invalid start byte\); convert it"):
        read_qrels(str(tmp_path / "bytes.tsv"))


def test_a_table_that_is_no_judgements_is_refused(tmp_path: Path) -> None:
    for name, text, words in (
        ("q.jsonl", "[1]\n", "q.jsonl, line 1: a JSON array, wanted an object"),
        ("q.parquet", "text", "q.parquet: cannot be read as Parquet: "),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError, match=words):
            read_qrels(str(tmp_path / name))
    wrong = {
        "a,b\nx,y\n": "has a, b; name its columns log_id, doc_id, grade",
        "q,d,g\nx,y,z\n": "row 1 is neither",
        "l1,d1,2\nl2,d1,1\n": "has l1, d1, 2; name its columns log_id, doc_id, grade",  # else the first row would be lost
        "q,d,g\nx,,1\n": "row 1: the doc_id is empty",
        'q,d,g\n"x,y,1\n': "line 2: a quote",
    }
    for text, words in wrong.items():
        (tmp_path / "q.csv").write_text(text)
        with pytest.raises(ConfigError, match=words):
            read_qrels(str(tmp_path / "q.csv"))
    (tmp_path / "q.csv").write_text("l1\td1\t1\n")
    assert read_qrels(str(tmp_path / "q.csv")).grades == {"l1": {"d1": 1}}  # lines parted by tabs, whatever the name
    for text, words in (("l1,Oslo\n", "has l1, Oslo; name its columns log_id, answer"), ("id,answer\n", "holds no answer")):
        (tmp_path / "q.csv").write_text(text)
        with pytest.raises(ConfigError, match=words):
            read_answers(str(tmp_path / "q.csv"), "log_id")
    (tmp_path / "q.tsv").write_text('log_id\tanswer\nl1\tthe "North\n')
    assert read_answers(str(tmp_path / "q.tsv"), "log_id") == {"l1": ['the "North']}

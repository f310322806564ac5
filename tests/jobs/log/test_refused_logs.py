"""Finding and checking logs and judgements: every wrong input is one line that says what, where and what to do."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import ConfigError, LogError
from cluster.storage import open_storage
from jobs.log.check import LogColumns, check_log
from jobs.log.dedup import dedup
from jobs.log.files import find_log_files
from jobs.log.judgements import Key, read_answers, read_qrels
from tests.support.jobs.logs import QUERY, refused, write_log

ROWS = {"query": ["a", "b"], "row": [1, 2], "user": ["u", "v"]}


def refusal(log: str | list[str], columns: LogColumns = QUERY) -> str:
    return str(refused(log, columns))


def test_missing_paths_name_the_nearest(tmp_path: Path) -> None:
    log = write_log(tmp_path / "logs" / "log.parquet", ROWS)
    typo = f"{tmp_path}/logs/lgo.parquet"
    assert refusal(typo) == f"log.path {typo}: no such file or folder; did you mean 'log.parquet'? (known: log.parquet)"
    assert refusal(f"{tmp_path}/nowhere/at/all") == (
        f"log.path {tmp_path}/nowhere/at/all: no such file or folder, and no folder {tmp_path}/nowhere/at; correct log.path"
    )
    day = f"{tmp_path}/zzz=2020-01-31"
    assert refusal([log, day]) == f"log.path {day}: no such file or folder (known: logs)"
    assert refusal([]) == "log.path is an empty list; name a file or folder"


def test_folders_without_a_log_say_what_is_in_them(tmp_path: Path) -> None:
    wanted = "no Parquet, JSON lines or CSV file (*.parquet, *.json, *.jsonl, *.ndjson, *.csv, *.tsv) in this folder"
    assert refusal(str(tmp_path)) == f"log.path {tmp_path}: {wanted}, it is empty; name another"
    for name in ("b.xlsx", "a.txt", ".hidden.parquet", "_tmp.parquet"):
        (tmp_path / name).write_text("x")
    assert refusal(str(tmp_path)) == (
        f"log.path {tmp_path}: {wanted}, found .hidden.parquet, _tmp.parquet, a.txt, b.xlsx; name another"
    )


def test_files_are_found_at_any_depth_once_and_in_order(tmp_path: Path) -> None:
    for name in ("b/x.parquet", "a/2.parquet", "a/10.parquet", "a/.skip.parquet", "_skip/x.parquet", "B.parquet"):
        write_log(tmp_path / "log" / name, ROWS)
    (tmp_path / "log" / "b" / "up").symlink_to(tmp_path / "log")  # a loop
    write_log(tmp_path / "other" / "far.parquet", ROWS)
    (tmp_path / "log" / "link").symlink_to(tmp_path / "other")
    found = find_log_files(str(tmp_path / "log"))
    assert [file.name for file in found] == ["B.parquet", "a/10.parquet", "a/2.parquet", "b/x.parquet", "link/far.parquet"]
    assert [(f.size, f.changed) for f in found] == [(os.stat(f.path).st_size, os.stat(f.path).st_mtime_ns) for f in found]
    twice = find_log_files([str(tmp_path / "log"), str(tmp_path / "log" / "b" / "x.parquet")])
    assert len(twice) == len(found)


def test_names_do_not_depend_on_where_the_log_lies(tmp_path: Path) -> None:
    names = []
    for place in ("here", "there/deeper"):
        for part in ("a/x.parquet", "b/x.parquet"):
            write_log(tmp_path / place / part, {"query": [part]})
        names.append([f.name for f in find_log_files([f"{tmp_path}/{place}/b/x.parquet", f"{tmp_path}/{place}/a"])])
    assert names == [["a/x.parquet", "b/x.parquet"]] * 2
    assert [f.name for f in find_log_files(f"{tmp_path}/here/a/x.parquet")] == ["x.parquet"]
    assert [f.name for f in find_log_files(f"{tmp_path}/here/a/")] == ["x.parquet"]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (LogColumns("Qeury"), "no column 'Qeury' (log.query_column); did you mean 'query'? (known: query, row, user, share, "),
        (LogColumns("query", "session_number"), "no column 'session_number' (log.id_column) (known: query, "),
        (LogColumns("query", None, "rows"), "no column 'rows' (log.count_column); did you mean 'row'?"),
        (LogColumns("row"), "column 'row' (log.query_column) holds int64, wanted text (string)"),
        (LogColumns("blob"), "column 'blob' (log.query_column) holds binary, wanted text (string)"),
        (LogColumns("query", "share"), "column 'share' (log.id_column) holds double, wanted text, whole numbers, dates, times"),
        (LogColumns("query", "blob"), "column 'blob' (log.id_column) holds binary, wanted text"),
        (LogColumns("query", None, "share"), "column 'share' (log.count_column) holds double, wanted whole numbers"),
        (LogColumns("query", None, "query"), "column 'query' (log.count_column) holds string, wanted whole numbers"),
        (LogColumns("query", None, "lang"), "partition 'lang' (log.count_column) is 'en', wanted whole numbers"),
        (LogColumns("query", context_column="row"), "column 'row' (log.context_column) holds int64, wanted text (string)"),
        (LogColumns("query", values=("pair",)), "column 'pair' (used by a prompt or a selection) holds struct<a: int64>"),
        (LogColumns("query", values=("sizes",)), "column 'sizes' (used by a prompt or a selection) holds list<element: int64>"),
        (LogColumns("query", context_column="usr"), "no column 'usr' (log.context_column); did you mean 'user'?"),
        (LogColumns("query", values=("usr",)), "no column 'usr' (used by a prompt or a selection); did you mean 'user'?"),
    ],
)
def test_columns_of_the_wrong_type(tmp_path: Path, columns: LogColumns, said: str) -> None:
    more = {"share": [0.5, 0.5], "blob": [b"x", b"y"], "pair": [{"a": 1}] * 2, "sizes": [[1]] * 2}
    log = write_log(tmp_path / "lang=en" / "log.parquet", ROWS | more)
    assert said in refusal(log, columns)


def test_files_that_are_no_parquet(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    write_log(path, {"query": [f"query {i}" for i in range(999)]})
    for data in (path.read_bytes()[:2000], b"PK\x03\x04 and more"):  # cut off; a workbook
        path.write_bytes(data)
        assert refusal(str(path)).startswith(f"log file {path}: cannot be read as Parquet: Parquet magic bytes not found")
    pq.write_table(pa.table([["a"], ["b"]], names=["query", "query"]), path)
    assert refusal(str(path)).endswith("column 'query' (log.query_column) appears more than once; name another")


def test_a_log_without_rows(tmp_path: Path) -> None:
    none = {"query": pa.array([], pa.string())}
    log, remedy = write_log(tmp_path / "1.parquet", none), "name another log.path, or set log.allow_empty"
    assert refusal(log) == f"the log is empty: no rows in {log}; {remedy}"
    write_log(tmp_path / "2.parquet", none)
    assert refusal(str(tmp_path)) == f"the log is empty: no rows in {log} and 1 more; {remedy}"
    write_log(tmp_path / "3.parquet", ROWS)
    assert [(group.number, group.rows) for group in check_log(find_log_files(str(tmp_path)), QUERY)] == [(0, 2)]


def test_a_log_of_empty_strings_only(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.parquet", {"query": ["", None, "  ", "z" * 50]})
    assert refusal(log, LogColumns("query", max_chars=40)) == (
        f"the log has no usable query: all 4 rows of {log} were rejected (column "
        "'query': 3 null or only white space, 1 over 40 characters); use UTF-8, another column or a larger log.max_chars"
    )


def test_a_damaged_page(tmp_path: Path) -> None:
    rows = {"query": [f"query number {i * 7919 % 100000}" for i in range(30000)]}
    log = Path(write_log(tmp_path / "log.parquet", rows, use_dictionary=False, compression="zstd", row_group_size=10000))
    data = bytearray(log.read_bytes())
    middle = pq.read_metadata(log).row_group(2).column(0)
    start = middle.data_page_offset + middle.total_compressed_size // 2
    data[start : start + 400] = b"\xff" * 400
    log.write_bytes(data)
    assert refusal(str(log)).startswith(f"log file {log}: damaged at or after row ")


def test_bad_counts(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.parquet", {"query": ["a", "b", "c"], "n": [1, 2, -3]})
    assert refusal(log, LogColumns("query", None, "n")) == (
        f"log file {log}, row 2: column 'n' (log.count_column) is -3, wanted 0 or more; correct it"
    )
    log = write_log(tmp_path / "big.parquet", {"query": ["a", "b"], "n": pa.array([1, 2**63], pa.uint64())})
    assert refusal(log, LogColumns("query", None, "n")).startswith(f"log file {log}, row 1: column 'n' (log.count_column): ")
    log = write_log(tmp_path / "sum.parquet", {"query": ["a", "a "], "n": [2**62, 2**62]})
    assert refusal(log, LogColumns("query", None, "n")) == (
        f"log file {log}: column 'n' (log.count_column) adds up to more than 9,223,372,036,854,775,807; correct it"
    )


@pytest.mark.parametrize("name", ["log.parquet", "log.jsonl"])
def test_a_file_replaced_by_one_of_the_same_size_is_noticed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.table({"query": ["tea"]}), path)
    else:
        path.write_text('{"query": "tea"}\n')
    files = find_log_files(str(path))
    os.utime(path, ns=(0, 0))
    with pytest.raises(LogError, match="was replaced since it was listed; start again"):
        dedup(files, LogColumns("query"), open_storage(str(tmp_path / "out")), 1000)


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

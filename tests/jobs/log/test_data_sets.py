"""Data sets by name: queries, judgements and documents of BEIR's folders, ir_datasets and TREC topics, and what is refused."""

import builtins
import gzip
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import DmqrError, LogError
from cluster.storage import open_storage
from jobs.index.sources import passages
from jobs.log.check import LogColumns, check_log
from jobs.log.dedup import LogSummary, dedup
from jobs.log.files import LogFile, log_files, versions
from jobs.log.judgements import local_qrels, read_qrels
from jobs.log.sets.names import moved, set_name
from jobs.log.sets.queries import set_queries
from jobs.log.settings import LogSettings
from retrievers.corpora.corpus import content_of
from retrievers.corpora.files import COLUMNS
from tests.support.jobs.field_sets import QRELS, QUERIES, registered, write_beir
from tests.support.jobs.logs import deduped

COLUMNS_OF_SETS = LogColumns("text", "query_id")


def files_of(path: str | list[str]) -> list[LogFile]:
    return log_files(LogSettings.model_validate({"path": path}))


def read(path: str | list[str], out: Path) -> tuple[LogSummary, dict[str, str]]:
    """The counts of a log, and id -> query of its rows."""
    settings = LogSettings.model_validate({"path": path})
    summary, tables = deduped(log_files(settings), out, LogColumns(settings.query_column, settings.id_column))
    texts = {row["query_id"]: row["query"] for row in tables["queries"]}
    return summary, {row["log_id"]: texts[row["query_id"]] for row in tables["query_map"]}


def refusal(path: str) -> str:
    with pytest.raises(DmqrError) as error:
        check_log(files_of(path), COLUMNS_OF_SETS)
    line = str(error.value)
    assert "\n" not in line
    return line


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    return write_beir(tmp_path / "small")


@pytest.fixture
def topics(tmp_path: Path) -> Any:
    def write(text: str, name: str = "topics.txt") -> str:
        (tmp_path / name).write_text(text)
        return f"topics:{tmp_path / name}"

    return write


@pytest.mark.parametrize("split", ["test", "train"])
def test_of_a_folder_of_beir_the_judged_queries_are_the_log(split: str, beir: Path, tmp_path: Path) -> None:
    summary, found = read(f"beir:{beir}/{split}", tmp_path / "out")
    assert found == {key: QUERIES[key] for key in QRELS[split]}
    assert (summary.counts["log_rows"], summary.counts["left_out"]) == (len(found), len(QUERIES) - len(found))
    assert read_qrels(f"beir:{beir}/{split}").grades == QRELS[split] == read_qrels(f"{beir}/qrels/{split}.tsv").grades


def test_metadata_of_queries_are_columns(beir: Path) -> None:
    name = set_name(f"beir:{beir}/train")
    assert name is not None
    assert set_queries(name)[0].to_pydict() == {
        "query_id": ["q3", "q5"], "text": [QUERIES["q3"], QUERIES["q5"]], "words": ["3", "4"]
    }  # fmt: skip


def test_a_set_that_was_replaced_after_it_was_listed_is_refused(beir: Path, tmp_path: Path) -> None:
    for changed in (beir / "queries.jsonl", beir / "qrels" / "test.tsv"):
        listed = files_of(f"beir:{beir}/test")
        paths = [one["path"] for one in versions(listed)]
        assert paths == [str(beir / "queries.jsonl"), str(beir / "qrels" / "test.tsv")]
        os.utime(changed, ns=(1, 1))
        with pytest.raises(LogError, match="was replaced since it was listed"):
            dedup(listed, COLUMNS_OF_SETS, open_storage(str(tmp_path / "out")), 10)


def test_what_is_wrong_with_a_folder_is_one_line(beir: Path, tmp_path: Path) -> None:
    assert refusal(f"beir:{tmp_path}/nowhere/test").startswith(f"log.path: beir:{tmp_path}/nowhere/test: is not a folder with")
    line = refusal(f"beir:{beir}/tset")
    assert f"no judgements qrels/tset.tsv in {beir}; did you mean 'test'? (known: test, train)" in line
    with (beir / "queries.jsonl").open("a") as more:
        more.write('\n{"id": "q9", "text": "lost"}\n')
    assert f"log file {beir}/queries.jsonl, line 7: is not a query of BEIR" in refusal(f"beir:{beir}/test")
    (beir / "qrels" / "test.tsv").write_bytes(b"query-id\tcorpus-id\tscore\n\xff\td1\t1\n")
    assert f"log file {beir}/qrels/test.tsv, line 2: is not UTF-8" in refusal(f"beir:{beir}/test")
    with pytest.raises(DmqrError, match=r"a data set judges the ids of its queries, and evaluate\.key is query"):
        read_qrels(f"beir:{beir}", key="query")


def contents(path: str, folder: Path) -> str:
    """The identity that an index has of a corpus."""
    folder.mkdir()
    return content_of(passages([path], COLUMNS, folder, lambda *_: None)[0], lambda *_: None)[1]


def test_a_set_of_ir_datasets_is_a_log_and_its_judgements(tmp_path: Path) -> None:
    registered("ours/log")
    summary, found = read("irds:ours/log/train", tmp_path / "out")
    assert (found, summary.counts.get("left_out", 0)) == ({key: QUERIES[key] for key in QRELS["train"]}, 0)
    assert read_qrels("irds:ours/log/train").grades == QRELS["train"]
    (train,), (test,) = files_of("irds:ours/log/train"), files_of("irds:ours/log/test")
    assert train.version == files_of("irds:ours/log/train")[0].version
    assert train.changed != test.changed


def test_what_ir_datasets_lacks_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registered("ours/lacking")
    assert "log.path: irds:ours/lackin: ir_datasets has no such id; did you mean" in refusal("irds:ours/lackin")
    assert "irds:ours/lacking: has no queries (it has docs); name another" in refusal("irds:ours/lacking")
    for part in ("docs", "queries", "qrels"):
        registered(f"ours/no-{part}", part)
    words = "cannot be read: ConnectionError: no route to host, not today; look whether its server can be reached"
    assert f"irds:ours/no-queries/test: {words}" in refusal("irds:ours/no-queries/test")
    with pytest.raises(DmqrError, match=f"^evaluate.qrels: irds:ours/no-qrels/test: {re.escape(words)}"):
        read_qrels("irds:ours/no-qrels/test")
    with pytest.raises(DmqrError, match=f"^corpus.path: irds:ours/no-docs: {re.escape(words)}"):
        contents("irds:ours/no-docs", tmp_path / "made")
    imported = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "ir_datasets":
            raise ImportError(name)
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    assert "wants the package ir_datasets; install it: pip install 'dmqr[irds]'" in refusal("irds:ours/lacking/test")


AD_HOC = """
<top>

<num> Number: 301
<title> International Organized Crime

<desc> Description:
Identify organizations that participate in
international criminal activity, e.g. <i>any</i> of them.

<narr> Narrative:
A relevant document must name one &amp; its activity.
</top>

<top>
<num> Number: 302
<title> Poliomyelitis and Post-Polio
<desc> Description:
Is the disease under control?
<narr> Narrative:
Any mention counts.
</top>
"""


def test_topics_of_the_ad_hoc_tracks(topics: Any, tmp_path: Path) -> None:
    path = topics(AD_HOC)
    assert read(path, tmp_path / "out")[1] == {"301": "International Organized Crime", "302": "Poliomyelitis and Post-Polio"}
    rows = set_queries(set_name(path))[0].to_pylist()  # type: ignore[arg-type]
    assert rows[0]["narrative"] == "A relevant document must name one & its activity."
    assert rows[1]["description"] == "Is the disease under control?"
    assert "in international criminal activity, e.g." in rows[0]["description"]


def test_topics_are_those_that_ir_datasets_reads(topics: Any, tmp_path: Path) -> None:
    from ir_datasets.formats import TrecQueries, TrecXmlQueries
    from ir_datasets.util import LocalDownload

    plain = AD_HOC.replace(" <i>any</i> of them", " any of them").replace("&amp;", "and")
    xml = (
        "<topics>"
        + "".join(
            f'<topic number="{n}"><title>{t}</title><description>{d} &lt; 5</description><narrative>none</narrative></topic>'
            for n, t, d in (("1", "lamp", "which lamp"), ("2", "moon", "which moon"))
        )
        + "</topics>"
    )
    for text, reader in ((plain, TrecQueries), (xml, TrecXmlQueries)):
        path = topics(text)
        theirs = reader(LocalDownload(Path(path.removeprefix("topics:")))).queries_iter()
        expected = [{name: " ".join(value.split()) for name, value in one._asdict().items()} for one in theirs]
        rows = set_queries(set_name(path))[0].to_pylist()  # type: ignore[arg-type]
        assert [{name: row[name] for name in expected[0]} for row in rows] == expected
        assert [row["text"] for row in rows] == [row["title"] for row in expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('<?xml version="1.0"?><xml><topic number="7" type="faceted"><query> red\n lamp</query><description>x</description>'
         '<subtopic number="1" type="nav">a</subtopic><subtopic number="2" type="inf">b</subtopic></topic></xml>',
         {"query_id": "7", "text": "red lamp", "type": "faceted", "description": "x", "subtopic": "a; b"}),
        ('<topics><topic number="8">A 58-year-old woman</topic></topics>', {"query_id": "8", "text": "A 58-year-old woman"}),
        ("<topics><topic><number> 9 </number><question>which lamp</question></topic></topics>",
         {"query_id": "9", "text": "which lamp"}),
        ("12\tred lamp\t of the sea\n", {"query_id": "12", "text": "red lamp\t of the sea"}),
        ("qid\tquery\n12\tred lamp\n", {"query_id": "12", "text": "red lamp"}),
        ("<top>\n<num>1<title>web\n<desc>\nlonger\n</top>", {"query_id": "1", "text": "web", "description": "longer"}),
        ("<top>\n<num> Number: 2\n<desc> Description:\nno title\n</top>", {"query_id": "2", "text": "no title"}),
    ],
    ids=["web track", "own text", "elements", "lines", "header", "one line", "description alone"],
)  # fmt: skip
def test_forms_of_topics(text: str, expected: dict[str, str], topics: Any, tmp_path: Path) -> None:
    path = topics(text)
    (tmp_path / "packed.txt.gz").write_bytes(gzip.compress(text.encode()))
    for name in (path, f"topics:{tmp_path}/packed.txt.gz"):
        (row,) = set_queries(set_name(name))[0].to_pylist()  # type: ignore[arg-type]
        assert row | expected == row


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 red lamp\n", "line 1: is neither <top>, nor XML, nor id, tab and query"),
        ("<topics><topic>", "is not XML: no element found"),
        ("<topics><topic><title>x</title></topic></topics>", "topic 1: has no id"),
        ("<top><title>x</top>", "topic 1: has no <num>"),
        ("\n", "holds no topics"),
        ('<t><topic number="1"><disease>flu</disease></topic></t>', "no column 'text' (log.query_column)"),
    ],
)
def test_what_is_no_topics_is_one_line(text: str, words: str, topics: Any) -> None:
    assert words in refusal(topics(text))


def test_a_list_of_sets_and_files_is_refused(beir: Path) -> None:
    with pytest.raises(ValueError, match="lists data sets beside files"):
        LogSettings.model_validate({"path": [f"beir:{beir}", "log.parquet"]})
    with pytest.raises(ValueError, match="query_column"):
        LogSettings.model_validate({"path": str(beir)})


def test_paths_in_names_move_and_ids_stay(beir: Path) -> None:
    assert moved("beir:small/test", lambda path: f"/data/{path}") == "beir:/data/small/test"
    assert moved("irds:beir/scifact", lambda path: f"/data/{path}") == "irds:beir/scifact"
    assert moved("log.parquet", lambda path: f"/data/{path}") == "/data/log.parquet"
    assert local_qrels(f"beir:{beir}/train") == f"{beir}/qrels/train.tsv"
    assert local_qrels("irds:beir/scifact") is None
    shutil.rmtree(beir)
    assert local_qrels(f"beir:{beir}/train") is None

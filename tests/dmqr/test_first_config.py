"""`dmqr init`: the columns that it guesses, and that its config and the command that it prints work as they stand."""

import csv
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dmqr
from cluster.errors import DmqrError
from jobs.__main__ import main
from jobs.config.load import load_config
from tests.support.rewriters.fake_server import FakeServer

TEA = "Green tea is brewed below boiling."
ANSWER = {name: f"{name} words about tea" for name in ("general", "keyword", "pseudo_answer", "core_content")}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    with FakeServer(["qwen3:8b"], text=lambda body: json.dumps(ANSWER)) as serving:
        yield serving


def text(name: str, content: str) -> None:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(content, encoding="utf-8")


def table(path: str, **columns: list[Any]) -> None:
    pq.write_table(pa.table(columns), path)


def lines(name: str, *rows: dict[str, Any]) -> None:
    text(name, "".join(json.dumps(row) + "\n" for row in rows))


def csv_and_markdown() -> None:
    text("log.csv", "when,Search Term,hits\n2024-01-01 10:00,how hot is tea,3\n2024-01-01 11:00,tea,4\n")
    text("corpus/tea.md", f"# Tea\n\n{TEA}\n")
    text("corpus/notes.xyz", "left out")


def two_parquet_files() -> None:
    table("log.parquet", qid=[7, 8, 9], keywords=["how hot is tea", None, "tea"], page=[1, 1, 2])
    table("corpus.parquet", sku=["A-1", "A-2"], name=["Tea", "Bread"], description=[TEA, "Bread rises."], price=[1.5, 2.5])


def tabs_without_quotes() -> None:
    text("log.tsv", 'AnonID\tquery\n1\thow "hot is tea\n1\ttea 5" cup\n')
    text("corpus.tsv", f'pid\tpassage\n0\t{TEA} "\n1\tBread\n')


def names_of_beir() -> None:
    lines("log.jsonl", {"_id": "q1", "text": "how hot is tea", "metadata": {}}, {"_id": "q2", "text": "tea", "metadata": {}})
    lines("corpus.jsonl", {"_id": "d1", "title": "Tea", "text": TEA}, {"_id": "d2", "title": "", "text": "Bread rises."})


def two_columns_of_queries() -> None:
    entered = [f"how hot is {kind} tea" for kind in ("green", "black", "white", "red")]
    table("log.parquet", url=["http://a/b"] * 4, fixed=["tea", "tea", "hot tea", "tea"], entered=entered)
    table("corpus.parquet", number=[1, 2], url=["http://a", "http://b"], words=[TEA, "Bread rises."])


CASES = [
    (csv_and_markdown, "log.csv", "corpus", {"query": "Search Term", "id": None}, {}, "tea.md#1"),
    (two_parquet_files, "log.parquet", "corpus.parquet", {"query": "keywords", "id": "qid"},
     {"id": "sku", "title": "name", "text": "description"}, "A-1"),
    (tabs_without_quotes, "log.tsv", "corpus.tsv", {"query": "query", "id": None},
     {"id": "pid", "title": None, "text": "passage"}, "0"),
    (names_of_beir, "log.jsonl", "corpus.jsonl", {"query": "text", "id": "_id"},
     {"id": "_id", "title": "title", "text": "text"}, "d1"),
    (two_columns_of_queries, "log.parquet", "corpus.parquet", {"query": "entered", "id": None},
     {"id": "number", "title": None, "text": "words"}, "1"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "log", "corpus", "of_log", "of_corpus", "doc_id"), CASES, ids=[case[0].__name__ for case in CASES]
)
def test_its_config_and_its_command_work_as_they_stand(
    make: Any, log: str, corpus: str, of_log: dict[str, Any], of_corpus: dict[str, Any], doc_id: str,
    server: FakeServer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    make()
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["init", log, corpus]) == 0
    printed = capfd.readouterr().out
    config = load_config("dmqr.yaml")
    assert {"query": config.log.query_column, "id": config.log.id_column} == of_log
    (columns,) = config.corpora.values()
    read = {"id": columns.id_column, "title": columns.title_column, "text": columns.text_column}
    assert read == (of_corpus or {"id": "doc_id", "title": "title", "text": "text"})
    written = Path("dmqr.yaml").read_text()
    address = "http://localhost:11434/v1"
    assert written.count(address) == 1
    Path("dmqr.yaml").write_text(written.replace(address, server.address))
    (command,) = re.findall(r"is written; look through it, then:\n  (.*)\n\Z", printed)
    asked, sample = len(server.bodies), shlex.split(command)[-1]
    assert main(shlex.split(command)[shlex.split(command).index("try") :]) == 0
    shown = capfd.readouterr().out
    assert (doc_id in shown, "tea.md\n" in shown) == (True, False)  # the id has the name of the file
    assert "tea" in server.bodies[asked]["messages"][-1]["content"]
    Path("qrels.tsv").write_text(f"{sample}\t{doc_id}\t1\n")
    assert main(["run", "dmqr.yaml", "--csv", "results.csv"]) == 0
    shown += capfd.readouterr().out
    run = shown.splitlines()[-1]
    if make is csv_and_markdown:  # pages that fit a terminal here do so whatever the columns
        qrels = ["evaluate", run, "qrels.tsv", "--key", "query"]
        for words in (qrels, ["diff", run, run], ["runs", "runs"], ["runs", run], ["plan", "dmqr.yaml"], ["report", run]):
            assert main(words) == 0
    shown += printed + capfd.readouterr().out
    assert [line for line in shown.splitlines() if len(line) > 80 and run not in line and command not in line] == []
    with open("results.csv", newline="", encoding="utf-8") as file:
        first = next(csv.DictReader(file))
    assert (first["rank"], first["doc_id"]) == ("1", doc_id)
    assert first["text"].endswith("below boiling." + ' "' * (log == "log.tsv"))


def test_what_else_a_column_may_be_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    two_columns_of_queries()
    assert main(["init", "log.parquet", "corpus.parquet"]) == 0
    line = "query_column: entered  # guessed by its values; if it is wrong, perhaps: fixed\n"
    assert line in capfd.readouterr().out
    assert line in Path("dmqr.yaml").read_text()


def test_what_its_comments_propose_is_a_config() -> None:
    names_of_beir()
    dmqr.init("log.jsonl", "corpus.jsonl")
    written = Path("dmqr.yaml").read_text()
    engines = re.findall(r"^    # .*(\{kind: (?:openai|anthropic), .*\})", written, re.MULTILINE)
    assert len(engines) == 4
    (dense,) = re.findall(r"^    # dense: (.*)", written, re.MULTILINE)
    (qrels,) = re.findall(r"^# evaluate: (\{.*?\})", written, re.MULTILINE)
    for engine in engines:
        more = [f"rewrite.engine={engine}", f"retrieve.retrievers.dense={dense}", f"evaluate={qrels}", "log.count_column=n"]
        assert load_config("dmqr.yaml", more).retrieve.retrievers.keys() == {"bm25", "dense"}


def test_odd_names_are_written_as_they_are() -> None:
    column, log, folder = 'what: "asked"\n#1', "a log: {x} #1.jsonl", "my - docs"
    lines(log, {"id": "yes", column: "how hot is tea"}, {"id": "no", column: "tea time"})
    text(f"{folder}/a.txt", TEA)
    text(f"{folder}/b.txt", TEA)
    values = dmqr.init(log, folder, f"{folder}/b.txt", out="own.yaml").values
    config = load_config("own.yaml")
    assert (config.log.path, config.log.query_column, config.name) == (log, column, "a-log-x-1")
    assert next(iter(config.corpora.values())).path == [folder, f"{folder}/b.txt"]
    assert shlex.split(values["next"])[-3:] == ["try", "own.yaml", "how hot is tea"]


REFUSED = [
    ("a,b\n1,2024-01-01\n2,2024-01-02\n", "docs", "log log.csv: no column looks like queries; it has a, b; rename one, or"),
    ("q\n", "docs", "the log is empty: no rows in log.csv; give another"),
    ("q\ntea\n", "log.csv", "corpus log.csv: no column looks like texts; it has q; rename one"),
    ("q,t\ntea,a b\ntea,a b\n", "log.csv", "corpus log.csv: no column looks like ids; it has q, t; rename one"),
    ("q\ntea\n", "nowhere", "corpus nowhere: no such file or folder in "),
    ("q\ntea\n", None, "documents: is missing; give the table or the folder of what is searched"),
]


@pytest.mark.parametrize(("log", "corpus", "line"), REFUSED)
def test_what_it_cannot_guess_is_refused_and_nothing_is_written(log: str, corpus: str | None, line: str) -> None:
    text("log.csv", log)
    text("docs/a.txt", TEA)
    with pytest.raises(DmqrError) as error:
        dmqr.init("log.csv", *([] if corpus is None else [corpus]))
    assert str(error.value).startswith(line)
    assert not Path("dmqr.yaml").exists()


def test_it_overwrites_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    names_of_beir()
    text("dmqr.yaml", "name: mine")
    assert main(["init", "log.jsonl", "corpus.jsonl"]) == 2
    assert "dmqr.yaml exists, and is not overwritten; give another name" in capfd.readouterr().err
    assert Path("dmqr.yaml").read_text() == "name: mine"

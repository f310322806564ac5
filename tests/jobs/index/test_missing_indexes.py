"""A config that names its corpus: a missing index is built of it, one of another corpus is refused, none is replaced."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import RetrieverError
from cluster.storage import open_storage
from jobs.__main__ import main
from jobs.config.load import load_config
from jobs.index import compare
from jobs.index import index as indexing
from jobs.index.index import ready_indexes
from jobs.terminal.live_display import LiveDisplay
from retrievers.local.index import read_index
from tests.support.cluster.s3_server import S3Server
from tests.support.jobs.whole_runs import PATIENCE, ROOT
from tests.support.retrievers.fake_models import FakeModels

ROWS = {"doc_id": ["a", "b"], "text": ["The moon pulls the sea.", "Rye bread keeps for a week."]}
WHOLE = [".lock", "data", "index.json", "source.json"]  # files of an index
OTHER = {"doc_id": ["a", "b", "c"], "text": ["The moon pulls the sea.", "Rye bread keeps for a week.", "A lamp."]}


def write(path: Path, rows: dict[str, list[str]]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        path.write_text("".join(",".join(row) + "\n" for row in (tuple(rows), *zip(*rows.values(), strict=True))))
    else:
        pq.write_table(pa.table(rows), path)
    return str(path)


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    return write(tmp_path / "corpus.parquet", ROWS)


@pytest.fixture
def config(values: dict[str, Any], config_file: Callable[[Any], str], tmp_path: Path, corpus: str) -> Callable[..., Any]:
    """Loads a config with an index of BM25, the corpus, and these overrides."""

    def load(*settings: str) -> Any:
        bm25 = {"kind": "local", "index": str(tmp_path / "index"), "analyzer": "english"}
        path = config_file(values | {"corpus": {"path": corpus}, "retrieve": {"retrievers": {"bm25": bm25}}})
        return load_config(path, list(settings))

    return load


@pytest.fixture
def job(config: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of that config, of a job in the current folder."""
    config()
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"query": ["tea"]}), "log.parquet")
    Path("recorded.jsonl").write_text('{"query": "tea", "completions": {}}\n')
    return str(tmp_path / "config.yaml")


def ready(*configs: Any) -> None:
    ready_indexes(configs, LiveDisplay(io.StringIO()))


def refusal(*configs: Any) -> str:
    with pytest.raises(RetrieverError) as error:
        ready(*configs)
    assert "\n" not in str(error.value)
    return str(error.value)


def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has a test fail that reads the rows of a corpus from now on."""
    monkeypatch.setattr(compare, "passages", None)
    monkeypatch.setattr("jobs.index.index.passages", None)


def test_a_missing_index_is_built_and_rows_are_compared_once(
    config: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(config())
    built = read_index(tmp_path / "index")
    assert built["documents"] == 2
    with monkeypatch.context() as patch:
        unread(patch)
        ready(config())  # by the files' names, sizes and times alone
    other = config(f"corpus.path={write(tmp_path / 'elsewhere' / 'corpus.csv', ROWS)}")
    ready(other)  # the same rows in another file
    assert read_index(tmp_path / "index") == built
    unread(monkeypatch)
    ready(other)


def test_a_job_that_can_start_builds_its_index_and_says_of_what(
    job: str, corpus: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(pa.table({"query": pa.array([], pa.string())}), "empty.parquet")
    for setting in ("log.path=lag.parquet", "log.query_column=querry", "evaluate.qrels=none.tsv", "log.path=empty.parquet"):
        assert main(["run", job, "--set", setting]) == 2
    capfd.readouterr()
    assert main(["run", job, "--set", "log.path=empty.parquet", "--set", "log.allow_empty=true"]) == 0
    assert capfd.readouterr().err == "dmqr run: the log is empty: there is nothing to do (log.allow_empty) [log-empty]\n"
    assert not (tmp_path / "index").exists()
    for told in (["there is none yet; it is built from {corpus} (corpus.path)", "2 documents, built"], []):
        assert main(["plan", job, "--set", "rerank.kind=none"]) == 0
        lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("index ")]
        assert lines == [f"index {tmp_path}/index: {words}".format(corpus=corpus) for words in told]


def test_an_index_of_another_corpus_is_refused_and_stays(config: Callable[..., Any], tmp_path: Path, corpus: str) -> None:
    ready(config())
    built = (tmp_path / "index" / "index.json").read_bytes()
    write(Path(corpus), OTHER)
    line = (
        f"index {tmp_path}/index: was built from another corpus (2 documents) than {corpus} (3; corpus.path); "
        "name another index, or replace it: dmqr index CONFIG --replace"
    )
    assert [refusal(config()) for _ in range(2)] == [line] * 2
    assert (tmp_path / "index" / "index.json").read_bytes() == built
    write(Path(corpus), ROWS | {"body": ["x", "y"]})
    assert "was built from another corpus" in refusal(config("corpus.text_column=body"))
    write(Path(corpus), ROWS)
    os.utime(corpus, ns=(1, 1))
    ready(config())


@pytest.mark.parametrize("name", ["_part/b.parquet", ".hidden/deep/b.parquet", "b.parquet"])
def test_an_edited_file_that_is_read_is_noticed_wherever_it_lies(config: Callable[..., Any], tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    write(folder / "a.parquet", {"doc_id": ["x"], "text": ["A lens."]})
    write(folder / name, ROWS)
    (folder / "_notes.parquet").write_text("no corpus file")
    ready(config(f"corpus.path={folder}"))
    assert read_index(tmp_path / "index")["documents"] == 3
    (folder / "_notes.parquet").write_text("edited")
    ready(config(f"corpus.path={folder}"))
    write(folder / name, OTHER)
    assert "was built from another corpus (3 documents)" in refusal(config(f"corpus.path={folder}"))


def test_an_index_of_before_there_were_notes_is_compared(config: Callable[..., Any], tmp_path: Path, corpus: str) -> None:
    ready(config())
    (tmp_path / "index" / "source.json").write_text("{broken")
    ready(config())
    assert json.loads((tmp_path / "index" / "source.json").read_text())["corpus"] == read_index(tmp_path / "index")["corpus"]
    note = (tmp_path / "index" / "source.json").read_bytes()
    other = write(tmp_path / "other.parquet", OTHER)
    assert main(["index", str(tmp_path / "config.yaml"), "--corpus", other, "--replace"]) == 0
    (tmp_path / "index" / "source.json").write_bytes(note)  # of the index before, as a kill may leave it
    assert "was built from another corpus" in refusal(config())


def test_a_corpus_that_is_not_here_is_told(config: Callable[..., Any], corpus: str, caplog: pytest.LogCaptureFixture) -> None:
    missing_corpus = config(f"corpus.path={corpus}.gone")
    assert f"corpus {corpus}.gone: no such file or folder; correct corpus.path or --corpus" in refusal(missing_corpus)
    ready(config())
    with caplog.at_level("WARNING", logger="dmqr"):
        ready(missing_corpus)
    assert f"corpus.path: {corpus}.gone is missing or empty, so index" in caplog.text


def test_the_indexes_of_arms_are_built_and_one_of_two_corpora_is_refused(config: Callable[..., Any], tmp_path: Path) -> None:
    other = write(tmp_path / "other.parquet", OTHER)
    name = "retrieve.retrievers.bm25"
    german = config(f"{name}.analyzer=german", f"{name}.index={tmp_path}/german")
    arm = config(f"{name}.index={tmp_path}/other", f"corpus.path={other}")
    ready(config(), german, arm)
    found = {index: read_index(tmp_path / index) for index in ("index", "german", "other")}
    assert {index: entry["documents"] for index, entry in found.items()} == {"index": 2, "german": 2, "other": 3}
    assert found["german"]["fields"]["bm25"]["analyzer"].startswith("german")
    line = refusal(config(f"{name}.index={tmp_path}/new"), config(f"{name}.index={tmp_path}/new", f"corpus.path={other}"))
    assert f"index {tmp_path}/new: is of two corpora, " in line
    assert not (tmp_path / "new").exists()
    same = f"{name}.index={tmp_path}/new"
    assert "share it, but not analyzer" in refusal(config(same), config(same, f"{name}.analyzer=german"))
    assert not (tmp_path / "new").exists()


def test_two_jobs_at_a_time_build_it_once(config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(indexing, "WAIT_SECONDS", 0.01)
    both, built, loaded = threading.Barrier(2, timeout=PATIENCE), [], config()

    def counted(*arguments: Any, **options: Any) -> Any:
        both.wait()  # each has seen that there is none
        found = build(*arguments, **options)
        built.append(found)
        return found

    build = indexing.built_of
    monkeypatch.setattr(indexing, "built_of", counted)
    failed: list[BaseException] = []

    def job() -> None:
        try:
            ready(loaded)
        except threading.BrokenBarrierError:
            failed.append(AssertionError("built a third time"))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=job) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert failed == []
    assert len(built) == 1
    assert sorted(path.name.partition("-")[0] for path in (tmp_path / "index").iterdir()) == WHOLE


KILLED = """
import os, signal, sys
import retrievers.local.build as build
from jobs.__main__ import main
def kill(*arguments, **_):
    if sys.argv[1] != "replace" or str(arguments[-1]).endswith("index.json"):
        os.kill(os.getpid(), signal.SIGKILL)
setattr(os if sys.argv[1] == "replace" else build, sys.argv[1], kill)
main(["plan", sys.argv[2]])
"""


@pytest.mark.slow
@pytest.mark.parametrize("at", ["build_bm25", "publish", "replace"])
def test_a_kill_in_the_middle_leaves_no_index(at: str, job: str, config: Callable[..., Any], tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", KILLED, at, job]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (tmp_path / "index" / "index.json").exists()
    assert len(list((tmp_path / "index").iterdir())) > 1
    ready(config())
    assert sorted(path.name.partition("-")[0] for path in (tmp_path / "index").iterdir()) == WHOLE


def test_an_index_on_s3(
    s3: S3Server, config: Callable[..., Any], corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = open_storage(s3.fresh("missing-index"))
    there.upload(Path(corpus), "corpus/0.parquet")
    settings = [f"retrieve.retrievers.bm25.index={there.url('index')}", f"corpus.path={there.url('corpus')}"]
    loaded = config(*settings)
    ready(loaded)
    index = there.get("index/index.json")
    assert json.loads(index or b"")["documents"] == 2
    with monkeypatch.context() as patch:
        unread(patch)
        ready(loaded)
    there.upload(Path(write(tmp_path / "other.parquet", OTHER)), "corpus/0.parquet")
    assert f"index {there.url('index')}: was built from another corpus (2 documents)" in refusal(loaded)
    assert there.get("index/index.json") == index


def test_the_verb_index_replaces_another_corpus_only_if_it_is_told_to(
    config: Callable[..., Any], corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config()
    path, index = str(tmp_path / "config.yaml"), str(tmp_path / "index")

    def would(*more: str) -> str:
        capsys.readouterr()
        assert main(["index", path, "--dry-run", "--json", *more]) == 0
        ((row),) = json.loads(capsys.readouterr().out)
        assert row["index"] == index
        return f"{row['documents']}: {row['done']}"

    assert would() == "0: would be built"
    assert not Path(index).exists()
    assert main(["index", path]) == 0
    assert "2 documents, built" in capsys.readouterr().out
    assert would() == "2: exists already, nothing to do"
    german = "--set", "retrieve.retrievers.bm25.analyzer=german"
    assert would(*german).startswith("2: would be built: index ")
    assert main(["index", path, *german]) == 0  # of the same corpus
    assert main(["index", path]) == 0
    write(Path(corpus), OTHER)
    other = f"was built from another corpus (2 documents) than {corpus} (3; corpus.path)"
    assert would() == f"2: would be replaced: {other}"
    assert main(["index", path]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    remedy = f"name another index, or replace it: dmqr index {path} --replace"
    assert line == f"dmqr index: index {index}: {other}; {remedy} [index-other]"
    assert read_index(tmp_path / "index")["documents"] == 2
    assert main(["index", path, "--replace"]) == 0
    assert "3 documents, built, in place of the index of another corpus (2 documents)" in capsys.readouterr().out
    ready(config())
    assert main(["index", path, "--set", "corpus.path=null"]) == 2
    assert "--corpus: is missing, and the config names no corpus (corpus.path)" in capsys.readouterr().err


def test_remedies_name_the_config_and_the_flags_that_are_needed(
    job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unnamed = ("--set", "corpus.path=null")

    def last_line(*words: str) -> str:
        assert main([*words]) == 2
        return capsys.readouterr().err.splitlines()[-1]

    assert f"build it with: dmqr index {job} --set corpus.path=null" in last_line("plan", job, *unnamed)
    assert f"start one with: dmqr run {job} [run-missing]" in last_line("runs", job)
    assert main(["index", job]) == 0
    german = last_line("plan", job, "--set", "retrieve.retrievers.bm25.analyzer=german")
    assert f"build it again: dmqr index {job} --set retrieve.retrievers.bm25.analyzer=german [index-other]" in german
    other = last_line("index", job, "--corpus", write(tmp_path / "other.parquet", OTHER))
    assert f"replace it: dmqr index {job} --corpus {tmp_path}/other.parquet --replace [index-other]" in other


def test_the_verb_index_drops_vectors_only_if_it_is_told_to(
    values: dict[str, Any], config_file: Callable[[Any], str], corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = str(tmp_path / "index")
    bm25 = {"kind": "local", "index": index, "analyzer": "english"}
    config = values | {"corpus": {"path": corpus}}
    with FakeModels("tei", embed=lambda texts: [[1.0, float(len(text))] for text in texts]) as server:
        encoder = {"kind": "openai", "model": server.model, "base_url": server.address}
        dense = {"kind": "local", "index": index, "analyzer": None, "encoder": encoder}
        path = config_file(config | {"retrieve": {"retrievers": {"bm25": bm25, "dense": dense}}})
        assert main(["index", path]) == 0
    model = read_index(tmp_path / "index")["encoder_name"]
    config_file(config | {"retrieve": {"retrievers": {"bm25": bm25}}})
    assert main(["index", path]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert f"index {index}: a build would drop its vectors ({model}), as no dense retriever names it; give one" in line
    assert line.endswith(f"or replace it: dmqr index {path} --replace [index-other]")
    assert main(["index", path, "--dry-run"]) == 0
    assert "would be replaced: a build would drop its vectors" in " ".join(capsys.readouterr().out.split())
    assert read_index(tmp_path / "index")["fields"]["dense"] is not None
    assert main(["index", path, "--replace"]) == 0
    assert read_index(tmp_path / "index")["fields"]["dense"] is None
